"""Tier 1.5 on Ray: one detached actor per node owns the shared bytes, everyone else borrows (P29).

An object in plasma lives as long as its owner, so the owner is neither producer nor consumer. The
actor maps the file it is told of and puts it once; it answers with references, and readers look at
the same memory without a copy. It keeps nothing that a restart needs: an actor that died is made
again, empty, by the next offer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import mmap
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import exceptions
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from noetl_ray.payloads.ledger import GRACE_S, Ledger

logger = logging.getLogger(__name__)

CACHE_PREFIX = "noetl-cache/"
SWEEP_S = 1.0
BORROW_S = 2.0
"""How long a reader waits for the cache before it reads the durable bytes."""
AGAIN_S = 5.0
"""How long a cache that could not be reached is left alone."""


class PlasmaCache:
    """The owner of one node's shared bytes; becomes a Ray actor at the edge."""

    def __init__(self, budget_bytes: int, lease_s: float, grace_s: float) -> None:
        self._ledger = Ledger(budget_bytes, lease_s=lease_s, grace_s=grace_s)
        self._refs: dict[str, Any] = {}
        self._sweeping: asyncio.Task[None] | None = None

    async def offer(self, name: str, path: str, size_bytes: int) -> bool:
        """Share a file's bytes if the budget has room; says whether they are shared now."""
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
        admitted, leaving = self._ledger.admit(name, size_bytes, time.monotonic())
        for left in leaving:
            self._refs.pop(left, None)
        if not admitted:
            return False
        if name not in self._refs:
            try:
                self._refs[name] = ray.put(_mapped(path, name.rpartition("/")[2]))
            except (OSError, ValueError, exceptions.RayError) as error:
                logger.warning("%s cannot be shared: %s", name, error)
                self._ledger.forget(name)
                return False
        return True

    async def lend(self, name: str) -> list[Any]:
        """The reference in a list, so that Ray hands on the reference itself; empty for a miss."""
        if not self._ledger.lend(name, time.monotonic()):
            return []
        return [self._refs[name]]

    async def stats(self) -> dict[str, int]:
        """The books."""
        used = self._ledger.used_bytes(time.monotonic())
        return {**self._ledger.counts, "bytes": used, "entries": len(self._refs)}

    async def pid(self) -> int:
        """Process id of this cache."""
        return os.getpid()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for name in self._ledger.expire(time.monotonic()):
                self._refs.pop(name, None)


class RayPlasma:
    """The shared memory of the node this process runs on; made in a process that belongs to Ray."""

    def __init__(
        self, *, namespace: str, budget_bytes: int, lease_s: float, grace_s: float = GRACE_S
    ) -> None:
        self.node_id: str = ray.get_runtime_context().get_node_id()
        self.lease_ms = int(lease_s * 1_000)
        self._namespace = namespace
        self._budget_bytes = budget_bytes
        self._times = (lease_s, grace_s)
        self._handle: Any = None
        self._left_alone_until = 0.0
        self._lent: dict[str, tuple[Any, float]] = {}
        """What was borrowed, for as long as the loan counts in the cache's books."""

    async def offer(self, name: str, path: str, size_bytes: int) -> bool:
        """Tell the node's cache of a file; it is made when it is not there."""
        handle = await self._cache(make=True)
        if handle is None:
            return False
        try:
            # Nobody waits for the answer: whoever asks next finds the bytes, or does not.
            handle.offer.remote(name, path, size_bytes)
        except exceptions.RayError as error:
            self._lost(error)
            return False
        return True

    async def borrow(self, name: str, size_bytes: int) -> memoryview | None:
        """The shared bytes, or None for every reason they cannot be had now."""
        self._lent = {key: loan for key, loan in self._lent.items() if loan[1] > time.monotonic()}
        if name in self._lent:
            return memoryview(self._lent[name][0])
        handle = await self._cache(make=False)
        if handle is None:
            return None
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(BORROW_S):
                refs = await handle.lend.remote(name)
                array = await refs[0] if refs else None
        except (exceptions.RayError, TimeoutError) as error:
            self._lost(error)
            return None
        if array is None or array.nbytes != size_bytes:
            return None
        self._lent[name] = array, asked_at + self._times[0]
        return memoryview(array)

    async def stats(self) -> dict[str, int]:
        """What the cache's books say."""
        handle = await self._cache(make=False)
        if handle is None:
            return {}
        try:
            async with asyncio.timeout(BORROW_S):
                found: dict[str, int] = await handle.stats.remote()
        except (exceptions.RayError, TimeoutError) as error:
            self._lost(error)
            return {}
        return found

    async def _cache(self, *, make: bool) -> Any:
        if self._handle is None and time.monotonic() >= self._left_alone_until:
            try:
                self._handle = await asyncio.to_thread(self._find, make)
            except (exceptions.RayError, ValueError, RuntimeError) as error:
                self._lost(error)
        return self._handle

    def _find(self, make: bool) -> Any:
        name = f"{CACHE_PREFIX}{self.node_id}"
        if not make:
            with contextlib.suppress(ValueError):
                return ray.get_actor(name, namespace=self._namespace)
            return None
        wrap: Any = ray.remote
        return (
            wrap(PlasmaCache)
            .options(
                name=name,
                namespace=self._namespace,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_task_retries=0,
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(self.node_id, soft=False),
            )
            .remote(self._budget_bytes, *self._times)
        )

    def _lost(self, error: BaseException) -> None:
        logger.warning("shared memory is left alone for a while: %s", error)
        self._handle = None
        self._left_alone_until = time.monotonic() + AGAIN_S


def stop_caches(namespace: str) -> list[str]:
    """End the caches of a namespace; their names."""
    names = [
        entry["name"]
        for entry in list_named_actors(all_namespaces=True)
        if entry["namespace"] == namespace and entry["name"].startswith(CACHE_PREFIX)
    ]
    for name in names:
        with contextlib.suppress(ValueError):
            ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)
    return names


def _mapped(path: str, sha256: str) -> Any:
    """The file as an array that lies in the page cache; `ray.put` is the only copy."""
    with Path(path).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Readers trust what is shared, so it is compared with its digest before it is.
    if hashlib.sha256(mapped).hexdigest() != sha256:
        msg = f"{path} does not hold the bytes it was offered for"
        raise ValueError(msg)
    return np.frombuffer(mapped, np.uint8)
