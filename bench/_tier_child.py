"""One of two processes a table passes between: a member of the set's Ray with stores of its own.

Each question names an action; the answer is a mapping. The producer stores a table, the consumer
reads it by one way at a time, from call to a summed column.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from actors.plasma import RayPlasma
from bench._child import answer
from noetl_ray.clock import SystemClock
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.disk_tier import DiskTier
from noetl_ray.payloads.fsspec_store import FsspecStore
from noetl_ray.payloads.tiers import MemoryTier, Tiers
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl_ray.payloads.port import ObjectStore

MB = 1 << 20
LEASE_S = 600.0
TEXT_CHARS = 160
CLOCK = SystemClock()


def table_rows(size_mb: int) -> list[dict[str, Any]]:
    """Rows that are about so large as Feather."""
    count = size_mb * MB // (TEXT_CHARS + 12)
    return [{"n": n, "text": f"{n:0{TEXT_CHARS}d}"} for n in range(count)]


class Member:
    """The stores of one process."""

    def __init__(self, folder: str, s3: dict[str, str], namespace: str) -> None:
        self._folder = Path(folder)
        self._local = FsspecStore.open((self._folder / "objects").as_uri())
        self._s3 = FsspecStore.open(
            s3["url"],
            endpoint_url=s3["endpoint"],
            access_key=s3["access"],
            secret_key=s3["secret"],
        )
        self._shared = RayPlasma(namespace=namespace, budget_bytes=512 * MB, lease_s=LEASE_S)
        self._ways: dict[str, ResultStore] = {
            "plasma": self._store(self._local, shared=self._shared),
            "tier2": self._store(self._s3, disk=DiskTier(self._folder / "cache", 4_096 * MB)),
            "tier3_local": self._store(self._local),
            "s3": ResultStore(self._s3, Placement()),
        }

    def _store(self, objects: ObjectStore, **tiers: Any) -> ResultStore:
        near = Tiers(CLOCK, memory=MemoryTier(0), **tiers)
        return ResultStore(objects, Placement(), tiers=near)

    async def produce(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Store a table in a folder, shared, and in the bucket; give both blocks."""
        rows = table_rows(asked["mb"])
        name = ResultName(
            tenant="default", project="bench", execution_id=(1 << 40) + asked["n"], step="load"
        )
        began = time.perf_counter()
        shared = await self._ways["plasma"].persist(Scope(), name, rows)
        persist_s = time.perf_counter() - began
        if asked["s3"]:
            await self._ways["s3"].persist(Scope(), name, rows)
        until = time.monotonic() + 60
        while (await self._shared.stats()).get("entries", 0) <= asked["n"]:
            if time.monotonic() > until:
                msg = "the cache took nothing in"
                raise RuntimeError(msg)
            await asyncio.sleep(0.02)
        return {"block": shared, "persist_s": persist_s, "rows": len(rows)}

    async def consume(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Read by one way and touch a column; seconds, and what the tiers say."""
        store = self._ways[asked["way"]]
        before = pa.total_allocated_bytes()
        began = time.perf_counter()
        table = await store.table(Scope(), asked["block"])
        total = pc.sum(table.column("n")).as_py()
        seconds = time.perf_counter() - began
        counts = store.tiers.report() if store.tiers is not None else {}
        return {
            "s": seconds,
            "sum": total,
            "rows": table.num_rows,
            "allocated": pa.total_allocated_bytes() - before,
            "counts": counts,
        }

    async def bare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The same bytes made by a Ray task and taken by `ray.get` alone."""
        path = str(asked["path"])

        def load() -> Any:
            return np.fromfile(path, np.uint8)

        make: Any = ray.remote(num_cpus=0)(load)
        reference = make.remote()
        ray.wait([reference])
        began = time.perf_counter()
        table = pa.ipc.open_file(pa.py_buffer(ray.get(reference))).read_all()
        total = pc.sum(table.column("n")).as_py()
        return {"s": time.perf_counter() - began, "sum": total}


def main() -> None:
    """Join the cluster given on the command line."""
    address, folder, url, endpoint, access, secret, namespace = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    s3 = {"url": url, "endpoint": endpoint, "access": access, "secret": secret}
    member = Member(folder, s3, namespace)
    loop = asyncio.new_event_loop()
    actions: dict[str, Callable[[dict[str, Any]], Any]] = {
        "produce": member.produce,
        "consume": member.consume,
        "bare": member.bare,
    }
    answer(lambda asked: loop.run_until_complete(actions[asked["do"]](asked)))
    ray.shutdown()


if __name__ == "__main__":
    main()
