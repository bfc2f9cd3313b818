"""A worker's lease: whether it may still touch the outside world (P22).

The keeper declares a worker lost only after not hearing of it for a whole lease. So from the moment
an announcement was *sent* that the keeper says it heard, nobody takes the worker's commands for a
lease. Where that has run out, the worker joins again in the log before it goes on: the keeper's
verdict states the version it saw and is refused, or the worker learns that it was declared lost and
must drop everything.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from actors.stamp import system_event
from noetl_ray.errors import LogError, VersionConflictError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import EventType
from noetl_ray.wal.subjects import worker_subject

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.wal.port import Log

MARGIN = 0.8
"""Part of the lease a worker trusts; the rest covers the keeper's own turn."""
UNHEARD_MAX = 100


class LeaseLostError(LogError):
    """Another decided that this worker is gone; what it runs is void."""

    code = "lease_lost"


class WorkerLease:
    """Membership of one worker incarnation, kept by announcements and, failing those.

    By the log.
    """

    def __init__(
        self,
        log: Log,
        ids: SnowflakeIds,
        clock: Clock,
        *,
        worker_id: str,
        incarnation: str,
        producer: str,
        facts: dict[str, Any],
        lease_ms: int,
    ) -> None:
        self.worker_id = worker_id
        self.incarnation = incarnation
        self._log = log
        self._ids = ids
        self._clock = clock
        self._producer = producer
        self._facts = facts
        self._lease_s = lease_ms / 1000 * MARGIN
        self._until = float("-inf")
        self._version = 0
        self._last_event_id: int | None = None
        self._sequence = 0
        self._unheard: OrderedDict[int, float] = OrderedDict()

    @property
    def valid(self) -> bool:
        """Whether the lease holds at this moment; no await lies between asking and acting."""
        return self._clock.monotonic() < self._until

    def announced(self) -> int:
        """Note that an announcement goes out now; its number."""
        self._sequence += 1
        self._unheard[self._sequence] = self._clock.monotonic()
        while len(self._unheard) > UNHEARD_MAX:
            self._unheard.popitem(last=False)
        return self._sequence

    def heard(self, sequence: int) -> None:
        """The keeper heard an announcement: the lease runs from when it was sent."""
        sent_at = self._unheard.pop(sequence, None)
        if sent_at is not None:
            self._until = max(self._until, sent_at + self._lease_s)

    async def join(self) -> None:
        """Enter this incarnation in the log, in place of any before it."""
        while True:
            last = await self._log.last(worker_subject(self.worker_id))
            self._version = last.position if last else 0
            self._last_event_id = last.record.events[-1].event_id if last else None
            try:
                await self._say(EventType.WORKER_JOINED, self._facts)
            except VersionConflictError:
                continue
            return

    async def ensure(self) -> None:
        """Return with a valid lease.

        Raises:
            LeaseLostError: this incarnation was declared lost.
        """
        while not self.valid:
            try:
                await self._say(EventType.WORKER_JOINED, self._facts)
            except VersionConflictError:
                await self._reread()

    async def check(self) -> None:
        """Ask the log, without writing, whether this incarnation is still a member.

        Raises:
            LeaseLostError: this incarnation was declared lost.
        """
        await self._reread()

    async def leave(self) -> None:
        """Say goodbye, unless somebody did it already."""
        try:
            await self._say(EventType.WORKER_LEFT, {})
        except VersionConflictError:
            return

    async def _reread(self) -> None:
        last = await self._log.last(worker_subject(self.worker_id))
        newest = last.record.events[-1] if last else None
        mine = (
            newest is not None
            and newest.event_type is EventType.WORKER_JOINED
            and newest.payload["incarnation"] == self.incarnation
        )
        if last is None or newest is None or not mine:
            msg = f"{self.worker_id} ({self.incarnation}) was declared lost"
            raise LeaseLostError(msg)
        # A renewal of our own whose ack we never saw.
        self._version = last.position
        self._last_event_id = newest.event_id

    async def _say(self, kind: EventType, more: dict[str, Any]) -> None:
        asked_at = self._clock.monotonic()
        event = system_event(
            kind,
            self.worker_id,
            {"worker_id": self.worker_id, "incarnation": self.incarnation, **more},
            event_id=self._ids.mint(),
            now_ms=self._clock.now_ms(),
            producer=self._producer,
            prev_event_id=self._last_event_id,
        )
        self._version = await self._log.append(
            event.stream_id, Record(events=(event,)), expected_version=self._version
        )
        self._last_event_id = event.event_id
        self._until = asked_at + self._lease_s
