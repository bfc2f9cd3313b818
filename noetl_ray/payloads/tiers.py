"""The read order of bytes: process memory, shared memory, local disk, then the store (CCH-1).

Everything here is a copy of bytes that are durable already, known by their digest; losing any of it
costs time only, and no failure of a tier is ever an error of the reader. Every look at a tier is
counted by outcome.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from noetl_ray.payloads.disk_tier import DiskTier, MappedFiles
from noetl_ray.payloads.shared import (
    SHARED_BYTES_MIN,
    Data,
    SharedMemory,
    TierKey,
    make_hint,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl_ray.clock import Clock

MEMORY, PLASMA, DISK, OBJECT = "memory", "plasma", "disk", "object"
TIERS = (MEMORY, PLASMA, DISK, OBJECT)
_SHARE_OF_BUDGET = 4
"""One entry of process memory takes at most this part of it: else each large one empties it."""


class MemoryTier:
    """Bytes of this process, the least recently used given up first."""

    def __init__(self, budget_bytes: int) -> None:
        self.used_bytes = 0
        self._budget_bytes = budget_bytes
        self._held: OrderedDict[str, Data] = OrderedDict()

    def get(self, key: TierKey) -> Data | None:
        """The bytes, when they are here."""
        found = self._held.get(key.name)
        if found is not None:
            self._held.move_to_end(key.name)
        return found

    def put(self, key: TierKey, data: Data) -> bool:
        """Keep bytes unless they would push everything else out."""
        if len(data) > self._budget_bytes // _SHARE_OF_BUDGET or key.name in self._held:
            return False
        self._held[key.name] = data
        self.used_bytes += len(data)
        while self.used_bytes > self._budget_bytes:
            _, dropped = self._held.popitem(last=False)
            self.used_bytes -= len(dropped)
        return True


class Tiers:
    """What one process has of the tiers above the object store."""

    def __init__(
        self,
        clock: Clock,
        *,
        memory: MemoryTier,
        disk: DiskTier | None = None,
        shared: SharedMemory | None = None,
        shared_bytes_min: int = SHARED_BYTES_MIN,
    ) -> None:
        """Bind the tiers; None leaves one out, with unchanged results."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self.shared = shared
        self._clock = clock
        self._memory = memory
        self._disk = disk
        self._shared_bytes_min = shared_bytes_min
        self._files = MappedFiles()

    async def fetch(
        self,
        key: TierKey,
        hint: Mapping[str, Any] | None,
        *,
        local: str | None,
        durable: Callable[[], Awaitable[tuple[bytes, bool]]],
    ) -> Data:
        """The bytes of a key from the nearest tier that has them.

        Args:
            key: What they are called.
            hint: What the event says of shared memory.
            local: The durable object as a file of this machine, when it is one.
            durable: Reads and verifies the durable object, and says whether the bytes are the
                key's own; its errors are the reader's.
        """
        found = self._memory.get(key)
        if found is not None:
            return self._hit(MEMORY, found)
        self.counts[MEMORY, "miss"] += 1
        found = await self._borrowed(key, hint)
        if found is not None:
            return self._hit(PLASMA, found)
        if self._disk is not None and local is None:
            found = await asyncio.to_thread(self._disk.get, key)
            if found is not None:
                return self._hit(DISK, found)
            self.counts[DISK, "miss"] += 1
        if local is not None:
            found = await asyncio.to_thread(self._files.map, local, key.size_bytes, key.sha256)
            if found is not None:
                self.counts[OBJECT, "mapped"] += 1
                return found
        try:
            read, own = await durable()
        except Exception:
            self.counts[OBJECT, "error"] += 1
            raise
        self.counts[OBJECT, "read"] += 1
        if own:
            await self._keep(key, read, local)
        return read

    async def peek(self, key: TierKey, hint: Mapping[str, Any] | None) -> Data | None:
        """The bytes if a tier above the store has them; for repairs, which count no reads."""
        found = self._memory.get(key) or await self._borrowed(key, hint)
        if found is None and self._disk is not None:
            found = await asyncio.to_thread(self._disk.get, key)
        return found

    async def keep(self, key: TierKey, data: bytes, *, local: str | None) -> dict[str, Any] | None:
        """Take bytes that have just become durable into the tiers; the hint for their event."""
        path = await self._keep(key, data, local)
        shared = self.shared
        if shared is None or path is None or len(data) < self._shared_bytes_min:
            return None
        if not await shared.offer(key.name, path, len(data)):
            self.counts[PLASMA, "unavailable"] += 1
            return None
        self.counts[PLASMA, "offered"] += 1
        return make_hint(shared, key, self._clock.now_ms())

    async def _keep(self, key: TierKey, data: bytes, local: str | None) -> str | None:
        """Process memory and disk; gives a file that holds the bytes."""
        if self._memory.put(key, data):
            self.counts[MEMORY, "stored"] += 1
        if local is not None or self._disk is None:
            return local
        try:
            path = await asyncio.to_thread(self._disk.put, key, data)
        except OSError:
            self.counts[DISK, "full"] += 1
            return None
        self.counts[DISK, "stored" if path else "refused"] += 1
        return path

    async def _borrowed(self, key: TierKey, hint: Mapping[str, Any] | None) -> Data | None:
        shared = self.shared
        if shared is None:
            return None
        found = verdict(hint, key, node_id=shared.node_id, now_ms=self._clock.now_ms())
        if found != "usable":
            if found != "none":
                self.counts[PLASMA, found] += 1
            return None
        view = await shared.borrow(key.name, key.size_bytes)
        if view is None:
            self.counts[PLASMA, "miss"] += 1
        return view

    def _hit(self, tier: str, data: Data) -> Data:
        self.counts[tier, "hit"] += 1
        return data

    def report(self) -> dict[str, dict[str, int]]:
        """Counts by tier and outcome."""
        found: dict[str, dict[str, int]] = {tier: {} for tier in TIERS}
        for (tier, outcome), count in sorted(self.counts.items()):
            found[tier][outcome] = count
        found[MEMORY]["bytes"] = self._memory.used_bytes
        return found
