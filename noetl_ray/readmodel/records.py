"""The rows of the read model as values: what is stored, what is committed, what a query gives back.

Times are ISO text with milliseconds, as in the envelope; adapters turn them into their own type. A
*version* is always a log position (P9). Nothing here computes a row: see ``rows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from noetl_ray.events.envelope import Event
from noetl_ray.readmodel.shards import ShardRow
from noetl_ray.scope import Scope
from noetl_ray.wal.tasklog import LogLine

EXECUTION_STATE = "execution_state"
"""Projection type under which the folded state of an execution is kept."""

LOG_ID_SHIFT = 20
"""A line's id is its batch's position, shifted, plus its place there: ordered, repeatable."""


class ProjectionKey(msgspec.Struct, frozen=True, kw_only=True):
    """What names one projection; the last three parts are empty for a whole execution (PRS-3)."""

    tenant_id: str
    organization_id: str
    projection_type: str
    execution_id: int
    stage_id: str = ""
    frame_id: str = ""
    partition_id: str = ""


class ProjectionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A projection with its lineage. ``state`` is canonical JSON; ``checksum`` is its SHA-256."""

    key: ProjectionKey
    version: int
    state: bytes
    checksum: str
    source_event_id: int
    """The newest event folded in."""
    source_first_event_id: int | None = None
    """Where the range of this write began, when it folded more than one event."""
    meta: dict[str, Any] = {}
    updated_at: str | None = None

    @property
    def state_text(self) -> str:
        """The state as a column of text holds it."""
        return self.state.decode()


class ProjectionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A projection as it was at one position; snapshots of several positions live side by side."""

    record: ProjectionRecord
    reason: str = "interval"


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event and where the log holds it; ``ordinal`` is its place within its record."""

    position: int
    ordinal: int
    shard: int
    event: Event


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One execution as lists and pages show it."""

    tenant_id: str
    organization_id: str
    execution_id: int
    project_id: str
    shard: int
    status: str
    path: str | None = None
    playbook_version: int | None = None
    digest: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    final_step: str | None = None
    error: dict[str, Any] | None = None
    steps: dict[str, dict[str, Any]] = {}
    """Per step: status, visits, entered_at, exited_at, and the error when there is one."""
    counters: dict[str, int] = {}
    event_count: int = 0
    last_event_id: int = 0
    last_position: int = 0
    parent_execution_id: int | None = None
    idempotency_key: str | None = None
    checksum: str = ""
    updated_at: str | None = None


class CommandRow(msgspec.Struct, frozen=True, kw_only=True):
    """One command. Within a commit a row is a change: what it leaves None keeps its old value."""

    tenant_id: str
    organization_id: str
    execution_id: int
    command_id: str
    position: int
    status: str
    step: str | None = None
    visit: int | None = None
    attempt: int = 1
    worker_id: str | None = None
    incarnation: str | None = None
    """The last holder, also after a release."""
    issued_event_id: int | None = None
    claimed_event_id: int | None = None
    terminal_event_id: int | None = None
    issued_at: str | None = None
    claimed_at: str | None = None
    ended_at: str | None = None
    error: dict[str, Any] | None = None


class PlaybookRow(msgspec.Struct, frozen=True, kw_only=True):
    """One registered version of a playbook."""

    tenant_id: str
    organization_id: str
    path: str
    version: int
    digest: str
    position: int
    registered_at: str
    name: str | None = None
    source: str | None = None
    source_ref: dict[str, Any] | None = None
    size_bytes: int | None = None


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The newest incarnation of a worker: ``up``, ``left`` or ``lost``."""

    worker_id: str
    incarnation: str
    status: str
    position: int
    slots: int | None = None
    place: dict[str, Any] = {}
    joined_at: str | None = None
    ended_at: str | None = None
    reason: str | None = None


class BusinessObjectRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one task said about a domain object; the newest such row is the object as it is."""

    tenant_id: str
    organization_id: str
    object_type: str
    object_id: str
    version: int
    """Grows with the log, across executions: the position and the place in its record."""
    recorded_at: str
    event_id: int
    execution_id: int
    command_id: str
    status: str | None = None
    attributes: dict[str, Any] = {}
    step: str | None = None
    visit: int | None = None
    task: str | None = None
    reference: dict[str, Any] | None = None
    """Where the result lies that it is about, when it is not in the event."""


class StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a loop as frames (FRM-1). Within a commit a row is a change."""

    tenant_id: str
    organization_id: str
    execution_id: int
    stage_id: str
    position: int
    status: str
    parent_event_id: int | None = None
    parent_stage_id: str | None = None
    loop_event_id: int | None = None
    opened_event_id: int | None = None
    closed_event_id: int | None = None
    kind: str | None = None
    step_name: str | None = None
    visit: int | None = None
    dsl_ref: str | None = None
    frame_policy: dict[str, Any] | None = None
    stats: dict[str, Any] | None = None
    started_at: str | None = None
    ended_at: str | None = None


class FrameRow(msgspec.Struct, frozen=True, kw_only=True):
    """One window of rows (FRM-2). Within a commit a row is a change."""

    tenant_id: str
    organization_id: str
    execution_id: int
    frame_id: str
    stage_id: str
    position: int
    status: str
    parent_frame_id: str | None = None
    command_id: str | None = None
    claimed_event_id: int | None = None
    terminal_event_id: int | None = None
    cursor: dict[str, Any] | None = None
    row_count: int | None = None
    owner_worker: str | None = None
    """The last holder, also after it was abandoned."""
    lease_until: str | None = None
    output_ref: dict[str, Any] | None = None
    events_emitted: int = 0
    attempts: int = 1
    created_at: str | None = None
    completed_at: str | None = None
    error: dict[str, Any] | None = None


class ExecutionRows(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one execution has made, at one moment: what two sides are compared by (VAL-1)."""

    execution: ExecutionRow
    state: bytes
    """The folded state, canonical."""
    registry_digest: str
    """Of the upcasters it was folded with."""
    position: int
    """Up to where the log is in these rows."""
    commands: tuple[CommandRow, ...] = ()
    stages: tuple[StageRow, ...] = ()
    frames: tuple[FrameRow, ...] = ()
    objects: tuple[BusinessObjectRow, ...] = ()
    """Every statement this execution made."""


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A printed line and its id, which is the cursor for reading on."""

    log_id: int
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far one consumer got. ``expected`` is what the store must still hold: the fence."""

    consumer: str
    expected: int
    position: int
    event_id: int = 0
    lag_ms: int = 0
    projected_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionBatch:
    """Everything one transaction writes: at most one row per key in each part, objects apart."""

    checkpoints: tuple[Checkpoint, ...]
    events: tuple[EventRow, ...] = ()
    executions: tuple[ExecutionRow, ...] = ()
    commands: tuple[CommandRow, ...] = ()
    stages: tuple[StageRow, ...] = ()
    frames: tuple[FrameRow, ...] = ()
    playbooks: tuple[PlaybookRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    shards: tuple[ShardRow, ...] = ()
    projections: tuple[ProjectionRecord, ...] = ()
    objects: tuple[BusinessObjectRow, ...] = ()
    """Every statement about a business object, several of one object too."""
    lines: tuple[LogRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a commit did: new events, and rows that were older than what is held (PRS-2)."""

    events_new: int
    stale: int


def scope_of(
    row: (
        ProjectionKey
        | ExecutionRow
        | CommandRow
        | PlaybookRow
        | BusinessObjectRow
        | StageRow
        | FrameRow
        | Event
        | LogLine
    ),
) -> Scope:
    """Whose row it is."""
    return Scope(tenant_id=row.tenant_id, organization_id=row.organization_id)
