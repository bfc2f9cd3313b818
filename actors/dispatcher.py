"""Gets commands to workers.

Offers, the queue of commands nobody has room for, and taking them from the dead.

The queue is derived from state, so there is nothing in it to lose. A claim that was not part of the
decision is an append on the command's own subject, expecting the version its issue or last release
gave it (P16); the old holder's completion is then refused by the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from actors.backlog import BacklogTeller
from actors.messages import Offer, encode
from actors.stamp import command_event
from noetl_ray.engine.handover import OUTSIDE, handover, lease_ran_out, stage_of
from noetl_ray.errors import LogError, VersionConflictError
from noetl_ray.events.envelope import Event, Record
from noetl_ray.events.types import EventType
from noetl_ray.hints.port import Hints, offer_subject
from noetl_ray.wal.port import Log, Recorded
from noetl_ray.wal.subjects import command_subject, frame_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.fleet import Fleet
    from noetl_ray.clock import Clock
    from noetl_ray.engine.inputs import Claim
    from noetl_ray.engine.state import CommandState, ExecutionState
    from noetl_ray.ids import SnowflakeIds

_log = logging.getLogger(__name__)

RESEND_FIRST_S = 3.0
RESEND_MAX_S = 60.0
CLAIMS_AT_ONCE_MAX = 64
ISSUED_KEPT_MAX = 1_000
"""Issues of waiting commands kept in memory; those of longer queues are read from the log again."""


@dataclass(slots=True)
class _Sent:
    """When an offer was last sent, and how long to wait before sending it again."""

    at: float
    wait_s: float


@dataclass(slots=True)
class _Heard:
    """The newest version of a frame's subject, and when it was first seen here."""

    version: int
    at: float


class Dispatcher:
    """The commands of one conductor's executions on their way to workers."""

    def __init__(
        self,
        log: Log,
        hints: Hints,
        ids: SnowflakeIds,
        clock: Clock,
        *,
        fleet: Fleet,
        states: Mapping[int, ExecutionState],
        absorb: Callable[[Recorded], int],
        producer: str,
        lease_ms: int,
    ) -> None:
        self._log = log
        self._hints = hints
        self._ids = ids
        self._clock = clock
        self._fleet = fleet
        self._states = states
        self._absorb = absorb
        self._producer = producer
        self._lease_ms = lease_ms
        self._backlog = BacklogTeller(hints, producer)
        self._ready: deque[tuple[int, str]] = deque()
        self._queued: set[str] = set()
        self._kept: dict[str, Event] = {}
        self._sent: dict[str, _Sent] = {}
        self._heard: dict[str, _Heard] = {}
        self._claiming: dict[str, asyncio.Task[None]] = {}

    @property
    def waiting(self) -> int:
        """Commands nobody has room for."""
        return len(self._ready)

    def forget(self, command_id: str) -> None:
        """A command has ended."""
        self._sent.pop(command_id, None)
        self._heard.pop(command_id, None)
        self._kept.pop(command_id, None)

    def follow(self, before: ExecutionState | None, state: ExecutionState) -> None:
        """Count who holds what, now that a state has followed another."""
        for command_id, command in state.commands.items():
            if before is None or command_id not in before.commands:
                self._fleet.holds(command.worker_id, command_id)
        if before is not None:
            for command_id, command in before.commands.items():
                now = state.commands.get(command_id)
                moved = now is not None and now.version != command.version
                if now is None or (moved and not _holds(state, now, command.worker_id)):
                    self._fleet.release(command.worker_id, command_id)
                if now is not None and now.worker_id != command.worker_id:
                    self._fleet.holds(now.worker_id, command_id)
                if now is None or now.parked:
                    self.forget(command_id)

    def serve(self) -> None:
        """Begin to claim waiting commands for workers that have room; each has its own subject."""
        for _ in range(len(self._ready)):
            if len(self._claiming) >= CLAIMS_AT_ONCE_MAX:
                return
            execution_id, command_id = self._ready[0]
            state = self._states.get(execution_id)
            command = state.commands.get(command_id) if state else None
            claim = None
            if state is not None and state.status == "PAUSED":
                # Nothing of it begins; the sweep after the pause brings it back.
                state = None
            waits = command is not None and command.worker_id is None and not command.parked
            if state is not None and waits:
                claim = self._fleet.choose(command_id)
                if claim is None and command is not None and command.frame:
                    # A worker has less room for frames: what waits behind one may begin.
                    self._ready.rotate(-1)
                    continue
                if claim is None:
                    return
            self._ready.popleft()
            self._queued.discard(command_id)
            if state is not None and command is not None and claim is not None:
                task = asyncio.create_task(self._claim(state, command, claim, released=None))
                self._claiming[command_id] = task
                task.add_done_callback(partial(self._claimed, command_id))

    async def tell_backlog(self) -> None:
        """Say how many frames wait or are under way, for whoever scales."""
        await self._backlog.tell(self._states.values())

    async def stop(self) -> None:
        """Let go; state has everything."""
        tasks = list(self._claiming.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def offer(self, state: ExecutionState, command: CommandState, issued: Event) -> None:
        """Send a command to its holder, unless it has come back already."""
        if _returned(state, command):
            # A decision's ack can come after the completion it led to; offering now would name the
            # completion's own version and run the command again.
            return
        now = self._clock.monotonic()
        sent = self._sent.get(command.command_id)
        wait = min(sent.wait_s * 2, RESEND_MAX_S) if sent else RESEND_FIRST_S
        self._sent[command.command_id] = _Sent(at=now, wait_s=wait)
        offer = Offer(
            issued=issued,
            shard=state.shard,
            version=command.version,
            attempt=command.attempt,
            incarnation=command.incarnation or "",
            prev_event_id=command.last_event_id,
            lease_ms=self._lease_ms,
            sent_ms=self._clock.now_ms(),
            recorded=command.recorded,
            answer=command.answer,
        )
        subject = offer_subject(state.shard, command.worker_id or "")
        await self._hints.send(subject, encode(offer))

    async def hand_on(self, state: ExecutionState, command_id: str) -> None:
        """Bring a command that a decision lets go on to its worker, or into the queue."""
        command = state.commands.get(command_id)
        if command is None or command.parked:
            return
        if command.worker_id is None:
            self.enqueue(state.execution_id, command_id)
            self.serve()
        elif (issued := await self._issued(command)) is not None:
            await self.offer(state, command, issued)

    def enqueue(self, execution_id: int, command_id: str, issued: Event | None = None) -> None:
        """Let a command wait for room; it waits once. Who has its issue at hand gives it along."""
        if command_id not in self._queued:
            self._queued.add(command_id)
            self._ready.append((execution_id, command_id))
            if issued is not None and len(self._kept) < ISSUED_KEPT_MAX:
                self._kept[command_id] = issued

    def _claimed(self, command_id: str, task: asyncio.Task[None]) -> None:
        self._claiming.pop(command_id, None)
        if not task.cancelled() and task.exception() is not None:
            _log.error("claim of %s: %r", command_id, task.exception())

    async def _claim(
        self,
        state: ExecutionState,
        command: CommandState,
        claim: Claim | None,
        *,
        released: str | None,
    ) -> None:
        """Give a command to a worker by an append on its subject; a refusal means it moved on."""
        record = self._claim_record(state, command, claim, released)
        name = frame_subject if command.frame else command_subject
        subject = name(state.shard, state.scope, state.execution_id, command.command_id)
        last = record.events[-1].event_type if record.events else None
        if claim is not None and last is not EventType.FRAME_DISPATCHED and command.frame:
            self._fleet.release(claim.worker_id, command.command_id)
        if last is None:
            return
        try:
            position = await self._log.append(subject, record, expected_version=command.version)
        except LogError as error:
            if claim is not None:
                self._fleet.release(claim.worker_id, command.command_id)
            if not isinstance(error, VersionConflictError):
                _log.warning("claim of %s waits: %s", command.command_id, error)
                self.enqueue(state.execution_id, command.command_id)
            return
        self._absorb(
            Recorded(
                position=position, subject=subject, time_ms=self._clock.now_ms(), record=record
            )
        )
        state = self._states.get(state.execution_id, state)
        now = state.commands.get(command.command_id)
        if now is None:
            return
        if _returned(state, now):
            # A frame given up has its end in the log; the next decision takes it.
            return
        if now.worker_id is None:
            self.enqueue(state.execution_id, command.command_id)
            return
        issued = await self._issued(now)
        if issued is not None:
            await self.offer(state, now, issued)

    def _claim_record(
        self,
        state: ExecutionState,
        command: CommandState,
        claim: Claim | None,
        released: str | None,
    ) -> Record:
        stage = stage_of(state, command) if command.frame else None
        wanted: list[tuple[EventType, dict[str, Any]]] = []
        attempt = command.attempt
        if stage is not None:
            wanted = handover(stage, command, claim, released, self._clock.now_ms())
            attempt += released is not None
        elif command.frame:
            # The stage is gone, so the execution has ended: nobody is to take the frame on.
            return Record(events=())
        elif released is not None:
            wanted.append(
                (
                    EventType.COMMAND_RELEASED,
                    {
                        "reason": released,
                        "worker_id": command.worker_id,
                        "incarnation": command.incarnation,
                        "attempt": attempt + 1,
                    },
                )
            )
            attempt += 1
        if claim is not None and not command.frame:
            wanted.append(
                (
                    EventType.COMMAND_CLAIMED,
                    {
                        "worker_id": claim.worker_id,
                        "incarnation": claim.incarnation,
                        "lease_ms": claim.lease_ms,
                        "distance": claim.distance,
                        "attempt": attempt,
                    },
                )
            )
        events: list[Event] = []
        prev = command.last_event_id
        for kind, payload in wanted:
            event = command_event(
                kind,
                payload,
                scope=state.scope,
                shard=state.shard,
                execution_id=state.execution_id,
                command_id=command.command_id,
                attempt=attempt,
                event_id=self._ids.mint(),
                now_ms=self._clock.now_ms(),
                producer=self._producer,
                prev_event_id=prev,
                stage_id=stage.stage_id if stage is not None else None,
            )
            prev = event.event_id
            events.append(event)
        return Record(events=tuple(events))

    async def _issued(self, command: CommandState) -> Event | None:
        kept = self._kept.pop(command.command_id, None)
        if kept is not None:
            return kept
        recorded = await self._log.get(command.issued_position)
        if recorded is None:
            return None
        for event in recorded.record.events:
            if event.command_id == command.command_id and event.payload.get("playbook_digest"):
                return event
        return None

    async def look_after(self, state: ExecutionState) -> None:
        """Take commands from the dead, and send again what may have been lost.

        Of a paused execution nothing begins, not even anew; it is looked after when it goes on.
        """
        if state.status == "PAUSED":
            return
        for command in list(state.commands.values()):
            if command.command_id in self._claiming or _returned(state, command):
                continue
            if command.parked:
                # Nobody holds it until a decision lets it go on.
                continue
            if command.worker_id is None:
                self.enqueue(state.execution_id, command.command_id)
                continue
            alive = command.incarnation == OUTSIDE or self._fleet.alive(
                command.worker_id, command.incarnation
            )
            if not alive or self._ran_out(state, command):
                what = "let the lease run out" if alive else "is gone"
                reason = f"{command.worker_id} ({command.incarnation}) {what}"
                claim = self._fleet.choose(command.command_id)
                await self._claim(state, command, claim, released=reason)
            elif command.incarnation != OUTSIDE:
                await self._resend(state, command)

    def _ran_out(self, state: ExecutionState, command: CommandState) -> bool:
        """Whether nobody has spoken for a frame within its lease.

        By this process's own clock, from the moment it saw the last word: two clocks that disagree
        by more than a lease would else take every frame away as soon as it is given out.
        """
        stage = stage_of(state, command) if command.frame else None
        if stage is None:
            return False
        if command.incarnation == OUTSIDE:
            # Its claim says how long, not the policy.
            return lease_ran_out(command, self._clock.now_ms())
        now = self._clock.monotonic()
        heard = self._heard.get(command.command_id)
        if heard is None or heard.version != command.version:
            self._heard[command.command_id] = _Heard(version=command.version, at=now)
            return False
        return now - heard.at > stage.policy.lease_seconds

    async def _resend(self, state: ExecutionState, command: CommandState) -> None:
        now = self._clock.monotonic()
        sent = self._sent.get(command.command_id)
        if sent is not None and now - sent.at < sent.wait_s:
            return
        issued = await self._issued(command)
        if issued is not None:
            await self.offer(state, command, issued)


def _returned(state: ExecutionState, command: CommandState) -> bool:
    """Whether a completion waits to be consumed."""
    return any(
        event.command_id == command.command_id
        for events in state.pending.values()
        for event in events
    )


def _holds(state: ExecutionState, command: CommandState, worker_id: str | None) -> bool:
    """Whether a worker still has a command; a record of one of its tasks changes nothing."""
    return command.worker_id == worker_id and not _returned(state, command)
