"""Stages and frames as rows: what each event changes, pure, for every adapter alike (FRM-1, FRM-2).

A row in a commit is a change: what it leaves None keeps its old value. ``merge_frame`` and
``merge_stage`` are the rules both adapters keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.clock import iso_utc
from noetl_ray.events.types import EventType
from noetl_ray.readmodel.records import FrameRow, StageRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.events.envelope import Event

FRAME_ENDED = frozenset({"COMMITTED", "FAILED"})

_FRAME_STATUS: dict[EventType, str] = {
    EventType.FRAME_DISPATCHED: "CLAIMED",
    EventType.FRAME_STARTED: "RUNNING",
    EventType.FRAME_HEARTBEAT: "RUNNING",
    EventType.FRAME_ROWS_DONE: "RUNNING",
    EventType.FRAME_ABANDONED: "ABANDONED",
    EventType.FRAME_COMMITTED: "COMMITTED",
    EventType.FRAME_FAILED: "FAILED",
}
_FIRST = ("opened_event_id", "parent_event_id", "started_at", "parent_frame_id", "created_at")


def stage_row(event: Event, position: int) -> StageRow | None:
    """What an event changes about its stage; None when it is about no stage's life."""
    payload = event.payload
    changes: dict[str, Any]
    match event.event_type:
        case EventType.STAGE_OPENED:
            changes = {
                "status": "OPEN",
                "kind": payload["kind"],
                "dsl_ref": payload.get("dsl_ref"),
                "frame_policy": payload["frame_policy"],
                "parent_event_id": event.prev_event_id,
                "parent_stage_id": payload.get("parent_stage_id"),
                "loop_event_id": event.event_id,
                "opened_event_id": event.event_id,
                "started_at": event.event_time,
            }
        case EventType.STAGE_CLOSED:
            changes = {
                "status": payload["status"],
                "stats": payload["stats"],
                "closed_event_id": event.event_id,
                "ended_at": event.event_time,
            }
        case _:
            return None
    return StageRow(
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        execution_id=event.execution_id,
        stage_id=event.stage_id or "",
        position=position,
        step_name=payload["step"],
        visit=payload["visit"],
        **changes,
    )


def frame_row(event: Event, position: int) -> FrameRow | None:
    """What an event changes about its frame; None when it is about no frame."""
    status = _FRAME_STATUS.get(event.event_type)
    if status is None:
        return None
    payload = event.payload
    changes: dict[str, Any] = {}
    if event.event_type is EventType.FRAME_DISPATCHED:
        # A decision's own dispatch makes the frame; it is held when it names a worker (P16).
        made = "frame_policy" in payload
        holder = (payload.get("claim") or {}) if made else payload
        status = "CLAIMED" if holder.get("worker_id") else "PENDING"
        changes = {"owner_worker": holder.get("worker_id")}
        if holder.get("worker_id"):
            changes["claimed_event_id"] = event.event_id
        if made:
            changes["created_at"] = event.event_time
            changes["parent_frame_id"] = payload.get("parent_frame_id")
    elif status in FRAME_ENDED:
        changes = {
            "terminal_event_id": event.event_id,
            "completed_at": event.event_time,
            "cursor": payload.get("cursor"),
            "error": payload.get("error"),
        }
    produced = payload.get("output_ref") or payload.get("rows_ref")
    if produced:
        changes["output_ref"] = produced
    lease = payload.get("lease_until_ms")
    return FrameRow(
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        execution_id=event.execution_id,
        frame_id=event.frame_id or "",
        stage_id=event.stage_id or "",
        command_id=event.command_id,
        position=position,
        status=status,
        row_count=payload.get("row_count"),
        lease_until=None if lease is None else iso_utc(lease),
        attempts=int(payload.get("attempt") or payload.get("attempts") or 1),
        events_emitted=1,
        **changes,
    )


def merge_stage(old: StageRow, new: StageRow) -> StageRow:
    """A change over an older row."""
    return StageRow(**_merged(old, new))


def merge_frame(old: FrameRow, new: FrameRow) -> FrameRow:
    """A change over an older row: an end stays, tries and events add up."""
    merged = _merged(old, new)
    if old.status in FRAME_ENDED:
        merged |= {"status": old.status, "terminal_event_id": old.terminal_event_id}
    merged["attempts"] = max(old.attempts, new.attempts)
    merged["events_emitted"] = old.events_emitted + new.events_emitted
    return FrameRow(**merged)


def fold_stages(rows: Iterable[StageRow]) -> tuple[StageRow, ...]:
    """One row per stage out of the changes of a batch, in log order."""
    merged: dict[tuple[str, str, int, str], StageRow] = {}
    for row in rows:
        key = (row.tenant_id, row.organization_id, row.execution_id, row.stage_id)
        merged[key] = merge_stage(merged[key], row) if key in merged else row
    return tuple(merged.values())


def fold_frames(rows: Iterable[FrameRow]) -> tuple[FrameRow, ...]:
    """One row per frame out of the changes of a batch, in log order."""
    merged: dict[tuple[str, str, int, str], FrameRow] = {}
    for row in rows:
        key = (row.tenant_id, row.organization_id, row.execution_id, row.frame_id)
        merged[key] = merge_frame(merged[key], row) if key in merged else row
    return tuple(merged.values())


def _merged(old: StageRow | FrameRow, new: StageRow | FrameRow) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in type(new).__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        first, second = (before, after) if name in _FIRST else (after, before)
        merged[name] = second if first is None else first
    return merged
