"""What events say about things that last: executions, steps, frames and calls.

Owns which event sets which column of a summary. One row per key and run of records; rows of
several runs are merged later by the same rules (:func:`noetl_ray.lake.schemas.merged`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from noetl_ray.events.types import EXECUTION_TERMINAL
from noetl_ray.events.types import EventType as E
from noetl_ray.lake.schemas import TABLES

if TYPE_CHECKING:
    from noetl_ray.events.envelope import Event, Record

_END_STATUS = {
    E.PLAYBOOK_COMPLETED: "COMPLETED",
    E.PLAYBOOK_FAILED: "FAILED",
    E.EXECUTION_CANCELLED: "CANCELLED",
}
_CALL_STATUS = {
    E.CALL_DONE: "COMPLETED",
    E.COMMAND_COMPLETED: "COMPLETED",
    E.CALL_ERROR: "FAILED",
    E.COMMAND_FAILED: "FAILED",
    E.COMMAND_CANCELLED: "CANCELLED",
}
_FRAME_END = {E.FRAME_COMMITTED: "COMMITTED", E.FRAME_FAILED: "FAILED"}


class Summaries:
    """Rows of the summary tables, by table, tenant, day and key."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], dict[tuple[Any, ...], dict[str, Any]]] = {}

    def counted(self, event: Event, day: str, position: int, record: Record, size: int) -> None:
        """One record of an execution, of so many bytes."""
        self._merge(
            "executions",
            event,
            day,
            (),
            {"events": len(record.events), "records": 1, "bytes": size, "last_position": position},
        )

    def add(self, event: Event, day: str, position: int) -> None:
        """Take one event in."""
        kind = event.event_type
        family = kind.partition(".")[0]
        if family in ("playbook", "execution"):
            self._merge("executions", event, day, (), _execution(event))
        elif family == "step":
            changes = _step(event)
            self._step(event, day, position, changes)
        elif family in ("command", "call", "task"):
            if event.command_id:
                changes = {**_call(event), "last_position": position}
                self._merge("tool_calls", event, day, (event.command_id,), changes)
            if kind is E.COMMAND_ISSUED:
                self._step(event, day, position, {"commands": 1})
            elif kind is E.TASK_ATTEMPT_FAILED:
                self._step(event, day, position, {"failed_attempts": 1})
        elif family == "frame" and event.frame_id:
            changes = {**_frame(event), "last_position": position}
            self._merge("frames", event, day, (event.frame_id,), changes)

    def _step(self, event: Event, day: str, position: int, changes: dict[str, Any]) -> None:
        step, visit = text(event.payload.get("step")), number(event.payload.get("visit"))
        if step is not None and visit is not None:
            changes["last_position"] = position
            self._merge("steps", event, day, (step, visit), changes)

    def _merge(
        self, table: str, event: Event, day: str, key: tuple[Any, ...], changes: dict[str, Any]
    ) -> None:
        rows = self.rows.setdefault((table, event.tenant_id, day), {})
        whole = (event.tenant_id, event.organization_id, event.execution_id, *key)
        row = rows.get(whole)
        if row is None:
            row = rows[whole] = dict.fromkeys(TABLES[table].merges)
        merges = TABLES[table].merges
        for column, value in changes.items():
            held = row[column]
            if value is None:
                continue
            if held is None:
                row[column] = value
            elif merges[column] == "sum":
                row[column] = held + value
            elif merges[column] == "max":
                row[column] = max(held, value)
            else:
                row[column] = min(held, value)


def _execution(event: Event) -> dict[str, Any]:
    payload = event.payload
    at = moment(event.event_time)
    changes: dict[str, Any] = {}
    playbook = payload.get("playbook")
    if isinstance(playbook, dict):
        changes |= {
            "path": text(playbook.get("path")),
            "playbook_version": number(playbook.get("version")),
            "digest": text(playbook.get("digest")),
        }
    if event.event_type is E.EXECUTION_REQUESTED:
        changes |= {
            "requested_at": at,
            "project_id": text(payload.get("project_id")),
            "parent_execution_id": number(payload.get("parent_execution_id")),
        }
    elif event.event_type is E.PLAYBOOK_INITIALIZED:
        changes["started_at"] = at
    elif event.event_type in EXECUTION_TERMINAL:
        error = _mapping(payload.get("error"))
        changes |= {
            "ended_at": at,
            "status": _END_STATUS[event.event_type],
            "final_step": text(payload.get("final_step")),
            "error_kind": text(error.get("kind")),
            "error_message": text(error.get("message")),
        }
    return changes


def _step(event: Event) -> dict[str, Any]:
    at = moment(event.event_time)
    if event.event_type is E.STEP_ENTER:
        return {"entered_at": at}
    if event.event_type is not E.STEP_EXIT:
        return {}
    return {
        "exited_at": at,
        "status": text(event.payload.get("status")),
        **_result_size(event.payload),
    }


def _call(event: Event) -> dict[str, Any]:
    payload = event.payload
    at = moment(event.event_time)
    changes: dict[str, Any] = {
        "step": text(payload.get("step")),
        "visit": number(payload.get("visit")),
    }
    kind = event.event_type
    if kind is E.COMMAND_ISSUED:
        changes["issued_at"] = at
        claim = _mapping(payload.get("claim"))
        if claim:
            changes |= _claim(claim, at)
    elif kind is E.COMMAND_CLAIMED:
        changes |= _claim(payload, at)
    elif kind is E.COMMAND_RELEASED:
        changes["releases"] = 1
    elif kind is E.TASK_ATTEMPT_FAILED:
        changes["failed_attempts"] = 1
    elif kind in _CALL_STATUS:
        changes |= {
            "ended_at": at,
            "status": _CALL_STATUS[kind],
            "runs": number(payload.get("runs")),
            "tier": text(_mapping(payload.get("result")).get("tier")),
            "error_kind": text(_mapping(payload.get("error")).get("kind")),
            **_result_size(payload),
        }
    return changes


def _claim(claim: dict[str, Any], at: int) -> dict[str, Any]:
    return {
        "claimed_at": at,
        "claims": 1,
        "worker_id": text(claim.get("worker_id")),
        "distance": text(claim.get("distance")),
    }


def _frame(event: Event) -> dict[str, Any]:
    payload = event.payload
    at = moment(event.event_time)
    kind = event.event_type
    changes: dict[str, Any] = {
        "stage_id": event.stage_id,
        "command_id": event.command_id,
        "step": text(payload.get("step")),
        "visit": number(payload.get("visit")),
        "attempts": number(payload.get("attempt")),
        "rows": number(payload.get("row_count")),
    }
    if kind is E.FRAME_DISPATCHED:
        changes["dispatched_at"] = at
    elif kind is E.FRAME_STARTED:
        changes["started_at"] = at
    elif kind is E.FRAME_HEARTBEAT:
        changes["heartbeats"] = 1
    elif kind is E.FRAME_ABANDONED:
        changes["abandoned"] = 1
    elif kind in _FRAME_END:
        changes |= {
            "ended_at": at,
            "status": _FRAME_END[kind],
            "processed": number(payload.get("processed")),
            "failed": number(payload.get("failed")),
        }
    return changes


def _result_size(payload: dict[str, Any]) -> dict[str, Any]:
    reference = _mapping(_mapping(payload.get("result")).get("reference"))
    return {
        "result_bytes": number(reference.get("bytes")),
        "result_rows": number(reference.get("rows")),
    }


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str | None:
    """A text, or None for nothing; anything else as it is written."""
    return value if isinstance(value, str) or value is None else str(value)


def number(value: Any) -> int | None:
    """A whole number of 64 bits, or None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << 63) <= value < 1 << 63 else None


@lru_cache(maxsize=1024)
def moment(time: str) -> int:
    """The envelope's time as microseconds since 1970."""
    return round(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000) * 1000
