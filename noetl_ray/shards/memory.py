"""Table and checkpoints in memory: peers of the NATS adapters for tests and the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.errors import VersionConflictError
from noetl_ray.shards.port import Stored
from noetl_ray.wal.subjects import checkpoint_subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class MemoryCheckpoints:
    """The checkpoint port over lists."""

    def __init__(self, fault: Callable[[str], Awaitable[None]] | None = None) -> None:
        """Begin empty.

        Args:
            fault: Awaited before each call, and after a message was stored; it may raise.
        """
        self._chains: dict[int, list[Stored]] = {}
        self._newest = 0
        self._fault = fault

    async def read(self, shard: int) -> list[Stored]:
        """All messages of a shard, oldest first."""
        await self._ask("read")
        return list(self._chains.get(shard, ()))

    async def add(self, shard: int, data: bytes, *, expected: int) -> int:
        """Add a message and return its version."""
        await self._ask("add")
        chain = self._chains.setdefault(shard, [])
        actual = chain[-1].version if chain else 0
        if actual != expected:
            subject = checkpoint_subject(shard)
            raise VersionConflictError(subject, expected, actual)
        self._newest += 1
        version = self._newest
        chain.append(Stored(version, bytes(data)))
        await self._ask("added")
        return version

    async def end(self, shard: int) -> int:
        """The version of the last message, 0 when there is none."""
        await self._ask("end")
        chain = self._chains.get(shard)
        return chain[-1].version if chain else 0

    async def drop_before(self, shard: int, version: int) -> None:
        """Forget the messages before a version."""
        await self._ask("drop")
        chain = self._chains.get(shard, [])
        self._chains[shard] = [each for each in chain if each.version >= version]

    def wipe(self) -> None:
        """Lose everything, as a test may want."""
        self._chains.clear()

    async def _ask(self, what: str) -> None:
        if self._fault is not None:
            await self._fault(what)


class MemoryOwners:
    """The table port over one value."""

    def __init__(self, fault: Callable[[str], Awaitable[None]] | None = None) -> None:
        """Begin without a table; ``fault`` is awaited before each call and may raise."""
        self._data: bytes | None = None
        self._version = 0
        self._fault = fault

    async def read(self) -> tuple[bytes | None, int]:
        """The record and its version."""
        if self._fault is not None:
            await self._fault("read")
        return self._data, self._version

    async def write(self, data: bytes, version: int) -> bool:
        """Replace it unless it has changed since."""
        if self._fault is not None:
            await self._fault("write")
        if version != self._version:
            return False
        self._data, self._version = bytes(data), version + 1
        return True

    def wipe(self) -> None:
        """Lose the table, as a test may want."""
        self._data, self._version = None, 0
