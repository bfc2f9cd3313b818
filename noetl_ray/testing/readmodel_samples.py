"""Small rows of the read model for tests of whatever stores or shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.events.envelope import Record
from noetl_ray.readmodel.records import (
    EXECUTION_STATE,
    Checkpoint,
    EventRow,
    ExecutionRow,
    LogRow,
    ProjectionKey,
    ProjectionRecord,
)
from noetl_ray.scope import Scope
from noetl_ray.testing.samples import SAMPLE_TIME
from noetl_ray.wal.tasklog import LogLine

if TYPE_CHECKING:
    from noetl_ray.events.envelope import Event

HOME = Scope()
OTHER_TENANT = Scope(tenant_id="other")
OTHER_ORGANIZATION = Scope(organization_id="other")
LATER = "2026-01-02T03:04:06.001Z"


def mark(position: int, expected: int = 0, consumer: str = "check") -> Checkpoint:
    """A checkpoint of one consumer."""
    return Checkpoint(
        consumer=consumer, expected=expected, position=position, projected_at=SAMPLE_TIME
    )


def projection(
    version: int, *, execution_id: int = 7, scope: Scope = HOME, **state: Any
) -> ProjectionRecord:
    """A projection of an execution's state at a version."""
    data = canonical_json(state or {"at": version})
    return ProjectionRecord(
        key=ProjectionKey(
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            projection_type=EXECUTION_STATE,
            execution_id=execution_id,
        ),
        version=version,
        state=data,
        checksum=sha256_hex(data),
        source_event_id=version * 10,
        source_first_event_id=version * 10 - 5,
        meta={"event_count": version},
        updated_at=SAMPLE_TIME,
    )


def execution(
    position: int,
    status: str = "RUNNING",
    *,
    execution_id: int = 7,
    scope: Scope = HOME,
    **more: Any,
) -> ExecutionRow:
    """An execution's row at a position."""
    fields: dict[str, Any] = {
        "project_id": "default",
        "shard": 3,
        "path": "demo/hello",
        "playbook_version": 2,
        "digest": "d" * 64,
        "started_at": SAMPLE_TIME,
        "steps": {"start": {"status": "running", "visits": 1}},
        "counters": {"commands_open": 1},
        "event_count": position,
        "last_event_id": position * 10,
        "checksum": "c" * 64,
        "updated_at": SAMPLE_TIME,
    }
    return ExecutionRow(
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        execution_id=execution_id,
        status=status,
        last_position=position,
        **(fields | more),
    )


def rows_of(position: int, *events: Event, shard: int = 3) -> tuple[EventRow, ...]:
    """The rows of one record."""
    return tuple(
        EventRow(position=position, ordinal=ordinal, shard=shard, event=event)
        for ordinal, event in enumerate(Record(events=events).events)
    )


def line(log_id: int, text: str, *, step: str = "start", execution_id: int = 7) -> LogRow:
    """A printed line."""
    return LogRow(
        log_id=log_id,
        line=LogLine(
            tenant_id=HOME.tenant_id,
            organization_id=HOME.organization_id,
            execution_id=execution_id,
            step=step,
            task="main",
            attempt=1,
            stream="stdout",
            time_ms=1_767_323_045_678,
            text=text,
        ),
    )
