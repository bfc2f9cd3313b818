"""``fold(state, recorded) -> state``: the one reducer of conductor, projector, replay and audit.

Facts (a request, a completion, a cancel) wait in ``pending`` until a control record names their
position as consumed; only then do they change anything (P4). So live and replay see the same order
whatever arrived in between, and a fact delivered twice changes nothing. ``fold`` renders no
template and needs no playbook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from noetl_ray.dsl.merge import seed_variables
from noetl_ray.engine.continuing import begin, take_over
from noetl_ray.engine.fold_children import CHILD_FACTS, ask_child, child_ended
from noetl_ray.engine.fold_loops import (
    change_holder,
    close_stage,
    dispatch_frame,
    end_loop,
    frame_returned,
    iterated,
    open_reduce,
    open_stage,
    start_loop,
)
from noetl_ray.engine.remnant import is_remnant
from noetl_ray.engine.state import (
    CommandState,
    ExecutionState,
    HeldToken,
    PlaybookRef,
    StepState,
)
from noetl_ray.engine.variables import assign_variable
from noetl_ray.engine.waiting import needs_decision, park, resume
from noetl_ray.errors import InternalError
from noetl_ray.events.types import (
    EXECUTION_TERMINAL,
    INBOX_FACTS,
    TASK_RECORDS,
    AggregateType,
    EventType,
)
from noetl_ray.wal.subjects import parse_event_subject

if TYPE_CHECKING:
    from noetl_ray.events.envelope import Event
    from noetl_ray.wal.port import Recorded

CONSUMED_FACTS = frozenset(
    {
        EventType.EXECUTION_REQUESTED,
        *INBOX_FACTS,
        EventType.CALL_DONE,
        EventType.CALL_ERROR,
        EventType.FRAME_COMMITTED,
        EventType.FRAME_FAILED,
        *CHILD_FACTS,
    }
)
"""Facts that wait for a decision; what else happens to a command applies when it arrives."""
_ONLY_TOLD = frozenset({EventType.CHECKPOINT_COMMITTED, EventType.CALLBACK_IGNORED})
"""Events of a decision that change nothing."""


def fold(state: ExecutionState | None, recorded: Recorded) -> ExecutionState:
    """The state after one record. The given state is not changed; a known record gives it back."""
    events = recorded.record.events
    first = events[0]
    if state is None:
        state = empty_state(recorded)
    elif state.execution_id != first.execution_id:
        msg = f"record of execution {first.execution_id} folded into {state.execution_id}"
        raise InternalError(msg)
    if first.aggregate_type is AggregateType.EXECUTION:
        if recorded.position <= state.control_version:
            return state
        draft = state.draft()
        if not state.control_version and is_remnant(state, recorded):
            _take_remnant(draft, recorded)
        else:
            consume(draft, recorded.record.consumed)
            for event in events:
                apply_control(draft, event, recorded.position)
        draft.control_version = recorded.position
    else:
        if _is_known(state, first, recorded.position):
            return state
        draft = state.draft()
        _arrive(draft, recorded)
    note(draft, recorded)
    return draft


def _take_remnant(draft: ExecutionState, recorded: Recorded) -> None:
    """Know how it ended and what was asked for; the rest is in the archive."""
    draft.trimmed = True
    for position, events in draft.pending.items():
        for event in events:
            if event.event_type is EventType.EXECUTION_REQUESTED:
                _apply_fact(draft, event, position)
    draft.pending = {}
    for event in recorded.record.events:
        if event.event_type in EXECUTION_TERMINAL:
            apply_control(draft, event, recorded.position)


def empty_state(recorded: Recorded) -> ExecutionState:
    """The state before the first record of an execution."""
    event = recorded.record.events[0]
    parsed = parse_event_subject(recorded.subject)
    return ExecutionState(
        execution_id=event.execution_id,
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        shard=parsed.shard if parsed else 0,
    )


def consume(draft: ExecutionState, positions: tuple[int, ...]) -> None:
    """Apply pending facts in the order the decision took them."""
    for position in positions:
        events = draft.pending.pop(position, None)
        if events is None:
            msg = f"execution {draft.execution_id}: consumed position {position} was never seen"
            raise InternalError(msg)
        for event in events:
            _apply_fact(draft, event, position)


def apply_control(draft: ExecutionState, event: Event, position: int) -> None:
    """Apply one event of a decision to a draft."""
    payload = event.payload
    kind = event.event_type
    draft.control_event_id = event.event_id
    if draft.terminal:
        # A late event never moves an execution out of its end (PRJ-12).
        return
    if kind is EventType.PLAYBOOK_INITIALIZED:
        draft.status = "RUNNING"
        draft.started_at = event.event_time
        begin(draft, payload)
    elif kind is EventType.STEP_ENTER:
        _enter(draft, event)
    elif kind is EventType.COMMAND_ISSUED:
        _issue(draft, event, position)
    elif kind is EventType.STEP_EXIT:
        _exit(draft, event)
    elif kind is EventType.LOOP_STARTED:
        start_loop(draft, event)
    elif kind is EventType.LOOP_DONE:
        end_loop(draft, event)
    elif kind is EventType.STAGE_OPENED:
        (open_reduce if payload["kind"] == "reduce" else open_stage)(draft, event)
    elif kind is EventType.STAGE_CLOSED:
        close_stage(draft, event)
    elif kind is EventType.FRAME_DISPATCHED:
        dispatch_frame(draft, event, position)
    elif kind is EventType.EXECUTION_PAUSED:
        draft.status = "PAUSED"
    elif kind is EventType.EXECUTION_RESUMED:
        draft.status = "RUNNING"
    elif kind is EventType.CHILD_REQUESTED:
        ask_child(draft, event)
    elif kind is EventType.COMMAND_RESUMED:
        resume(draft, event)
    elif kind is EventType.PLAYBOOK_COMPLETED:
        _end(draft, event, "COMPLETED")
    elif kind is EventType.PLAYBOOK_FAILED:
        draft.error = payload["error"]
        _end(draft, event, "FAILED")
    elif kind is EventType.EXECUTION_CANCELLED:
        _end(draft, event, "CANCELLED")
    elif kind not in _ONLY_TOLD:
        msg = f"{kind} does not belong on a control subject"
        raise InternalError(msg)


def _is_known(state: ExecutionState, first: Event, position: int) -> bool:
    if position in state.pending:
        return True
    kind = first.aggregate_type
    match kind:
        case AggregateType.SUBMISSION:
            return state.root_event_id != 0
        case AggregateType.INBOX:
            return position <= state.inbox_version
        case AggregateType.COMMAND | AggregateType.FRAME | AggregateType.BUSINESS_OBJECT:
            # The issue precedes every record of its command, so an unknown command has ended. What
            # is said about an object stands in such a record, perhaps first.
            command = state.commands.get(first.command_id or "")
            return command is None or position <= command.version
        case AggregateType.PLAYBOOK | AggregateType.WORKER | AggregateType.SHARD:
            msg = f"a {kind} record belongs to no execution"
            raise InternalError(msg)
        case AggregateType.EXECUTION:
            msg = "control records are folded apart"
            raise InternalError(msg)
        case _:
            assert_never(kind)


def _arrive(draft: ExecutionState, recorded: Recorded) -> None:
    facts = []
    for event in recorded.record.events:
        if event.event_type is EventType.TASK_PARKED:
            park(draft, event, recorded.position)
            if needs_decision(event):
                facts.append(event)
        elif event.event_type in CONSUMED_FACTS:
            facts.append(event)
        elif event.event_type in (EventType.COMMAND_CLAIMED, EventType.COMMAND_RELEASED):
            _change_holder(draft, event)
        elif event.event_type in TASK_RECORDS:
            _advance(draft, event, recorded.position)
        elif event.aggregate_type is AggregateType.FRAME:
            change_holder(draft, event)
    command = draft.commands.get(recorded.record.events[0].command_id or "")
    if command is not None:
        draft.commands[command.command_id] = msgspec.structs.replace(
            command, version=recorded.position
        )
    if facts:
        draft.pending[recorded.position] = tuple(facts)
        first = facts[0]
        if first.event_type is EventType.EXECUTION_REQUESTED:
            draft.root_event_id = first.event_id
    if recorded.record.events[0].aggregate_type is AggregateType.INBOX:
        # What nobody consumes is known by this alone.
        draft.inbox_version = max(draft.inbox_version, recorded.position)


def _apply_fact(draft: ExecutionState, event: Event, position: int) -> None:
    payload = event.payload
    if event.event_type is EventType.EXECUTION_REQUESTED:
        draft.playbook = msgspec.convert(payload["playbook"], PlaybookRef)
        draft.workload = payload["workload"]
        draft.ctx = seed_variables(draft.workload)
        take_over(draft, payload)
        draft.project_id = payload["project_id"]
        draft.parent_execution_id = payload.get("parent_execution_id")
        draft.parent = payload.get("parent")
        draft.depth = payload.get("depth", 0)
        draft.idempotency_key = event.idempotency_key
        if event.payload_ref is not None:
            draft.workload_ref = msgspec.to_builtins(event.payload_ref)
    elif event.event_type is EventType.EXECUTION_CANCEL_REQUESTED:
        if draft.cancel_reason is None:
            draft.cancel_reason = str(payload["reason"])
            draft.cancel_cascade = bool(payload.get("cascade", True))
    elif event.event_type is EventType.CHILD_ENDED:
        child_ended(draft, event)
    elif event.event_type not in (EventType.TASK_PARKED, *INBOX_FACTS):
        _returned(draft, event)


def _returned(draft: ExecutionState, event: Event) -> None:
    """A command came back; its step's result is there, its exit is the decision's to make."""
    draft.commands.pop(event.command_id or "", None)
    if draft.terminal:
        return
    for key, value in event.payload.get("set", {}).items():
        assign_variable(draft.ctx, draft.workload, key, value)
    if event.aggregate_type is AggregateType.FRAME:
        frame_returned(draft, event)
        return
    name = event.payload["step"]
    if "index" in event.payload:
        iterated(draft, event)
        return
    draft.steps[name] = msgspec.structs.replace(
        draft.steps[name],
        result=event.payload["result"],
        error=event.payload.get("error"),
        rows=event.payload.get("rows"),
    )


def _change_holder(draft: ExecutionState, event: Event) -> None:
    command = draft.commands.get(event.command_id or "")
    if command is None:
        return
    changes: dict[str, Any] = {"last_event_id": event.event_id}
    if event.event_type is EventType.COMMAND_RELEASED:
        changes |= {"worker_id": None, "incarnation": None, "attempt": command.attempt + 1}
    else:
        changes |= {
            "worker_id": event.payload["worker_id"],
            "incarnation": event.payload["incarnation"],
            "attempt": int(event.payload.get("attempt", command.attempt)),
        }
    draft.commands[command.command_id] = msgspec.structs.replace(command, **changes)


def _advance(draft: ExecutionState, event: Event, position: int) -> None:
    """The holder of a command recorded how far its pipeline is."""
    command = draft.commands.get(event.command_id or "")
    if command is not None:
        draft.commands[command.command_id] = msgspec.structs.replace(
            command, last_event_id=event.event_id, recorded=position
        )


def _enter(draft: ExecutionState, event: Event) -> None:
    name = event.payload["step"]
    draft.held.pop(name, None)
    before = draft.steps.get(name)
    draft.steps[name] = StepState(
        status="running",
        visits=event.payload["visit"],
        result=before.result if before else None,
        entered_at=event.event_time,
    )


def _issue(draft: ExecutionState, event: Event, position: int) -> None:
    claim = event.payload.get("claim") or {}
    command_id = event.command_id or ""
    draft.commands[command_id] = CommandState(
        command_id=command_id,
        step=event.payload["step"],
        visit=event.payload["visit"],
        issued_position=position,
        issued_event_id=event.event_id,
        last_event_id=event.event_id,
        worker_id=claim.get("worker_id"),
        incarnation=claim.get("incarnation"),
    )
    loop = draft.loops.get(event.payload["step"])
    if loop is not None and "iteration" in event.payload:
        issued = event.payload["iteration"]["index"] + 1
        draft.loops[event.payload["step"]] = msgspec.structs.replace(loop, issued=issued)


def _exit(draft: ExecutionState, event: Event) -> None:
    payload = event.payload
    name = payload["step"]
    before = draft.steps.get(name)
    draft.steps[name] = StepState(
        status=payload["status"],
        visits=payload["visit"],
        result=before.result if before else None,
        error=before.error if before else None,
        rows=before.rows if before else None,
        entered_at=before.entered_at if before else None,
        exited_at=event.event_time,
    )
    draft.final_step = name
    for key, value in payload.get("set", {}).items():
        assign_variable(draft.ctx, draft.workload, key, value)
    for arc in payload.get("arcs", ()):
        _reach(draft, arc["step"], name)
        for key, value in arc.get("set", {}).items():
            assign_variable(draft.ctx, draft.workload, key, value)
    if payload["status"] == "failed":
        draft.steps[name] = msgspec.structs.replace(draft.steps[name], error=payload.get("error"))
        if payload.get("handled"):
            draft.failures_handled += 1
        elif draft.failed is None:
            draft.failed = payload.get("error") or {"message": "failed", "step": name}


def _reach(draft: ExecutionState, target: str, source: str) -> None:
    """An arc reached a step: it waits to start, unless it runs already and absorbs the token."""
    before = draft.steps.get(target)
    if before is not None and before.status == "running":
        return
    held = draft.held.get(target)
    sources = (*(held.sources if held else ()), source)
    draft.held[target] = HeldToken(step=target, sources=sources)


def _end(draft: ExecutionState, event: Event, status: Any) -> None:
    draft.status = status
    draft.ended_at = event.event_time
    draft.held = {}
    draft.loops = {}
    draft.due = {}
    for name, step in list(draft.steps.items()):
        if step.status == "running":
            draft.steps[name] = msgspec.structs.replace(
                step, status="cancelled", exited_at=event.event_time
            )
    if event.payload.get("final_step"):
        draft.final_step = event.payload["final_step"]


def note(draft: ExecutionState, recorded: Recorded) -> None:
    """Count a record in."""
    events = recorded.record.events
    draft.event_count += len(events)
    if recorded.position >= draft.position:
        draft.position = recorded.position
        draft.last_event_id = events[-1].event_id
