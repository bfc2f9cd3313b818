"""The conductor: owns shards, folds what the log says, decides, and offers commands to workers.

One append in flight per execution (P2); the version check on the control subject is the fence (P3).
A refused append is simply dropped: the record that won is on its way through the subscription, and
the next decision starts from it. Everything sent outside the log is a hint that is sent again from
state if lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from actors.contexts import ContextStore
from actors.dispatcher import Dispatcher
from actors.fleet import Fleet
from actors.messages import CANCEL, Nudge, encode
from actors.programs import Programs
from noetl_ray.clock import Clock
from noetl_ray.engine.decide import decide
from noetl_ray.engine.fold import fold
from noetl_ray.engine.inputs import Decision, Inputs
from noetl_ray.errors import NoetlError, VersionConflictError
from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import Event, PayloadRef, Record, seal
from noetl_ray.events.types import EventType
from noetl_ray.hints.port import Hints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.results.redact import has_credentials, mask_marked
from noetl_ray.wal.port import Log, Recorded, Subscription
from noetl_ray.wal.subjects import control_subject, shard_filter

if TYPE_CHECKING:
    from noetl_ray.engine.state import ExecutionState
    from placement.offer import Place

_log = logging.getLogger(__name__)

BATCH_MAX = 512
TURN_S = 0.25
QUIET_S = 0.2
CONTEXT_INLINE_MAX_BYTES = 48_000
CONTEXTS_INLINE_MAX_BYTES = 400_000
"""Contexts of one decision together, so that a wide fan-out fits one message."""
ENDED_MAX = 50_000
SWEEP_S = 1.0
RETRY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConductorPorts:
    """What a conductor works with."""

    log: Log
    hints: Hints
    programs: Programs
    contexts: ContextStore
    ids: SnowflakeIds
    clock: Clock
    env: Mapping[str, str]


class Conductor:
    """Drives every execution of its shards."""

    name = "conductor"

    def __init__(
        self,
        ports: ConductorPorts,
        *,
        shards: Sequence[int],
        producer: str,
        near: Place,
        lease_ms: int,
    ) -> None:
        self._p = ports
        self._shards = frozenset(shards)
        self._producer = producer
        self._fleet = Fleet(near, lease_ms)
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
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._workloads: dict[int, dict[str, Any]] = {}
        self._driving: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self._subscription: Subscription | None = None
        self._swept_at = 0.0
        self._decisions = 0
        self._refused = 0
        self._position = 0

    async def start(self) -> None:
        """Replay the log of the owned shards, then take up everything that is open."""
        filters = [*(shard_filter(s) for s in sorted(self._shards)), "noetl.system.worker.>"]
        self._subscription = await self._p.log.subscribe(filters)
        target = await self._p.log.last_position()
        while self._position < target:
            batch = await self._subscription.next_batch(BATCH_MAX, QUIET_S)
            if not batch:
                break
            for recorded in batch:
                self._absorb(recorded)
        for execution_id in list(self._states):
            self._kick(execution_id)
        await self._sweep()

    async def step(self) -> None:
        """Take what the log brings, decide what follows, look after what is open."""
        assert self._subscription is not None
        batch = await self._subscription.next_batch(BATCH_MAX, TURN_S)
        for recorded in batch:
            execution_id = self._absorb(recorded)
            if execution_id:
                self._kick(execution_id)
        self._dispatcher.serve()
        if self._p.clock.monotonic() - self._swept_at > SWEEP_S:
            await self._sweep()

    async def stop(self) -> None:
        """Let go; the log has everything."""
        tasks = list(self._driving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._dispatcher.stop()
        if self._subscription is not None:
            await self._subscription.close()

    def summary(self) -> dict[str, Any]:
        """What it owns and has done."""
        return {
            "shards": sorted(self._shards),
            "open_executions": len(self._states),
            "waiting_commands": self._dispatcher.waiting,
            "workers": len(self._fleet),
            "decisions": self._decisions,
            "refused": self._refused,
            "position": self._position,
        }

    async def _sweep(self) -> None:
        """Look at everything open, whether or not a message said so."""
        self._swept_at = self._p.clock.monotonic()
        for state in list(self._states.values()):
            self._kick(state.execution_id)
            await self._dispatcher.look_after(state)

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
        self._take(execution_id, fold(before, recorded))
        return execution_id

    def _take(self, execution_id: int, state: ExecutionState) -> None:
        before = self._states.get(execution_id)
        for command_id, command in state.commands.items():
            if before is None or command_id not in before.commands:
                self._fleet.holds(command.worker_id, command_id)
        if before is not None:
            for command_id, command in before.commands.items():
                now = state.commands.get(command_id)
                if now is None or (state.pending and now.version != command.version):
                    self._fleet.release(command.worker_id, command_id)
                if now is None:
                    self._dispatcher.forget(command_id)
        if state.terminal:
            self._forget(execution_id, state)
        else:
            self._states[execution_id] = state

    def _forget(self, execution_id: int, state: ExecutionState) -> None:
        self._states.pop(execution_id, None)
        self._workloads.pop(execution_id, None)
        for command in state.commands.values():
            self._fleet.release(command.worker_id, command.command_id)
            self._dispatcher.forget(command.command_id)
        self._ended[execution_id] = None
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    # Deciding

    def _kick(self, execution_id: int) -> None:
        """Drive an execution, or note that it must be looked at again."""
        if execution_id in self._driving:
            self._again.add(execution_id)
            return
        state = self._states.get(execution_id)
        if state is None or not (state.pending or state.held):
            return
        task = asyncio.create_task(self._drive(execution_id))
        self._driving[execution_id] = task
        task.add_done_callback(lambda _t: self._driven(execution_id, _t))

    def _driven(self, execution_id: int, task: asyncio.Task[None]) -> None:
        self._driving.pop(execution_id, None)
        if not task.cancelled() and task.exception() is not None:
            _log.error("execution %s: %r", execution_id, task.exception())
        if execution_id in self._again:
            self._again.discard(execution_id)
            self._kick(execution_id)

    async def _drive(self, execution_id: int) -> None:
        while True:
            state = self._states.get(execution_id)
            if state is None or not (state.pending or state.held):
                return
            decision: Decision | None = None
            try:
                decision = await self._decide(state)
                if decision is None:
                    return
                record = await self._externalize(state, decision.record)
                subject = control_subject(state.shard, state.scope, execution_id)
                position = await self._p.log.append(
                    subject, record, expected_version=state.control_version
                )
            except VersionConflictError:
                # Another owner decided first; its record reaches us through the subscription.
                self._refused += 1
                self._undo(execution_id, decision)
                return
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
            after = fold(current, recorded)
            self._take(execution_id, after)
            await self._dispatch(after, record)

    async def _decide(self, state: ExecutionState) -> Decision | None:
        digest = _playbook_digest(state)
        program = self._p.programs.cached(state.scope, digest)
        if program is None:
            program = await self._p.programs.get(state.scope, digest)
            state = self._states.get(state.execution_id, state)
        inputs = Inputs(
            now_ms=self._p.clock.now_ms(),
            producer=self._producer,
            mint=self._p.ids.mint,
            assign=self._fleet.choose,
            env=self._p.env,
            workload=await self._workload(state),
        )
        return decide(state, program, inputs)

    async def _workload(self, state: ExecutionState) -> dict[str, Any] | None:
        """The merged workload, when the request keeps it outside the log."""
        ref = _workload_ref(state)
        if ref is None:
            return None
        known = self._workloads.get(state.execution_id)
        if known is None:
            known = await self._p.contexts.load(state.scope, ref)
            self._workloads[state.execution_id] = known
        return known

    async def _externalize(self, state: ExecutionState, record: Record) -> Record:
        """Move contexts that are large or hold a secret out of the log (P6, P24, SEC-1)."""
        events = list(record.events)
        changed = False
        inline = 0
        for index, event in enumerate(events):
            if event.event_type is EventType.STEP_EXIT and has_credentials(event.payload):
                events[index] = _without_secrets(event)
                changed = True
            if event.event_type is not EventType.COMMAND_ISSUED:
                continue
            context = event.payload["context"]
            if not any(context.values()):
                continue
            data = canonical_json(context)
            room = min(CONTEXT_INLINE_MAX_BYTES, CONTEXTS_INLINE_MAX_BYTES - inline)
            if len(data) <= room and not has_credentials(context):
                inline += len(data)
                continue
            ref = await self._p.contexts.put(state.scope, data)
            events[index] = seal(
                msgspec.structs.replace(
                    event, payload=event.payload | {"context": {}}, payload_ref=ref
                )
            )
            changed = True
        return Record(events=tuple(events), consumed=record.consumed) if changed else record

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
            if event.event_type is EventType.COMMAND_ISSUED:
                command = state.commands.get(event.command_id or "")
                if command is not None and command.worker_id is not None:
                    await self._dispatcher.offer(state, command, event)
                elif command is not None:
                    self._dispatcher.enqueue(state.execution_id, command.command_id, event)
            elif event.event_type is EventType.EXECUTION_CANCELLED:
                nudge = Nudge(execution_id=state.execution_id)
                await self._p.hints.send(CANCEL, encode(nudge))


def _without_secrets(event: Event) -> Event:
    """A step's exit whose `set` keeps no credential: the log would hold it for ever (SEC-1)."""
    payload, marked = mask_marked(event.payload)
    warning = f"not kept, they look like credentials: {', '.join(sorted(marked))}"
    warnings = [*payload.get("warnings", ()), warning]
    return seal(msgspec.structs.replace(event, payload=payload | {"warnings": warnings}))


def _request(state: ExecutionState) -> Event | None:
    for events in state.pending.values():
        for event in events:
            if event.event_type is EventType.EXECUTION_REQUESTED:
                return event
    return None


def _playbook_digest(state: ExecutionState) -> str:
    if state.playbook is not None:
        return state.playbook.digest
    request = _request(state)
    return str(request.payload["playbook"]["digest"]) if request else ""


def _workload_ref(state: ExecutionState) -> PayloadRef | None:
    if state.workload_ref is not None:
        return msgspec.convert(state.workload_ref, PayloadRef)
    request = _request(state)
    return request.payload_ref if request else None
