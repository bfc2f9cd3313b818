"""The write-ahead log in memory: a peer of the JetStream adapter for tests and the simulator.

Owns the same rules the server has: positions over the whole log, the version check before the
duplicate check, message ids remembered log-wide for a window, a purged subject back at version 0.
Lost answers run through the same settling as on the real log. Pure asyncio and deterministic:
time comes from the clock it is given and from the running loop. Refuses to outlive its process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from noetl_ray.errors import LogError, LogUnavailableError
from noetl_ray.events.envelope import Record, decode_record, encode_record
from noetl_ray.wal.journal import Entry, Journal
from noetl_ray.wal.matching import matches
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.settle import Attempt, Outcome, Published, check_subject, settle
from noetl_ray.wal.signal import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl_ray.clock import Clock

SETTLE_S = 30.0
DUPLICATE_WINDOW_S = 120.0


class LogFaults(Protocol):
    """Where a simulator makes the log misbehave. Each hook may wait, and so change the order."""

    async def before_append(self, subject: str, record: Record) -> None:
        """Raise LogUnavailableError to lose a publish on its way in: nothing is stored."""
        ...

    async def after_append(self, subject: str, record: Record, position: int) -> None:
        """Raise LogUnavailableError to lose the ack: the record is stored."""
        ...

    async def delay_delivery(self) -> None:
        """Wait before a subscription hands out what it has."""
        ...


@dataclass(frozen=True, slots=True)
class _Remembered:
    position: int
    until_ms: int


class MemoryLog:
    """The log port over a list."""

    def __init__(
        self,
        clock: Clock,
        *,
        duplicate_window_s: float = DUPLICATE_WINDOW_S,
        settle_s: float = SETTLE_S,
        faults: LogFaults | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._clock = clock
        self.journal = journal or Journal(clock)
        """What is on its way and not acknowledged yet."""
        self._window_ms = int(duplicate_window_s * 1000)
        self._settle_s = settle_s
        self._faults = faults
        self._records: list[Recorded | None] = []
        self._subjects: dict[str, list[int]] = {}
        self._ids: dict[int, _Remembered] = {}
        self._subscriptions: list[MemorySubscription] = []

    async def append(self, subject: str, record: Record, *, expected_version: int | None) -> int:
        """Append one record and return its position; see the port."""
        check_subject(subject)
        attempt = Attempt(
            subject=subject,
            data=encode_record(record),
            message_id=record.events[0].event_id,
            expected=expected_version,
        )
        entry = Entry(subject, record, len(attempt.data))
        if not self.journal.enter(entry):
            await self.journal.wait(entry, self._settle_s)
        try:
            published = await self.publish(attempt)
            if published.outcome is Outcome.STORED:
                return published.position
            return await settle(self, self._clock, attempt, published, bound_s=self._settle_s)
        finally:
            self.journal.leave(entry)

    async def publish(self, attempt: Attempt) -> Published:
        """One try, as the server would answer it."""
        # Read back what is stored, so that nobody shares a mutable payload with the log.
        record = decode_record(attempt.data)
        try:
            if self._faults is not None:
                await self._faults.before_append(attempt.subject, record)
            published = self._store(attempt, record)
            # As on a network, others may see the record before its writer has the ack.
            await asyncio.sleep(0)
            if self._faults is not None and published.outcome is Outcome.STORED:
                await self._faults.after_append(attempt.subject, record, published.position)
        except LogUnavailableError:
            return Published(Outcome.UNKNOWN)
        return published

    async def last(self, subject: str) -> Recorded | None:
        """The last record of a subject, or None."""
        positions = self._subjects.get(subject)
        return self._at(positions[-1]) if positions else None

    async def get(self, position: int) -> Recorded | None:
        """The record at a position, or None."""
        return self._at(position)

    async def first_after(self, subject: str, position: int) -> Recorded | None:
        """The first record of a subject after a position."""
        for candidate in self._subjects.get(subject, ()):
            if candidate > position:
                return self._at(candidate)
        return None

    async def read(self, subject_filter: str, *, from_position: int = 1) -> AsyncIterator[Recorded]:
        """All records that match now, in order, then end."""
        found: list[int] = []
        for subject, positions in self._subjects.items():
            if matches(subject_filter, subject):
                found += positions
        for position in sorted(found):
            recorded = self._at(position) if position >= from_position else None
            if recorded is not None:
                yield recorded

    async def subjects(self, subject_filter: str) -> AsyncIterator[tuple[str, int]]:
        """Subjects under a filter that hold records now, and how many."""
        for subject, positions in sorted(self._subjects.items()):
            if positions and matches(subject_filter, subject):
                yield subject, len(positions)

    async def subscribe(
        self, subject_filters: Sequence[str], *, from_position: int = 1
    ) -> MemorySubscription:
        """Deliver matching records from a position on, for ever."""
        subscription = MemorySubscription(self, tuple(subject_filters), max(1, from_position))
        self._subscriptions.append(subscription)
        return subscription

    async def latest(self, subject_filter: str) -> list[Recorded]:
        """The last record of each subject that matches, in order of position."""
        ends = sorted(
            positions[-1]
            for subject, positions in self._subjects.items()
            if positions and matches(subject_filter, subject)
        )
        return [recorded for end in ends if (recorded := self._at(end)) is not None]

    async def end_of(self, subject_filters: Sequence[str]) -> int:
        """The position of the newest record under any of some filters, 0 when there is none."""
        return max(
            (
                positions[-1]
                for subject, positions in self._subjects.items()
                if positions and any(matches(each, subject) for each in subject_filters)
            ),
            default=0,
        )

    async def last_position(self) -> int:
        """The position of the newest record ever stored, 0 when there was none."""
        return len(self._records)

    async def purge(self, subject: str, *, keep: int = 0, below: int = 0) -> int:
        """Remove the records of a subject but the last ``keep``, or only those below a position.

        Returns how many went.
        """
        check_subject(subject)
        positions = self._subjects.get(subject, [])
        gone = positions[: len(positions) - keep] if keep else positions[:]
        if below and not keep:
            gone = [position for position in positions if position < below]
        for position in gone:
            self._records[position - 1] = None
        if gone:
            self._subjects[subject] = positions[len(gone) :]
        return len(gone)

    async def close(self) -> None:
        """End all subscriptions; the records stay readable."""
        for subscription in tuple(self._subscriptions):
            await subscription.close()

    def _store(self, attempt: Attempt, record: Record) -> Published:
        """The server's checks in the server's order, without a pause in between."""
        positions = self._subjects.get(attempt.subject)
        version = positions[-1] if positions else 0
        if attempt.expected is not None and attempt.expected != version:
            return Published(Outcome.REFUSED)
        now_ms = self._clock.now_ms()
        self._forget(now_ms)
        remembered = self._ids.get(attempt.message_id)
        if remembered is not None:
            return Published(Outcome.DUPLICATE, remembered.position)
        position = len(self._records) + 1
        self._records.append(
            Recorded(position=position, subject=attempt.subject, time_ms=now_ms, record=record)
        )
        self._subjects.setdefault(attempt.subject, []).append(position)
        self._ids[attempt.message_id] = _Remembered(position, now_ms + self._window_ms)
        for subscription in self._subscriptions:
            subscription.notify()
        return Published(Outcome.STORED, position)

    def _forget(self, now_ms: int) -> None:
        # Ids are kept in the order they came, so the old ones are in front.
        while self._ids:
            oldest = next(iter(self._ids))
            if self._ids[oldest].until_ms > now_ms:
                return
            del self._ids[oldest]

    def _at(self, position: int) -> Recorded | None:
        return self._records[position - 1] if 0 < position <= len(self._records) else None


class MemorySubscription:
    """A reader's place in the log."""

    def __init__(self, log: MemoryLog, filters: tuple[str, ...], from_position: int) -> None:
        self._log = log
        self._filters = filters
        self._next = from_position
        self._signal = Signal()
        self._closed = False
        self._verdicts: dict[str, bool] = {}

    def notify(self) -> None:
        """Say that the log has grown."""
        self._signal.notify()

    async def next_batch(self, max_records: int, timeout_s: float) -> list[Recorded]:
        """Wait for at least one record or the timeout."""
        if self._closed:
            msg = "the subscription is closed"
            raise LogError(msg)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if self._log._faults is not None:
            await self._log._faults.delay_delivery()
        while True:
            batch = self._take(max_records)
            remaining = deadline - loop.time()
            if batch or self._is_over(remaining):
                return batch
            await self._signal.wait(remaining)

    async def close(self) -> None:
        """Stop delivery; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._log._subscriptions.remove(self)
        self._signal.notify()

    def _take(self, max_records: int) -> list[Recorded]:
        records = self._log._records
        batch: list[Recorded] = []
        while self._next <= len(records) and len(batch) < max_records:
            recorded = records[self._next - 1]
            self._next += 1
            if recorded is not None and self._wants(recorded.subject):
                batch.append(recorded)
        return batch

    def _is_over(self, remaining_s: float) -> bool:
        return self._closed or remaining_s <= 0

    def _wants(self, subject: str) -> bool:
        verdict = self._verdicts.get(subject)
        if verdict is None:
            verdict = any(matches(wanted, subject) for wanted in self._filters)
            self._verdicts[subject] = verdict
        return verdict
