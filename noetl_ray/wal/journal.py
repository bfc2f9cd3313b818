"""What this process has handed to the log and the log has not acknowledged yet: its tail.

Owns the bound of the tail, in events and in bytes, shared by all producers of a process, and what
is in it, readable at once. Below the bound an append passes without waiting. At the bound
producers wait in the order they came, so a broker that stands still stops them instead of filling
memory. Refuses to drop anything, and refuses to let a producer wait for ever: who found no room in
time is told that nothing was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from noetl_ray.errors import LogUnavailableError

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.events.envelope import Record

MAX_EVENTS = 1_024
MAX_BYTES = 16 << 20


class Entry:
    """One append on its way."""

    __slots__ = ("record", "since", "size", "subject")

    def __init__(self, subject: str, record: Record, size: int) -> None:
        self.subject = subject
        self.record = record
        self.size = size
        self.since = 0.0


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """The tail as it is now."""

    records: int
    events: int
    bytes: int
    oldest_s: float
    """How long the oldest record of the tail has been waiting for its acknowledgement."""
    waiting: int
    """Producers that wait for room."""
    held: int
    """Appends that have had to wait for room since the start."""
    max_events: int
    max_bytes: int


class Journal:
    """The tail of one process; every log that shares it shares its bound."""

    def __init__(
        self, clock: Clock, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES
    ) -> None:
        self._clock = clock
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events = 0
        self._bytes = 0
        self._held = 0
        # In the order in which they entered, so the oldest is in front.
        self._tail: dict[int, Entry] = {}
        self._waiting: deque[tuple[Entry, asyncio.Future[None]]] = deque()

    def enter(self, entry: Entry) -> bool:
        """Take a record into the tail when there is room and nobody waits; else change nothing."""
        if self._waiting or not self._has_room(entry):
            return False
        self._admit(entry)
        return True

    async def wait(self, entry: Entry, bound_s: float) -> None:
        """Wait for room, in turn; afterwards the record is in the tail.

        Raises:
            LogUnavailableError: there was none in time; nothing was sent.
        """
        self._held += 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (entry, turn)
        self._waiting.append(place)
        try:
            async with asyncio.timeout(bound_s):
                await turn
        except BaseException as error:
            # Admitted in the very moment in which the wait ended: the room goes to the next.
            if id(entry) in self._tail:
                self.leave(entry)
            else:
                self._waiting.remove(place)
                self._let_in()
            if isinstance(error, TimeoutError):
                raise self._no_room(entry, bound_s) from None
            raise

    def leave(self, entry: Entry) -> None:
        """Take a record out: its outcome is known, or nobody asks for it any more."""
        del self._tail[id(entry)]
        self._events -= len(entry.record.events)
        self._bytes -= entry.size
        if self._waiting:
            self._let_in()

    def unacknowledged(self, subject: str) -> list[Record]:
        """What this process has sent to a subject and knows no outcome of, oldest first."""
        return [entry.record for entry in self._tail.values() if entry.subject == subject]

    def gauge(self) -> Gauge:
        """How full the tail is."""
        oldest = next(iter(self._tail.values()), None)
        return Gauge(
            records=len(self._tail),
            events=self._events,
            bytes=self._bytes,
            oldest_s=round(self._clock.monotonic() - oldest.since, 3) if oldest else 0.0,
            waiting=len(self._waiting),
            held=self._held,
            max_events=self._max_events,
            max_bytes=self._max_bytes,
        )

    def _has_room(self, entry: Entry) -> bool:
        if not self._tail:
            return True  # A record larger than the bound goes alone, or it would never go.
        return (
            self._events + len(entry.record.events) <= self._max_events
            and self._bytes + entry.size <= self._max_bytes
        )

    def _admit(self, entry: Entry) -> None:
        entry.since = self._clock.monotonic()
        self._tail[id(entry)] = entry
        self._events += len(entry.record.events)
        self._bytes += entry.size

    def _let_in(self) -> None:
        """Those who wait, in turn, as far as there is room; a small one passes no large one."""
        while self._waiting:
            entry, turn = self._waiting[0]
            if not self._has_room(entry):
                return
            self._waiting.popleft()
            self._admit(entry)
            # One who gave up in this moment finds the record in the tail and takes it out.
            if not turn.done():
                turn.set_result(None)

    def _no_room(self, entry: Entry, bound_s: float) -> LogUnavailableError:
        msg = (
            f"{entry.subject}: {self._events} events wait for their acknowledgement, and there was "
            f"no room for more within {bound_s:g} s (event_store.tail_max_events "
            f"{self._max_events}, tail_max_bytes {self._max_bytes}); nothing was sent"
        )
        return LogUnavailableError(msg)
