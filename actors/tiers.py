"""The nearer tiers of a host: opened from settings, and their counts told by hints (CCH-8).

Counts only grow within one incarnation, so the newest hint of each says it all; a lost one costs a
few seconds of news.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.errors import NoetlError
from noetl_ray.hints.port import TIER_COUNTS
from noetl_ray.payloads.disk_tier import DiskTier
from noetl_ray.payloads.tiers import MemoryTier, Tiers

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.config.settings import Settings
    from noetl_ray.hints.port import Hints
    from noetl_ray.payloads.shared import SharedMemory

EVERY_S = 2.0
UNCHANGED_MAX = 5
"""How often nothing new is left unsaid; then it is said again, for gateways that came later."""


class TierCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one process."""

    source: str
    node: str
    counts: dict[str, dict[str, int]]
    shared: dict[str, int] = {}


decode_counts = msgspec.json.Decoder(TierCounts).decode


def open_tiers(settings: Settings, clock: Clock) -> Tiers:
    """The nearer tiers of this process; shared memory only where the process is one of Ray's."""
    given = settings.results
    disk = None
    # Where everything is encrypted at rest, nothing is left on a disk or in shared memory (SEC-2).
    sealed = settings.payload_store.encrypt == "all"
    if given.disk_cache_mb and not sealed:
        folder = Path(settings.data_dir).resolve() / "cache"
        disk = DiskTier(folder, given.disk_cache_mb << 20)
        disk.sweep(clock.now_ms() / 1_000)
    shared: SharedMemory | None = None
    ray = sys.modules.get("ray")
    if given.plasma_budget_mb and not sealed and ray is not None and ray.is_initialized():
        from actors.plasma import RayPlasma

        shared = RayPlasma(
            namespace=settings.ray.namespace,
            budget_bytes=given.plasma_budget_mb << 20,
            lease_s=settings.frame_policy_defaults.lease_seconds,
        )
    return Tiers(clock, memory=MemoryTier(given.memory_cache_mb << 20), disk=disk, shared=shared)


async def tell_counts(
    tiers: Tiers, hints: Hints, *, source: str, node: str, stopping: asyncio.Event
) -> None:
    """Send the counts whenever they changed, until told to stop."""
    said: dict[str, Any] = {}
    unchanged = UNCHANGED_MAX
    while not stopping.is_set():
        counts = tiers.report()
        unchanged += 1
        if counts != said or unchanged > UNCHANGED_MAX:
            said, unchanged = counts, 0
            shared = await tiers.shared.stats() if tiers.shared is not None else {}
            where = tiers.shared.node_id if tiers.shared is not None else node
            told = TierCounts(source=source, node=where, counts=counts, shared=shared)
            with contextlib.suppress(NoetlError):
                await hints.send(TIER_COUNTS, msgspec.json.encode(told))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await stopping.wait()
