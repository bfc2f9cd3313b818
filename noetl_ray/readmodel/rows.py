"""Rows from events and folded states: pure functions shared by every projector and adapter.

An execution's row comes from its state, so live and replay agree by construction. A command's,
playbook's or worker's row comes from the events themselves. ``merge_command`` is the rule both
adapters keep when a change meets a row that is there already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.clock import iso_utc
from noetl_ray.engine.state import LOOP_TIERS, TERMINAL_STATUSES, ExecutionState
from noetl_ray.events.types import EventType
from noetl_ray.readmodel.records import CommandRow, ExecutionRow, PlaybookRow, WorkerRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.events.envelope import Event

WAITS_SHOWN_MAX = 20
COMMAND_TERMINAL_STATUSES = frozenset({"COMPLETED", "FAILED", "CANCELLED"})

_COMMAND_STATUS: dict[EventType, str] = {
    EventType.COMMAND_ISSUED: "ISSUED",
    EventType.COMMAND_CLAIMED: "CLAIMED",
    EventType.COMMAND_STARTED: "STARTED",
    EventType.TASK_PARKED: "WAITING",
    EventType.COMMAND_RELEASED: "RELEASED",
    EventType.CHILD_REQUESTED: "WAITING",
    EventType.COMMAND_RESUMED: "RESUMED",
    EventType.COMMAND_COMPLETED: "COMPLETED",
    EventType.COMMAND_FAILED: "FAILED",
    EventType.COMMAND_CANCELLED: "CANCELLED",
    EventType.CALL_DONE: "COMPLETED",
    EventType.CALL_ERROR: "FAILED",
}
_WORKER_STATUS: dict[EventType, str] = {
    EventType.WORKER_JOINED: "up",
    EventType.WORKER_LEFT: "left",
    EventType.WORKER_LOST: "lost",
}
_KEEP_FIRST = ("issued_event_id", "issued_at", "terminal_event_id", "ended_at")


def execution_row(state: ExecutionState, *, checksum: str, updated_at: str) -> ExecutionRow:
    """The row of an execution; ``checksum`` is that of its canonical state."""
    playbook = state.playbook
    return ExecutionRow(
        tenant_id=state.tenant_id,
        organization_id=state.organization_id,
        execution_id=state.execution_id,
        project_id=state.project_id,
        shard=state.shard,
        status=state.status,
        path=playbook.path if playbook else None,
        playbook_version=playbook.version if playbook else None,
        digest=playbook.digest if playbook else None,
        started_at=state.started_at,
        ended_at=state.ended_at,
        final_step=state.final_step,
        error=state.error or state.failed,
        steps=_steps(state),
        counters=_counters(state),
        event_count=state.event_count,
        last_event_id=state.last_event_id,
        last_position=state.position,
        parent_execution_id=state.parent_execution_id,
        idempotency_key=state.idempotency_key,
        checksum=checksum,
        updated_at=updated_at,
    )


def command_row(event: Event, position: int) -> CommandRow | None:
    """What an event changes about its command, or None when it is about no command."""
    status = _COMMAND_STATUS.get(event.event_type)
    if status is None or not event.command_id:
        return None
    payload = event.payload
    changes: dict[str, Any] = {}
    claim: dict[str, Any] = {}
    if event.event_type is EventType.COMMAND_ISSUED:
        changes = {"issued_event_id": event.event_id, "issued_at": event.event_time}
        # An offer recorded by the decision is already the claim (P16).
        claim = payload.get("claim") or {}
        status = "CLAIMED" if claim else status
    elif event.event_type is EventType.COMMAND_RESUMED:
        claim = payload.get("claim") or {}
        status = "CLAIMED" if claim else status
    elif event.event_type is EventType.COMMAND_CLAIMED:
        claim = payload
    elif status in COMMAND_TERMINAL_STATUSES:
        changes = {"terminal_event_id": event.event_id, "ended_at": event.event_time}
    if claim:
        changes |= {
            "worker_id": claim.get("worker_id"),
            "incarnation": claim.get("incarnation"),
            "claimed_event_id": event.event_id,
            "claimed_at": event.event_time,
        }
    return CommandRow(
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        execution_id=event.execution_id,
        command_id=event.command_id,
        position=position,
        status=status,
        step=payload.get("step"),
        visit=payload.get("visit"),
        attempt=int(payload.get("attempt") or 1),
        error=_mapping(payload.get("error")),
        **changes,
    )


def merge_command(old: CommandRow, new: CommandRow) -> CommandRow:
    """A change over an older row: ends and first times stay, and what the change leaves out."""
    merged: dict[str, Any] = {}
    for name in CommandRow.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        first, second = (before, after) if name in _KEEP_FIRST else (after, before)
        merged[name] = second if first is None else first
    if old.status in COMMAND_TERMINAL_STATUSES:
        merged["status"] = old.status
        merged["error"] = old.error
    merged["attempt"] = max(old.attempt, new.attempt)
    return CommandRow(**merged)


def fold_commands(rows: Iterable[CommandRow]) -> tuple[CommandRow, ...]:
    """One row per command out of the changes of a batch, given in log order."""
    merged: dict[tuple[str, str, int, str], CommandRow] = {}
    for row in rows:
        key = (row.tenant_id, row.organization_id, row.execution_id, row.command_id)
        merged[key] = merge_command(merged[key], row) if key in merged else row
    return tuple(merged.values())


def playbook_row(event: Event, position: int) -> PlaybookRow | None:
    """The catalog row of a registration; None for any other event."""
    if event.event_type is not EventType.PLAYBOOK_REGISTERED:
        return None
    payload = event.payload
    source = payload.get("source")
    reference = event.payload_ref
    size = reference.bytes if reference else len(source.encode()) if source else None
    return PlaybookRow(
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        path=payload["path"],
        version=int(payload["version"]),
        digest=payload["digest"],
        position=position,
        registered_at=event.event_time,
        name=payload.get("name"),
        source=source,
        source_ref=msgspec.to_builtins(reference) if reference else None,
        size_bytes=size,
    )


def worker_row(event: Event, position: int) -> WorkerRow | None:
    """The row of a worker that came or went; None for any other event."""
    status = _WORKER_STATUS.get(event.event_type)
    if status is None:
        return None
    payload = event.payload
    joined = event.event_type is EventType.WORKER_JOINED
    known = {"worker_id", "incarnation", "slots", "reason"}
    return WorkerRow(
        worker_id=payload["worker_id"],
        incarnation=str(payload["incarnation"]),
        status=status,
        position=position,
        slots=payload.get("slots"),
        place={key: value for key, value in payload.items() if key not in known},
        joined_at=event.event_time if joined else None,
        ended_at=None if joined else event.event_time,
        reason=payload.get("reason"),
    )


def merge_worker(old: WorkerRow, new: WorkerRow) -> WorkerRow:
    """A change over an older row: a join starts anew, an end keeps what the join told."""
    if new.status == "up" or old.incarnation != new.incarnation:
        return new
    return msgspec.structs.replace(
        new,
        slots=old.slots if new.slots is None else new.slots,
        place=old.place | new.place,
        joined_at=old.joined_at,
    )


def keep_end(old: ExecutionRow, new: ExecutionRow) -> ExecutionRow:
    """A newer row over an older one: an execution never leaves its end (PRJ-12)."""
    if old.status in TERMINAL_STATUSES:
        return msgspec.structs.replace(new, status=old.status, ended_at=old.ended_at)
    return new


def _steps(state: ExecutionState) -> dict[str, dict[str, Any]]:
    steps: dict[str, dict[str, Any]] = {}
    waits = _waits(state)
    for name, step in state.steps.items():
        shown: dict[str, Any] = {"status": step.status, "visits": step.visits}
        for label in ("rows", "entered_at", "exited_at", "error"):
            value = getattr(step, label)
            if value is not None:
                shown[label] = value
        loop = state.loops.get(name)
        if loop is not None and loop.stage is not None:
            stage = loop.stage
            shown["rows"] = stage.processed
            shown["frames"] = {"done": stage.frames, "open": stage.open, "failed": stage.failed}
            if stage.total:
                shown["loop"] = {"total": loop.total, "done": loop.done, "failed": loop.failed}
        elif loop is not None:
            shown["loop"] = {"total": loop.total, "done": loop.done, "failed": loop.failed}
        elif step.result is not None and step.result.get("tier") in LOOP_TIERS:
            shown["loop"] = step.result["stats"]
        if name in waits:
            shown["waiting"] = waits[name]
        steps[name] = shown
    return steps


def _waits(state: ExecutionState) -> dict[str, list[dict[str, Any]]]:
    """What the parked commands of each step wait for, those that end soonest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for command_id, _ in sorted(state.due.items(), key=lambda item: item[1]):
        command = state.commands.get(command_id)
        if command is None or command.wait is None:
            continue
        of_step = found.setdefault(command.step, [])
        if len(of_step) < WAITS_SHOWN_MAX:
            wait = command.wait
            shown = {"task": wait.task, "kind": wait.kind, "until": iso_utc(wait.until_ms)}
            of_step.append(shown | ({"about": wait.about} if wait.about else {}))
    return found


def _counters(state: ExecutionState) -> dict[str, int]:
    counters = {"commands_open": len(state.commands), "failures_handled": state.failures_handled}
    for step in state.steps.values():
        if step.rows is not None:
            counters["rows"] = counters.get("rows", 0) + step.rows
        name = f"steps_{step.status}"
        counters[name] = counters.get(name, 0) + 1
    return counters


def _mapping(value: Any) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    return {"message": str(value)}
