"""The two tables that only grow, ``event`` and ``task_log``: their rows, made, written and read.

Events go by binary COPY into a temporary table and from there in one INSERT that leaves known ids
alone: COPY is the cheapest way in, and it cannot skip duplicates or pass row-level security itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.clock import iso_utc
from noetl_ray.events.envelope import Event
from noetl_ray.events.upcast import registry
from noetl_ray.readmodel.postgres_pool import changed_rows, clean, instant, iso
from noetl_ray.readmodel.records import EventRow, LogRow
from noetl_ray.wal.tasklog import LogLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.readmodel.postgres_pool import Connection

EVENT_COLUMNS = (
    "event_id", "position", "ordinal", "tenant_id", "organization_id", "execution_id", "shard",
    "stream_id", "aggregate_id", "aggregate_type", "event_type", "schema_name",
    "schema_version", "event_time", "ingest_time", "producer", "causation_id",
    "correlation_id", "idempotency_key", "prev_event_id", "stage_id", "frame_id",
    "command_id", "payload", "payload_ref", "meta", "envelope_checksum",
)  # fmt: skip
LINE_COLUMNS = (
    "log_id", "tenant_id", "organization_id", "execution_id", "step", "visit", "task",
    "attempt", "stream", "time", "text",
)  # fmt: skip
SELECT_EVENTS = f"SELECT {', '.join(EVENT_COLUMNS)} FROM noetl.event"
SELECT_LINES = f"SELECT {', '.join(LINE_COLUMNS)} FROM noetl.task_log"


async def insert_events(connection: Connection, rows: Sequence[EventRow]) -> int:
    """Add events within the caller's transaction; returns how many were new."""
    return await _append(connection, "event", EVENT_COLUMNS, [event_values(row) for row in rows])


async def insert_lines(connection: Connection, rows: Sequence[LogRow]) -> int:
    """Add printed lines within the caller's transaction; returns how many were new."""
    return await _append(connection, "task_log", LINE_COLUMNS, [line_values(row) for row in rows])


async def _append(
    connection: Connection, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]
) -> int:
    if not rows:
        return 0
    staging = f"incoming_{table}"
    # Made once per connection and emptied by each commit: making it anew each time would bloat the
    # catalog and cost more than the rows.
    await connection.execute(
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {staging} (LIKE noetl.{table}) ON COMMIT DELETE ROWS"
    )
    await connection.copy_records_to_table(staging, records=rows, columns=list(columns))
    names = ", ".join(columns)
    done = await connection.execute(
        f"INSERT INTO noetl.{table} ({names}) SELECT {names} FROM {staging} ON CONFLICT DO NOTHING"
    )
    return changed_rows(done)


def event_values(row: EventRow) -> tuple[Any, ...]:
    """An event's columns in the order of ``EVENT_COLUMNS``."""
    event = row.event
    texts: tuple[str | None, ...] = (
        event.stream_id,
        event.aggregate_id,
        event.producer,
        event.correlation_id,
        event.idempotency_key,
        event.stage_id,
        event.frame_id,
        event.command_id,
    )
    if "\0" in "".join(filter(None, texts)):
        texts = tuple(clean(text) for text in texts)
    stream, aggregate, producer, correlation, idempotency, stage, frame, command = texts
    return (
        event.event_id,
        row.position,
        row.ordinal,
        event.tenant_id,
        event.organization_id,
        event.execution_id,
        row.shard,
        stream,
        aggregate,
        event.aggregate_type,
        event.event_type,
        event.schema_name,
        event.schema_version,
        instant(event.event_time),
        instant(event.ingest_time),
        producer,
        event.causation_id,
        correlation,
        idempotency,
        event.prev_event_id,
        stage,
        frame,
        command,
        event.payload,
        event.payload_ref,
        event.meta,
        event.envelope_checksum,
    )


def event_of(row: Any) -> EventRow:
    """The inverse of :func:`event_values`."""
    fields = {name: row[name] for name in EVENT_COLUMNS}
    position, ordinal, shard = (fields.pop(name) for name in ("position", "ordinal", "shard"))
    fields["event_time"] = iso(row["event_time"])
    fields["ingest_time"] = iso(row["ingest_time"])
    if not registry().is_newest(fields["schema_name"], fields["schema_version"]):
        fields = registry().lift(fields | {"envelope_checksum": ""})
    return EventRow(
        position=position, ordinal=ordinal, shard=shard, event=msgspec.convert(fields, Event)
    )


def line_values(row: LogRow) -> tuple[Any, ...]:
    """A line's columns in the order of ``LINE_COLUMNS``."""
    line = row.line
    return (
        row.log_id,
        line.tenant_id,
        line.organization_id,
        line.execution_id,
        clean(line.step),
        line.visit,
        clean(line.task),
        line.attempt,
        line.stream,
        instant(iso_utc(line.time_ms)),
        clean(line.text),
    )


def line_of(row: Any) -> LogRow:
    """The inverse of :func:`line_values`."""
    fields = {name: row[name] for name in LINE_COLUMNS}
    log_id, time = fields.pop("log_id"), fields.pop("time")
    return LogRow(log_id=log_id, line=LogLine(**fields, time_ms=round(time.timestamp() * 1000)))
