"""The log port: append with an expected version, read by subject or position, subscribe.

A *position* is the sequence of a message in the whole log (P9). The *version* of a subject is the
position of its last message, 0 when it has none; this is what JetStream checks, and the memory
adapter does the same. Delivery is at least once and ordered by position within one subscription.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from noetl_ray.events.envelope import Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A record as the log holds it."""

    position: int
    subject: str
    time_ms: int
    record: Record


class Subscription(Protocol):
    """A running delivery of records in order of position."""

    async def next_batch(self, max_records: int, timeout_s: float) -> list[Recorded]:
        """Wait for at least one record or the timeout; an empty list means none came."""
        ...

    async def close(self) -> None:
        """Stop delivery; safe to call twice."""
        ...


class Log(Protocol):
    """The write-ahead log. A returned position means the record is durable (WAL-1)."""

    async def append(self, subject: str, record: Record, *, expected_version: int | None) -> int:
        """Append one record and return its position, which is the subject's new version.

        The record's first event id is the message id. A lost ack is settled by reading the
        subject's last message: if its first event id is ours, the append succeeded (P5).

        Args:
            subject: Where to append.
            record: What to append; all its events become visible together.
            expected_version: The version the subject must have; None appends after whatever is
                there.

        Raises:
            VersionConflictError: another writer was first.
            LogUnavailableError: no ack came in time, and the tail could not be read either.
        """
        ...

    async def last(self, subject: str) -> Recorded | None:
        """The last record of a subject, or None."""
        ...

    async def get(self, position: int) -> Recorded | None:
        """The record at a position, or None when it was removed or never was."""
        ...

    def read(self, subject_filter: str, *, from_position: int = 1) -> AsyncIterator[Recorded]:
        """All records that match now, in order, then end."""
        ...

    async def subscribe(
        self, subject_filters: Sequence[str], *, from_position: int = 1
    ) -> Subscription:
        """Deliver matching records from a position on, for ever.

        Survives reconnects without gaps.
        """
        ...

    async def last_position(self) -> int:
        """The position of the newest record of the log, 0 when empty."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
