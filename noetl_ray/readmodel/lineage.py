"""Which run gave which result, and from what: pure functions over an execution's events.

The result index (RES-4, RES-6) is one row per finished task run or command. The trace (ENV-9) links
a step's result to those it was made from: the tasks before it in its pipeline, and the results its
command carried. Both are made from events when asked for, so there is nothing to rebuild.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl_ray.readmodel.records import EventRow

_RESULTS = {
    EventType.CALL_DONE: "ok",
    EventType.CALL_ERROR: "error",
    EventType.TASK_DONE: "ok",
    EventType.TASK_FAILED: "error",
}


class ResultRow(msgspec.Struct, frozen=True, kw_only=True):
    """One result: of a command, or of a task that another one followed."""

    step_name: str
    step_run_id: str
    """The command; a new one for each visit of a step and each item of a loop."""
    visit: int
    task_label: str | None
    task_run_id: int
    """How often the task ran until then; counts from 1 and on through retries and jumps."""
    attempt: int
    """Which holder of the command it was, from 1."""
    iteration: int | None
    status: str
    result_ref: dict[str, Any] | None
    parent_ref: dict[str, Any] | None
    """The task before it in the same pipeline; None for the first."""
    created_at: str
    event_id: int
    position: int


def result_index(rows: Iterable[EventRow]) -> list[ResultRow]:
    """The index of an execution from its events in log order."""
    found: list[ResultRow] = []
    before: dict[str, dict[str, Any]] = {}
    for row in rows:
        event = row.event
        status = _RESULTS.get(event.event_type)
        if status is None or event.command_id is None:
            continue
        payload = event.payload
        block = payload.get("result")
        reference = block.get("reference") if isinstance(block, dict) else None
        label = payload.get("task")
        made = ResultRow(
            step_name=str(payload.get("step")),
            step_run_id=event.command_id,
            visit=int(payload.get("visit") or 1),
            task_label=label,
            task_run_id=_runs(payload.get("runs")),
            attempt=int(payload.get("attempt") or 1),
            iteration=payload.get("index"),
            status=status,
            result_ref=_shown(reference),
            parent_ref=before.get(event.command_id),
            created_at=event.event_time,
            event_id=event.event_id,
            position=row.position,
        )
        found.append(made)
        before[event.command_id] = {"ref_id": str(event.event_id), "task": label}
    return found


def step_states(rows: Sequence[ResultRow]) -> dict[str, dict[str, Any]]:
    """Per step: its last result, how it ended, and how many results it has."""
    states: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.task_label is not None:
            continue
        count = states.get(row.step_name, {}).get("results", 0)
        states[row.step_name] = {
            "status": row.status,
            "visit": row.visit,
            "last_result_ref": row.result_ref,
            "last_event_id": str(row.event_id),
            "results": count + 1,
        }
    return states


def issued_of(rows: Iterable[EventRow]) -> dict[str, EventRow]:
    """The event that issued each command."""
    return {
        row.event.command_id: row
        for row in rows
        if row.event.event_type is EventType.COMMAND_ISSUED and row.event.command_id
    }


def newest_of(rows: Sequence[ResultRow], step: str, *, before: int | None = None) -> int | None:
    """Where the newest result of a step stands in the index, of those before a position."""
    for number in range(len(rows) - 1, -1, -1):
        row = rows[number]
        if row.step_name != step or row.task_label is not None:
            continue
        if before is None or row.position < before:
            return number
    return None


def _shown(reference: Any) -> dict[str, Any] | None:
    """What names the bytes, without hints and samples."""
    if not isinstance(reference, dict):
        return None
    names = ("uri", "sha256", "media_type", "bytes", "rows", "scope", "expires_at")
    return {name: reference[name] for name in names if name in reference}


def _runs(given: Any) -> int:
    return given if type(given) is int and given > 0 else 1
