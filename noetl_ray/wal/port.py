"""The log port: append with an expected version, read by subject or position, subscribe.

A *position* is the sequence of a message in the whole log (P9). The *version* of a subject is the
position of its last message, 0 when it has none; this is what JetStream checks, and the memory
adapter does the same. Delivery is at least once and ordered by position within one subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noetl_ray.events.envelope import Record, decode_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


class Recorded:
    """A record as the log holds it; never changed once made.

    Made from bytes it is read when somebody first looks, and then once for all who share it: a
    reader that only wants a position or a glance at the bytes pays for nothing more.
    """

    __slots__ = ("_record", "data", "position", "subject", "time_ms")

    def __init__(
        self,
        *,
        position: int,
        subject: str,
        time_ms: int,
        record: Record | None = None,
        data: bytes = b"",
    ) -> None:
        """Bind a record, or the bytes it is to be read from."""
        self.position = position
        self.subject = subject
        self.time_ms = time_ms
        self.data = data
        """The stored bytes, where they are at hand."""
        self._record = record

    @property
    def record(self) -> Record:
        """What was appended.

        Raises:
            EnvelopeError: the bytes are not a record.
        """
        if self._record is None:
            self._record = decode_record(self.data)
        return self._record

    def may_hold(self, text: bytes) -> bool:
        """Whether the bytes contain a text; True when the bytes are not at hand."""
        return not self.data or text in self.data

    def __eq__(self, other: object) -> bool:
        """Same place, same content."""
        if not isinstance(other, Recorded):
            return NotImplemented
        mine = (self.position, self.subject, self.time_ms, self.record)
        return mine == (other.position, other.subject, other.time_ms, other.record)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Recorded(position={self.position}, subject={self.subject!r})"


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

    def subjects(self, subject_filter: str) -> AsyncIterator[tuple[str, int]]:
        """Subjects under a filter that hold records now, and how many; for housekeeping only."""
        ...

    async def subscribe(
        self, subject_filters: Sequence[str], *, from_position: int = 1
    ) -> Subscription:
        """Deliver matching records from a position on, for ever.

        Survives reconnects without gaps.
        """
        ...

    async def latest(self, subject_filter: str) -> list[Recorded]:
        """The last record of each subject that matches, in order of position.

        What only the end of many short subjects tells, such as who lives, needs no history.
        """
        ...

    async def end_of(self, subject_filters: Sequence[str]) -> int:
        """The position of the newest record under any of some filters, 0 when there is none."""
        ...

    async def last_position(self) -> int:
        """The position of the newest record of the log, 0 when empty."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def once(records: Sequence[Recorded], after: int = 0) -> Iterator[Recorded]:
    """In order and each once: a subscription may hand out again what it has handed out."""
    for recorded in records:
        if recorded.position > after:
            after = recorded.position
            yield recorded
