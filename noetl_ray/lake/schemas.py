"""The tables of the event lake: their columns, what makes a row one row, how rows are merged.

Two sorts of tables. *Facts* have one row per event and are never changed. *Summaries* have one row
per thing that lasts (an execution, a step, a frame, a call); each build adds what it learned as a
row of its own, and rows of one key are merged column by column with ``min``, ``max`` or ``sum``.
That merge does not depend on order, so readers, compaction and builds of any size agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

Merge = Literal["min", "max", "sum"]

TIME = pa.timestamp("us", tz="UTC")
"""Microseconds, because Spark takes no other unit from Arrow."""
_SCOPE = [("tenant_id", pa.string()), ("organization_id", pa.string())]
_THING = [*_SCOPE, ("execution_id", pa.int64())]
_PLACE = [("position", pa.int64()), ("ordinal", pa.int32())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table."""

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    """What no two rows share, after merging."""
    merges: dict[str, Merge] = field(default_factory=dict)
    """How the other columns of a summary are merged; empty for facts."""

    @property
    def is_summary(self) -> bool:
        """Whether rows of one key are merged."""
        return bool(self.merges)


def _facts(name: str, *columns: tuple[str, pa.DataType]) -> Table:
    schema = pa.schema([*_PLACE, *_THING, *columns])
    return Table(name=name, schema=schema, keys=("position", "ordinal"))


def _summary(
    name: str, keys: list[tuple[str, pa.DataType]], **columns: tuple[pa.DataType, Merge]
) -> Table:
    columns["last_position"] = (pa.int64(), "max")
    return Table(
        name=name,
        schema=pa.schema([*_THING, *keys, *((key, kind) for key, (kind, _) in columns.items())]),
        keys=tuple(key for key, _ in [*_THING, *keys]),
        merges={key: merge for key, (_, merge) in columns.items()},
    )


_TEXT: tuple[pa.DataType, Merge] = (pa.string(), "max")
_FIRST: tuple[pa.DataType, Merge] = (TIME, "min")
_COUNT: tuple[pa.DataType, Merge] = (pa.int64(), "sum")
_NUMBER: tuple[pa.DataType, Merge] = (pa.int64(), "max")

RECORDS = Table(
    name="records",
    schema=pa.schema(
        [
            ("position", pa.int64()),
            *_THING,
            ("subject", pa.string()),
            ("time_ms", pa.int64()),
            ("events", pa.int32()),
            ("data", pa.binary()),
        ]
    ),
    keys=("position",),
)
"""Every record of the log, byte for byte: what audits fold and archives keep."""

UNREADABLE = Table(
    name="unreadable",
    schema=pa.schema(
        [
            ("position", pa.int64()),
            *_THING,
            ("subject", pa.string()),
            ("time_ms", pa.int64()),
            ("reason", pa.string()),
        ]
    ),
    keys=("position",),
)
"""Records that this version cannot read; their bytes are in ``records``."""

EVENTS = _facts(
    "events",
    ("event_id", pa.int64()),
    ("event_type", pa.string()),
    ("event_time", TIME),
    ("shard", pa.int32()),
    ("aggregate_type", pa.string()),
    ("aggregate_id", pa.string()),
    ("step", pa.string()),
    ("visit", pa.int64()),
    ("stage_id", pa.string()),
    ("frame_id", pa.string()),
    ("command_id", pa.string()),
    ("causation_id", pa.int64()),
    ("idempotency_key", pa.string()),
    ("producer", pa.string()),
    ("schema_version", pa.int32()),
    ("envelope_checksum", pa.string()),
    ("payload", pa.string()),
)
EXECUTIONS = _summary(
    "executions",
    [],
    project_id=_TEXT,
    path=_TEXT,
    playbook_version=_NUMBER,
    digest=_TEXT,
    parent_execution_id=_NUMBER,
    requested_at=_FIRST,
    started_at=_FIRST,
    ended_at=_FIRST,
    status=_TEXT,
    final_step=_TEXT,
    error_kind=_TEXT,
    error_message=_TEXT,
    events=_COUNT,
    records=_COUNT,
    bytes=_COUNT,
)
STEPS = _summary(
    "steps",
    [("step", pa.string()), ("visit", pa.int64())],
    entered_at=_FIRST,
    exited_at=_FIRST,
    status=_TEXT,
    commands=_COUNT,
    failed_attempts=_COUNT,
    result_bytes=_NUMBER,
    result_rows=_NUMBER,
)
FRAMES = _summary(
    "frames",
    [("frame_id", pa.string())],
    stage_id=_TEXT,
    command_id=_TEXT,
    step=_TEXT,
    visit=_NUMBER,
    dispatched_at=_FIRST,
    started_at=_FIRST,
    ended_at=_FIRST,
    status=_TEXT,
    rows=_NUMBER,
    processed=_NUMBER,
    failed=_NUMBER,
    attempts=_NUMBER,
    heartbeats=_COUNT,
    abandoned=_COUNT,
)
TOOL_CALLS = _summary(
    "tool_calls",
    [("command_id", pa.string())],
    step=_TEXT,
    visit=_NUMBER,
    issued_at=_FIRST,
    claimed_at=_FIRST,
    ended_at=_FIRST,
    status=_TEXT,
    worker_id=_TEXT,
    distance=_TEXT,
    claims=_COUNT,
    releases=_COUNT,
    failed_attempts=_COUNT,
    runs=_NUMBER,
    tier=_TEXT,
    result_bytes=_NUMBER,
    result_rows=_NUMBER,
    error_kind=_TEXT,
)
ERRORS = _facts(
    "errors",
    ("event_type", pa.string()),
    ("event_time", TIME),
    ("step", pa.string()),
    ("visit", pa.int64()),
    ("task", pa.string()),
    ("command_id", pa.string()),
    ("frame_id", pa.string()),
    ("kind", pa.string()),
    ("code", pa.string()),
    ("message", pa.string()),
    ("retryable", pa.bool_()),
    ("status_code", pa.int64()),
    ("attempt", pa.int64()),
)
RESULTS = _facts(
    "results",
    ("event_type", pa.string()),
    ("event_time", TIME),
    ("step", pa.string()),
    ("visit", pa.int64()),
    ("command_id", pa.string()),
    ("frame_id", pa.string()),
    ("uri", pa.string()),
    ("tier", pa.string()),
    ("media_type", pa.string()),
    ("bytes", pa.int64()),
    ("rows", pa.int64()),
    ("sha256", pa.string()),
    ("store", pa.string()),
)
BUSINESS_OBJECTS = _facts(
    "business_objects",
    ("event_time", TIME),
    ("object_type", pa.string()),
    ("object_id", pa.string()),
    ("status", pa.string()),
    ("attributes", pa.string()),
    ("step", pa.string()),
    ("visit", pa.int64()),
    ("task", pa.string()),
    ("command_id", pa.string()),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RECORDS,
        EVENTS,
        EXECUTIONS,
        STEPS,
        FRAMES,
        TOOL_CALLS,
        ERRORS,
        RESULTS,
        BUSINESS_OBJECTS,
        UNREADABLE,
    )
}


def merged(table: Table, rows: pa.Table) -> pa.Table:
    """Rows in the table's order: a summary's with one row per key, facts by their place."""
    if not table.is_summary:
        return rows.sort_by([(key, "ascending") for key in table.keys])
    asked = [(column, merge) for column, merge in table.merges.items()]
    grouped = rows.group_by(list(table.keys), use_threads=False).aggregate(asked)
    named = grouped.rename_columns(
        [*table.keys, *table.merges]
        if grouped.column_names[0] == table.keys[0]
        else [*table.merges, *table.keys]
    )
    ordered = named.select(table.schema.names).cast(table.schema)
    return ordered.sort_by([(key, "ascending") for key in table.keys])
