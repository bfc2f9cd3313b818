"""The conductor: owns shards, folds what the log says, decides, and offers commands to workers.

One append in flight per execution (P2); the version check on the control subject is the fence (P3).
A refused append is simply dropped: the record that won is on its way through the subscription, and
the next decision starts from it. Everything sent outside the log is a hint that is sent again from
state if lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from actors.beginning import Beginnings
from actors.checkpointer import Checkpointer
from actors.deciding import ConductorPorts, Deciding
from actors.dispatcher import Dispatcher
from actors.family import SAID_TO_FAMILY, Family
from actors.fleet import Fleet
from actors.messages import CANCEL, Nudge, encode
from actors.shard_states import OwnedShards
from actors.timers import Timers
from noetl_ray.engine.fold import fold
from noetl_ray.engine.inputs import accepted
from noetl_ray.engine.state import wants_decision
from noetl_ray.errors import EnvelopeError, NoetlError, VersionConflictError
from noetl_ray.events.types import EventType
from noetl_ray.hints.port import SHARDS
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.subjects import control_subject

if TYPE_CHECKING:
    from actors.shard_owner import ShardOwner
    from noetl_ray.engine.inputs import Decision
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.events.envelope import Event, Record
    from placement.offer import Place

_log = logging.getLogger(__name__)

TURN_S = 0.25
KEEP_S = 3.0
ENDED_MAX = 50_000
SWEEP_S = 1.0
RETRY_S = 0.5


class Conductor:
    """Drives every execution of its shards."""

    name = "conductor"

    def __init__(
        self,
        ports: ConductorPorts,
        *,
        owner: ShardOwner,
        producer: str,
        near: Place,
        lease_ms: int,
        checkpoint_ms: int = 1_000,
    ) -> None:
        self._p = ports
        self._owner = owner
        self._producer = producer
        self._fleet = Fleet(near, lease_ms, ports.clock.monotonic)
        self._states: dict[int, ExecutionState] = {}
        self._dispatcher = Dispatcher(
            ports.log,
            ports.hints,
            ports.ids,
            ports.clock,
            fleet=self._fleet,
            states=self._states,
            absorb=self._absorb,
            producer=producer,
            lease_ms=lease_ms,
        )
        self._deciding = Deciding(ports, self._fleet, producer)
        self._beginnings = Beginnings(
            self._fleet, ports.clock.monotonic, lambda: len(self._driving)
        )
        self._family = Family(ports.submit)
        self._checkpointer = self._new_checkpointer(checkpoint_ms)
        self._owned = OwnedShards(
            ports.log, self._checkpointer, absorb=self._absorb, restore=self._restore
        )
        self._leases = -1
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._driving: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self._timers = Timers()
        self._swept_at = 0.0
        self._decisions = 0
        self._refused = 0
        self._position = 0
        self._replaying = True

    def _new_checkpointer(self, interval_ms: int) -> Checkpointer | None:
        ports = self._p
        if ports.checkpoints is None:
            return None
        return Checkpointer(
            ports.checkpoints,
            ports.log,
            ports.ids,
            ports.clock,
            producer=self._producer,
            owner=self._owner.name,
            interval_ms=interval_ms,
            states=self._states,
            reached=lambda: self._owned.delivered,
        )

    async def start(self) -> None:
        """Take up the owned shards where they are kept, then everything that is open."""
        shards = await self._owner.start()
        self._leases = self._owner.generation
        await self._owned.start(shards)
        self._replaying = False
        await self._take_up_open()

    async def step(self) -> None:
        """Take what the log brings, decide what follows, look after what is open."""
        batch = await self._owned.next_batch(TURN_S)
        for recorded in batch:
            execution_id = self._absorb(recorded)
            if execution_id:
                self._kick(execution_id)
                last = recorded.record.events[-1]
                if last.event_type is EventType.EXECUTION_CANCELLED:
                    # Whoever decided it has nudged the workers; a second nudge costs nothing (P23).
                    await self._p.hints.send(CANCEL, encode(Nudge(execution_id=execution_id)))
        self._owned.passed()
        now_ms = self._p.clock.now_ms()
        for execution_id in (*self._beginnings.due(), *self._timers.due(now_ms)):
            self._kick(execution_id)
        self._dispatcher.serve()
        if self._checkpointer is not None:
            self._checkpointer.turn()
        if self._owner.generation != self._leases:
            await self._follow_leases()
        if self._p.clock.monotonic() - self._swept_at > SWEEP_S:
            await self._sweep()

    async def _follow_leases(self) -> None:
        """Take up the shards that came to us, and let go of those that went."""
        self._owner.check()
        self._leases = self._owner.generation
        leased = dict(self._owner.held)
        gone = [shard for shard in self._owned if leased.get(shard) != self._owned.epochs[shard]]
        if gone:
            await self._let_go(gone)
        elif self._owner.parting:
            # Let go before, but the table could not be told.
            await self._owner.parted(list(self._owner.parting))
        gained = {shard: epoch for shard, epoch in leased.items() if shard not in self._owned}
        if gained:
            self._replaying = True
            await self._owned.gain(gained)
            self._replaying = False
            await self._take_up_open()

    async def _let_go(self, shards: list[int]) -> None:
        """Keep what is known of shards for whoever has them next, and drop it here."""
        parting = [shard for shard in shards if shard in self._owner.parting]
        if self._checkpointer is not None:
            # Only those given away: of those taken away the new owner knows more.
            await self._keep(parting)
            self._checkpointer.forget(shards)
        gone = set(shards)
        for execution_id, state in list(self._states.items()):
            if state.shard in gone:
                self._drop(execution_id, state)
        await self._owned.lose(shards)
        await self._owner.parted(parting)

    async def _keep(self, shards: list[int]) -> None:
        """Save shards before they go, unless that takes longer than folding them again."""
        if self._checkpointer is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEEP_S):
                    await self._checkpointer.save(shards)

    async def _take_up_open(self) -> None:
        for execution_id in list(self._states):
            self._kick(execution_id)
        await self._sweep()

    async def stop(self) -> None:
        """Let go; the log has everything."""
        tasks = list(self._driving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._dispatcher.stop()
        await self._family.stop()
        if self._checkpointer is not None:
            await self._keep(list(self._owned))
            await self._checkpointer.stop()
        await self._owned.close()
        await self._owner.stop()

    def summary(self) -> dict[str, Any]:
        """What it owns and has done."""
        return {
            "shards": list(self._owned),
            "owner": self._owner.summary(),
            "open_executions": len(self._states),
            "waiting_to_begin": len(self._beginnings),
            "waiting_commands": self._dispatcher.waiting,
            "parked_executions": len(self._timers),
            "workers": len(self._fleet),
            "decisions": self._decisions,
            "refused": self._refused,
            "position": self._position,
            "replayed": self._owned.replayed,
            "checkpoints": self._checkpointer.summary() if self._checkpointer else {},
        }

    async def _sweep(self) -> None:
        """Look at everything open, whether or not a message said so."""
        self._swept_at = self._p.clock.monotonic()
        await self._dispatcher.tell_backlog()
        await self._p.hints.send(SHARDS, encode(self._owned.word(self._owner.name)))
        for state in list(self._states.values()):
            self._kick(state.execution_id)
            await self._dispatcher.look_after(state)
        self._family.look_after(self._states.values())

    def state(self, execution_id: int) -> ExecutionState | None:
        """The live state of an open execution."""
        return self._states.get(execution_id)

    # What the log says

    def _absorb(self, recorded: Recorded) -> int:
        """Fold one record; the execution it belongs to, or 0."""
        self._position = max(self._position, recorded.position)
        first = recorded.record.events[0]
        if first.execution_id == 0:
            for event in recorded.record.events:
                self._fleet.observe(event)
            # A new incarnation may mean an old one is gone: look at once, not at the next sweep.
            self._swept_at = 0.0
            return 0
        execution_id = first.execution_id
        if execution_id in self._ended:
            return 0
        before = self._states.get(execution_id)
        if before is None and first.event_type is not EventType.EXECUTION_REQUESTED:
            return 0
        after = fold(before, recorded)
        if after is not before:
            # What ended before this process began is its relatives' to find out.
            end = None if self._replaying else recorded.record.events[-1]
            self._take(execution_id, after, end)
        return execution_id

    def _restore(self, state: ExecutionState) -> None:
        """Take a state out of a checkpoint; nothing of it needs saving again."""
        self._ended.pop(state.execution_id, None)
        self._hold(state.execution_id, state)

    def _take(self, execution_id: int, state: ExecutionState, end: Event | None) -> None:
        if self._checkpointer is not None:
            self._checkpointer.touch(state)
        self._hold(execution_id, state)
        if state.terminal and end is not None:
            self._family.ended(state, end)

    def _hold(self, execution_id: int, state: ExecutionState) -> None:
        before = self._states.get(execution_id)
        self._dispatcher.follow(before, state)
        if state.terminal:
            self._forget(execution_id, state)
        else:
            self._states[execution_id] = state
            if state.due or (before is not None and before.due):
                self._timers.note(state)
            if before is not None and before.status == "PAUSED" and state.status == "RUNNING":
                # What waited through the pause is looked at now, not at the next sweep.
                self._swept_at = 0.0

    def _forget(self, execution_id: int, state: ExecutionState) -> None:
        self._drop(execution_id, state)
        self._ended[execution_id] = None
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def _drop(self, execution_id: int, state: ExecutionState) -> None:
        """Keep nothing in memory about an execution."""
        self._states.pop(execution_id, None)
        self._deciding.forget(execution_id)
        self._beginnings.forget(execution_id)
        self._timers.forget(execution_id)
        for command in state.commands.values():
            self._fleet.release(command.worker_id, command.command_id)
            self._dispatcher.forget(command.command_id)

    # Deciding

    def _kick(self, execution_id: int) -> None:
        """Drive an execution, or note that it must be looked at again."""
        if execution_id in self._driving:
            self._again.add(execution_id)
            return
        state = self._states.get(execution_id)
        now_ms = self._p.clock.now_ms()
        if state is None or not wants_decision(state, now_ms) or self._beginnings.holds_back(state):
            return
        task = asyncio.create_task(self._drive(execution_id))
        self._driving[execution_id] = task
        task.add_done_callback(lambda _t: self._driven(execution_id, _t))

    def _driven(self, execution_id: int, task: asyncio.Task[None]) -> None:
        self._driving.pop(execution_id, None)
        self._beginnings.settled(execution_id)
        if not task.cancelled() and task.exception() is not None:
            _log.error("execution %s: %r", execution_id, task.exception())
        if execution_id in self._again:
            self._again.discard(execution_id)
            self._kick(execution_id)

    async def _drive(self, execution_id: int) -> None:
        while True:
            state = self._states.get(execution_id)
            if state is None or not wants_decision(state, self._p.clock.now_ms()):
                return
            decision: Decision | None = None
            try:
                decision = await self._deciding.decide(state)
                if decision is None:
                    return
                record = await self._deciding.externalize(state, decision)
                subject = control_subject(state.shard, state.scope, execution_id)
                position = await self._p.log.append(
                    subject, record, expected_version=state.control_version
                )
            except VersionConflictError:
                # Another owner decided first; its record reaches us through the subscription.
                self._refused += 1
                self._undo(execution_id, decision)
                return
            except EnvelopeError as error:
                # Too much for one message: take fewer facts at once.
                self._undo(execution_id, decision)
                self._deciding.take_less(execution_id)
                _log.warning("execution %s: %s", execution_id, error)
                await self._p.clock.sleep(RETRY_S)
                continue
            except NoetlError as error:
                self._undo(execution_id, decision)
                _log.warning("execution %s waits: %s", execution_id, error)
                await self._p.clock.sleep(RETRY_S)
                continue
            self._decisions += 1
            current = self._states.get(execution_id)
            if current is None:
                return
            recorded = Recorded(
                position=position, subject=subject, time_ms=self._p.clock.now_ms(), record=record
            )
            if current is state and record is decision.record:
                after = accepted(decision.state, recorded)
            else:
                after = fold(current, recorded)
            self._take(execution_id, after, record.events[-1])
            await self._dispatch(after, record)

    def _undo(self, execution_id: int, decision: Decision | None) -> None:
        """Give back the room taken by a decision that did not get into the log."""
        state = self._states.get(execution_id)
        commands = state.commands if state else {}
        for event in decision.record.events if decision else ():
            claim = event.payload.get("claim") if event.command_id else None
            if claim and event.command_id not in commands:
                self._fleet.release(claim["worker_id"], event.command_id or "")

    async def _dispatch(self, state: ExecutionState, record: Record) -> None:
        for event in record.events:
            if event.event_type in (EventType.COMMAND_ISSUED, EventType.FRAME_DISPATCHED):
                command = state.commands.get(event.command_id or "")
                if command is not None and command.worker_id is not None:
                    await self._dispatcher.offer(state, command, event)
                elif command is not None:
                    self._dispatcher.enqueue(state.execution_id, command.command_id, event)
            elif event.event_type is EventType.COMMAND_RESUMED:
                await self._dispatcher.hand_on(state, event.command_id or "")
            elif event.event_type is EventType.EXECUTION_CANCELLED:
                nudge = Nudge(execution_id=state.execution_id)
                await self._p.hints.send(CANCEL, encode(nudge))
            if event.event_type in SAID_TO_FAMILY:
                await self._family.decided(state, event)
