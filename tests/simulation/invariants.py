"""What must hold of any log, whatever happened while it was written (architecture, section 5)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from noetl_ray.engine.fold import fold
from noetl_ray.engine.state import MANIFEST_TIER, ExecutionState
from noetl_ray.events.envelope import Event, check_envelope, checksum_of
from noetl_ray.events.types import (
    COMMAND_TERMINAL,
    EXECUTION_TERMINAL,
    FRAME_TERMINAL,
    AggregateType,
    EventType,
)
from noetl_ray.readmodel.objects import object_row
from noetl_ray.readmodel.records import BusinessObjectRow
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.port import Recorded


def records(log: MemoryLog) -> list[Recorded]:
    """Everything the log holds, in order."""
    return [r for r in log._records if r is not None]


def folded(log: MemoryLog) -> dict[int, ExecutionState]:
    """The state of every execution, from the log alone."""
    return fold_all(records(log))


def fold_all(given: Iterable[Recorded]) -> dict[int, ExecutionState]:
    """The state of every execution in these records."""
    states: dict[int, ExecutionState] = {}
    for recorded in given:
        execution_id = recorded.record.events[0].execution_id
        if execution_id:
            states[execution_id] = fold(states.get(execution_id), recorded)
    return states


def check_log(log: MemoryLog) -> list[str]:
    """Everything wrong with a log; empty when all holds."""
    return check_records(records(log))


def check_records(given: Iterable[Recorded]) -> list[str]:
    """Everything wrong with these records of whole executions, whatever log they come from."""
    wrong: list[str] = []
    by_execution: dict[int, list[Event]] = defaultdict(list)
    ids: Counter[int] = Counter()
    for recorded in given:
        wrong += _check_objects(recorded)
        for event in recorded.record.events:
            ids[event.event_id] += 1
            check_envelope(event)
            if checksum_of(event) != event.envelope_checksum:
                wrong.append(f"checksum of {event.event_id}")
            if event.execution_id:
                by_execution[event.execution_id].append(event)
    wrong += [f"event id {i} stands {n} times" for i, n in ids.items() if n > 1]
    for execution_id, events in by_execution.items():
        wrong += _check_execution(execution_id, events)
    return wrong


def _check_objects(recorded: Recorded) -> list[str]:
    """What is said about an object stands in the record that ends the command it comes from."""
    events = recorded.record.events
    ends = COMMAND_TERMINAL | FRAME_TERMINAL
    ended = {e.command_id for e in events if e.event_type in ends}
    return [
        f"{event.command_id} speaks of {event.aggregate_id} outside its end"
        for event in events
        if event.event_type is EventType.BUSINESS_OBJECT_RECORDED and event.command_id not in ended
    ]


def objects_said(log: MemoryLog) -> list[BusinessObjectRow]:
    """Every statement about a business object in a log."""
    found = [
        object_row(event, recorded.position, ordinal)
        for recorded in records(log)
        for ordinal, event in enumerate(recorded.record.events)
    ]
    return [row for row in found if row is not None]


def _check_execution(execution_id: int, events: list[Event]) -> list[str]:
    wrong: list[str] = []
    known = {event.event_id for event in events}
    roots = [e for e in events if e.prev_event_id is None]
    dangling = [e for e in events if e.prev_event_id is not None and e.prev_event_id not in known]
    if len(roots) != 1 or roots[0].event_type is not EventType.EXECUTION_REQUESTED:
        wrong.append(f"{execution_id}: {len(roots)} roots")
    if dangling:
        wrong.append(f"{execution_id}: {len(dangling)} dangling links")
    ends = [e for e in events if e.event_type in EXECUTION_TERMINAL]
    if len(ends) != 1:
        wrong.append(f"{execution_id}: {len(ends)} ends")
    issued = Counter(e.command_id for e in events if e.event_type is EventType.COMMAND_ISSUED)
    ended = Counter(e.command_id for e in events if e.event_type in COMMAND_TERMINAL)
    minted = Counter(
        e.frame_id
        for e in events
        if e.event_type is EventType.FRAME_DISPATCHED
        and e.aggregate_type is AggregateType.EXECUTION
    )
    ended += Counter(e.frame_id for e in events if e.event_type in FRAME_TERMINAL)
    issued += minted
    wrong += [f"{c}: issued {n} times" for c, n in issued.items() if n > 1]
    opened = Counter(e.stage_id for e in events if e.event_type is EventType.STAGE_OPENED)
    closed = Counter(e.stage_id for e in events if e.event_type is EventType.STAGE_CLOSED)
    wrong += [f"stage {s} opened {n} times" for s, n in opened.items() if n > 1]
    wrong += _lineage(events)
    wrong += [f"{c}: {n} ends" for c, n in ended.items() if n > 1]
    cancelled = any(e.event_type is EventType.EXECUTION_CANCELLED for e in events)
    if not cancelled:
        wrong += [f"stage {s} closed {closed[s]} times" for s in opened if closed[s] != 1]
        wrong += [f"{c}: never ended" for c in issued if not ended[c]]
    entered = Counter(
        (e.payload["step"], e.payload["visit"])
        for e in events
        if e.event_type is EventType.STEP_ENTER
    )
    wrong += [f"{execution_id}: {key} entered {n} times" for key, n in entered.items() if n > 1]
    return wrong


def _lineage(events: list[Event]) -> list[str]:
    """Frames of each stage are one tree (FRM-3); who has no frame is over nothing, or broken."""
    roots: Counter[str | None] = Counter()
    known: set[str | None] = {None}
    wrong = []
    for event in events:
        if event.event_type is EventType.FRAME_DISPATCHED and "parent_frame_id" in event.payload:
            parent = event.payload["parent_frame_id"]
            roots[event.stage_id] += parent is None
            if parent not in known:
                wrong.append(f"frame {event.frame_id} has the unknown parent {parent}")
            known.add(event.frame_id)
    wrong += [f"stage {stage} has {n} root frames" for stage, n in roots.items() if n != 1]
    for event in events:
        if event.event_type is EventType.STAGE_CLOSED and event.stage_id not in roots:
            stats = event.payload["stats"]
            if event.payload["status"] == "COMPLETED" and stats.get("total", 1):
                wrong.append(f"stage {event.stage_id} closed without a frame")
    return wrong


def frames_of(result: dict[str, object] | None) -> object:
    """Rows a cursor loop worked off, and how many failed; None for any other result."""
    if (result or {}).get("tier") == MANIFEST_TIER:
        # What items give does not depend on timing, how they were cut into ranges does.
        return dict(result["stats"])  # type: ignore[index,call-overload]
    value = (result or {}).get("extracted")
    if not isinstance(value, dict) or "frame_count" not in value:
        return None
    return value["processed"], value["failed"]


def trace(state: ExecutionState) -> dict[str, object]:
    """What a run must have in common with any other run of the same playbook."""
    return {
        "status": state.status,
        "steps": {
            name: (s.status, s.visits, frames_of(s.result))
            for name, s in sorted(state.steps.items())
        },
        "ctx": state.ctx,
        "handled": state.failures_handled,
    }
