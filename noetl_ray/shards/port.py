"""The ports of ownership: the table of owners, and the store of checkpoints.

Both are derived: losing either costs time, never a decision (P1, P3). The table is one small record
that is changed by compare-and-set, so that every owner plans from the same picture. The store keeps
a chain of messages per shard; a writer states the version it expects, so that an owner that has
lost its shard cannot write between those of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGE_BYTES_MAX = 512 * 1024
"""The most one message of a chain holds: half of what a NATS server takes by default."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One message of a shard's chain; ``version`` is what the next one must expect."""

    version: int
    data: bytes


class CheckpointStore(Protocol):
    """Chains of messages, one per shard."""

    async def read(self, shard: int) -> Sequence[Stored]:
        """All messages of a shard, oldest first. Raises LogError."""
        ...

    async def add(self, shard: int, data: bytes, *, expected: int) -> int:
        """Add a message and return its version.

        Raises:
            VersionConflictError: the chain does not end at ``expected``; 0 is an empty one.
            LogUnavailableError: no answer came; the message may be stored.
        """
        ...

    async def end(self, shard: int) -> int:
        """The version of the last message, 0 when there is none. Raises LogError."""
        ...

    async def drop_before(self, shard: int, version: int) -> None:
        """Forget the messages before a version. Raises LogError."""
        ...


class OwnerTable(Protocol):
    """One small record that all owners read and change."""

    async def read(self) -> tuple[bytes | None, int]:
        """The record and its version; None when there is none. Raises StoreError."""
        ...

    async def write(self, data: bytes, version: int) -> bool:
        """Replace it unless it has changed since. Raises StoreError."""
        ...
