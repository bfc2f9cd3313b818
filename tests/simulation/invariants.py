"""What must hold of any log, whatever happened while it was written (architecture, section 5)."""

from __future__ import annotations

from collections import Counter
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
    checked = Invariants()
    wrong: list[str] = []
    for recorded in given:
        wrong += checked.take(recorded)
    return wrong + checked.at_end()


class Invariants:
    """Takes records one by one: says at once what is wrong, and at the end what is missing."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._executions: dict[int, _Execution] = {}
        self._epochs: dict[int, int] = {}

    def take(self, recorded: Recorded) -> list[str]:
        """What is wrong with this record, given those before it."""
        wrong = _check_objects(recorded)
        for event in recorded.record.events:
            if event.event_id in self._ids:
                wrong.append(f"event id {event.event_id} stands twice")
            self._ids.add(event.event_id)
            check_envelope(event)
            if checksum_of(event) != event.envelope_checksum:
                wrong.append(f"checksum of {event.event_id}")
            if event.event_type is EventType.SHARD_CLAIMED:
                wrong += self._claim(event.payload["shard"], event.payload["epoch"])
        execution_id = recorded.record.events[0].execution_id
        if execution_id:
            execution = self._executions.setdefault(execution_id, _Execution())
            wrong += [f"{execution_id}: {what}" for what in execution.take(recorded)]
        return wrong

    def _claim(self, shard: int, epoch: int) -> list[str]:
        """Each claim of a shard has a later epoch than every claim before it (PRJ-6)."""
        before = self._epochs.get(shard, 0)
        self._epochs[shard] = max(before, epoch)
        return [f"shard {shard} was claimed again under epoch {epoch}"] if epoch <= before else []

    def at_end(self) -> list[str]:
        """What is missing once every execution is thought to have ended."""
        return [
            f"{execution_id}: {what}"
            for execution_id, execution in self._executions.items()
            for what in execution.at_end()
        ]


class _Execution:
    """What must hold of one execution: one tree, one end of everything, nothing taken twice."""

    def __init__(self) -> None:
        self._events: set[int] = set()
        self._consumed: set[int] = set()
        self._once: Counter[tuple[str, str]] = Counter()
        self._issued: set[str] = set()
        self._ended: set[str] = set()
        self._frames: set[str | None] = {None}
        self._roots: Counter[str] = Counter()
        self._cancelled = False

    def take(self, recorded: Recorded) -> list[str]:
        wrong: list[str] = []
        for position in recorded.record.consumed:
            if position in self._consumed or position >= recorded.position:
                wrong.append(f"the fact at {position} is consumed again at {recorded.position}")
            self._consumed.add(position)
        for event in recorded.record.events:
            prev = event.prev_event_id
            if prev is None:
                if event.event_type is not EventType.EXECUTION_REQUESTED:
                    wrong.append(f"{event.event_type} is a root")
                wrong += self._count("root", "of the tree")
            elif prev not in self._events:
                wrong.append(f"{event.event_id} links to {prev}, which is not there before it")
            self._events.add(event.event_id)
            wrong += self._event(event)
        return wrong

    def _event(self, event: Event) -> list[str]:
        kind = event.event_type
        if kind in EXECUTION_TERMINAL:
            self._cancelled |= kind is EventType.EXECUTION_CANCELLED
            return self._count("end", "of the execution")
        if kind is EventType.STEP_ENTER:
            return self._count("entry", f"{event.payload['step']} {event.payload['visit']}")
        if kind is EventType.COMMAND_ISSUED:
            self._issued.add(event.command_id or "")
            return self._count("issue", event.command_id or "")
        if kind in COMMAND_TERMINAL:
            self._ended.add(event.command_id or "")
            return self._count("end", event.command_id or "")
        if kind is EventType.FRAME_DISPATCHED:
            return self._frame(event)
        if kind in FRAME_TERMINAL:
            self._ended.add(event.frame_id or "")
            return self._count("end", event.frame_id or "")
        if kind is EventType.STAGE_OPENED:
            return self._count("opening", event.stage_id or "")
        if kind is EventType.STAGE_CLOSED:
            return self._closed(event)
        return []

    def _frame(self, event: Event) -> list[str]:
        wrong = []
        if "parent_frame_id" in event.payload:
            # Frames of each stage are one tree (FRM-3).
            parent = event.payload["parent_frame_id"]
            if parent not in self._frames:
                wrong.append(f"frame {event.frame_id} has the unknown parent {parent}")
            self._frames.add(event.frame_id)
            self._roots[event.stage_id or ""] += parent is None
        if event.aggregate_type is not AggregateType.EXECUTION:
            return wrong
        self._issued.add(event.frame_id or "")
        return wrong + self._count("issue", event.frame_id or "")

    def _closed(self, event: Event) -> list[str]:
        stage = event.stage_id or ""
        wrong = self._count("closing", stage)
        over_something = event.payload["stats"].get("total", 1)
        if stage not in self._roots and event.payload["status"] == "COMPLETED" and over_something:
            # Who has no frame is over nothing, or broken.
            wrong.append(f"stage {stage} closed without a frame")
        return wrong

    def _count(self, what: str, name: str) -> list[str]:
        self._once[what, name] += 1
        times = self._once[what, name]
        return [f"{what} {name} stands {times} times"] if times > 1 else []

    def at_end(self) -> list[str]:
        wrong: list[str] = []
        for what, name in (("root", "of the tree"), ("end", "of the execution")):
            if not self._once[what, name]:
                wrong.append(f"no {what} {name}")
        opened = [name for what, name in self._once if what == "opening"]
        wrong += [f"stage {s} has {n} root frames" for s, n in self._roots.items() if n != 1]
        if not self._cancelled:
            open_stages = [each for each in opened if not self._once["closing", each]]
            wrong += [f"stage {each} was never closed" for each in open_stages]
            wrong += [f"{each}: never ended" for each in sorted(self._issued - self._ended)]
        return wrong


def _check_objects(recorded: Recorded) -> list[str]:
    """What is said about an object stands in the record that ends the command it comes from."""
    events = recorded.record.events
    if all(e.event_type is not EventType.BUSINESS_OBJECT_RECORDED for e in events):
        return []
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


def frames_of(result: dict[str, object] | None) -> object:
    """Rows a cursor loop worked off, and how many failed; None for any other result."""
    if (result or {}).get("tier") == MANIFEST_TIER:
        # What items give does not depend on timing, how they were cut into ranges does.
        stats = dict(result["stats"])  # type: ignore[index,call-overload]
        # A failed item stops the stage, and how many others failed by then is chance.
        return {"total": stats["total"], "failed": True} if stats["failed"] else stats
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
