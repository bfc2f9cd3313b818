"""The keeper: notices workers nobody has heard of for longer than their lease.

And says so in the log (P22).

A killed process is noticed sooner, by a host that watches it or when its next incarnation joins;
silence is for the cases nobody notices. The append states the version it saw, so that a worker that
joined meanwhile is left alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.messages import GONE, Heard, decode_announcement, decode_gone, encode, heard_subject
from actors.stamp import system_event
from noetl_ray.errors import LogError, VersionConflictError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import EventType
from noetl_ray.hints.port import ANNOUNCE, Hints
from noetl_ray.wal.subjects import WORKERS_FILTER

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.wal.port import Log, Recorded, Subscription

_log = logging.getLogger(__name__)
TURN_S = 0.5
ABSENT_S = 2.0
"""A gap between turns that means this keeper itself did not run."""


@dataclass(slots=True)
class _Seen:
    incarnation: str
    version: int
    last_event_id: int
    heard_at: float


class Keeper:
    """Watches announcements against the log's list of workers."""

    name = "keeper"

    def __init__(
        self,
        *,
        log: Log,
        hints: Hints,
        ids: SnowflakeIds,
        clock: Clock,
        producer: str,
        lease_ms: int,
        cluster: str = "local",
    ) -> None:
        self._cluster = cluster
        self._dead: set[tuple[str, str]] = set()
        self._log = log
        self._hints = hints
        self._ids = ids
        self._clock = clock
        self._producer = producer
        self._lease_s = lease_ms / 1000
        self._workers: dict[str, _Seen] = {}
        self._subscription: Subscription | None = None
        self._stoppers: list[Any] = []
        self._lost = 0
        self._turned_at = 0.0

    async def start(self) -> None:
        """Learn the workers from the log, then listen for their announcements."""
        self._stoppers = [
            await self._hints.listen(ANNOUNCE, self._heard),
            await self._hints.listen(GONE, self._on_gone),
        ]
        begun = await self._log.last_position()
        for recorded in await self._log.latest(WORKERS_FILTER):
            self._observe(recorded)
        self._subscription = await self._log.subscribe([WORKERS_FILTER], from_position=begun + 1)
        self._turned_at = self._clock.monotonic()

    async def step(self) -> None:
        """Take news from the log, then declare those lost that kept silent too long."""
        assert self._subscription is not None
        for recorded in await self._subscription.next_batch(200, TURN_S):
            self._observe(recorded)
        now = self._clock.monotonic()
        if now - self._turned_at > ABSENT_S:
            # Not a judge of silence: it was away itself, and news may still be on its way.
            for seen in self._workers.values():
                seen.heard_at = now
        self._turned_at = now
        dead, self._dead = self._dead, set()
        for worker_id, seen in list(self._workers.items()):
            if (worker_id, seen.incarnation.partition(".")[0]) in dead:
                await self._declare_lost(worker_id, seen, "its process is dead")
            elif now - seen.heard_at > self._lease_s:
                silent = f"silent for more than {self._lease_s:g} s"
                await self._declare_lost(worker_id, seen, silent)

    async def stop(self) -> None:
        """Stop listening."""
        for stopper in self._stoppers:
            await stopper()
        if self._subscription is not None:
            await self._subscription.close()

    def summary(self) -> dict[str, Any]:
        """How many workers live and were declared lost."""
        return {"workers": len(self._workers), "declared_lost": self._lost}

    def _observe(self, recorded: Recorded) -> None:
        event = recorded.record.events[-1]
        worker_id = event.payload["worker_id"]
        if event.event_type is EventType.WORKER_JOINED:
            self._workers[worker_id] = _Seen(
                incarnation=event.payload["incarnation"],
                version=recorded.position,
                last_event_id=event.event_id,
                heard_at=self._clock.monotonic(),
            )
        else:
            self._workers.pop(worker_id, None)

    async def _heard(self, _subject: str, data: bytes) -> None:
        announcement = decode_announcement(data)
        seen = self._workers.get(announcement.worker_id)
        if seen is not None and seen.incarnation == announcement.incarnation:
            seen.heard_at = self._clock.monotonic()
            answer = Heard(incarnation=announcement.incarnation, sequence=announcement.sequence)
            await self._hints.send(heard_subject(announcement.worker_id), encode(answer))

    def _on_gone(self, _subject: str, data: bytes) -> None:
        gone = decode_gone(data)
        self._dead.add((f"{self._cluster}/{gone.host}", gone.incarnation))

    async def _declare_lost(self, worker_id: str, seen: _Seen, reason: str) -> None:
        event = system_event(
            EventType.WORKER_LOST,
            worker_id,
            {
                "worker_id": worker_id,
                "incarnation": seen.incarnation,
                "reason": reason,
            },
            event_id=self._ids.mint(),
            now_ms=self._clock.now_ms(),
            producer=self._producer,
            prev_event_id=seen.last_event_id,
        )
        try:
            await self._log.append(
                event.stream_id, Record(events=(event,)), expected_version=seen.version
            )
            self._lost += 1
            _log.warning("worker %s (%s) is lost", worker_id, seen.incarnation)
        except VersionConflictError:
            _log.info("worker %s changed meanwhile", worker_id)
        except LogError as error:
            _log.warning("cannot declare %s lost yet: %s", worker_id, error)
            return
        self._workers.pop(worker_id, None)
