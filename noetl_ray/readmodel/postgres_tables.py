"""How rows become columns and back, and the statements that write them. No connection is held here.

Each table is written by one statement per batch: ``INSERT … SELECT FROM unnest(…) ON CONFLICT …``.
The WHERE of the conflict clause keeps versions monotonic (PRS-2), and what it turns away is counted
as stale.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from noetl_ray.readmodel.postgres_pool import clean, instant, iso
from noetl_ray.readmodel.records import (
    BusinessObjectRow,
    CommandRow,
    ExecutionRow,
    FrameRow,
    PlaybookRow,
    ProjectionKey,
    ProjectionRecord,
    StageRow,
    WorkerRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import msgspec


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table's columns with their types; column names are the fields of its row."""

    name: str
    columns: dict[str, str]
    key: tuple[str, ...]
    conflict: str
    paths: dict[str, str] = field(default_factory=dict)
    """Where a column's value lies within its row, when it is not a field of that name."""

    @cached_property
    def insert(self) -> str:
        """The statement that writes any number of rows, each parameter one column."""
        names = ", ".join(self.columns)
        arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(self.columns.values(), 1))
        return (
            f"INSERT INTO noetl.{self.name} AS held ({names}) SELECT * FROM unnest({arrays}) "
            f"ON CONFLICT ({', '.join(self.key)}) {self.conflict}"
        )

    @property
    def select(self) -> str:
        """The columns and the table, for reading."""
        return f"SELECT {', '.join(self.columns)} FROM noetl.{self.name}"

    @cached_property
    def _values(self) -> Callable[[msgspec.Struct], tuple[Any, ...]]:
        return attrgetter(*(self.paths.get(name, name) for name in self.columns))

    def columns_of(self, rows: Sequence[msgspec.Struct]) -> list[Sequence[Any]]:
        """Any number of rows, at least one, as the driver takes them: column by column."""
        found = zip(*map(self._values, rows), strict=True)
        columns: list[Sequence[Any]] = []
        for kind, values in zip(self.columns.values(), found, strict=True):
            convert = _INWARD.get(kind)
            columns.append(values if convert is None else convert(values))
        return columns

    def fields(self, record: Any) -> dict[str, Any]:
        """A row's fields as they were before :meth:`columns_of`."""
        return {
            name: _OUTWARD.get(kind, _same)(record[name]) for name, kind in self.columns.items()
        }


def _same(value: Any) -> Any:
    return value


def _texts(values: Sequence[str | None]) -> Sequence[str | None]:
    """Text as Postgres can hold it; one look is enough for a column without a NUL."""
    if "\0" in "".join(filter(None, values)):
        return [clean(value) for value in values]
    return values


def _instants(values: Sequence[str | None]) -> Sequence[datetime | None]:
    return [instant(value) for value in values]


_INWARD: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
    "text": _texts,
    "timestamptz": _instants,
}
_OUTWARD: dict[str, Callable[[Any], Any]] = {"timestamptz": iso}


def _newer(version: str, columns: Sequence[str], special: dict[str, str]) -> str:
    sets = ", ".join(f"{name} = {special.get(name, f'EXCLUDED.{name}')}" for name in columns)
    return f"DO UPDATE SET {sets} WHERE held.{version} < EXCLUDED.{version}"


_ENDED = "held.status IN ('COMPLETED', 'FAILED', 'CANCELLED')"
_SCOPE = {"tenant_id": "text", "organization_id": "text"}

_EXECUTION_COLUMNS = _SCOPE | {
    "execution_id": "bigint", "project_id": "text", "shard": "smallint", "status": "text",
    "path": "text", "playbook_version": "integer", "digest": "text",
    "started_at": "timestamptz", "ended_at": "timestamptz", "final_step": "text",
    "error": "jsonb", "steps": "jsonb", "counters": "jsonb", "event_count": "bigint",
    "last_event_id": "bigint", "last_position": "bigint", "parent_execution_id": "bigint",
    "idempotency_key": "text", "checksum": "text", "updated_at": "timestamptz",
}  # fmt: skip
EXECUTION = Table(
    name="execution",
    columns=_EXECUTION_COLUMNS,
    key=("tenant_id", "organization_id", "execution_id"),
    conflict=_newer(
        "last_position",
        [name for name in _EXECUTION_COLUMNS if name not in (*_SCOPE, "execution_id")],
        {
            # PRJ-12 once more, beneath the fold: an execution never leaves its end.
            name: f"CASE WHEN {_ENDED} THEN held.{name} ELSE EXCLUDED.{name} END"
            for name in ("status", "ended_at")
        },
    ),
)

_COMMAND_COLUMNS = _SCOPE | {
    "execution_id": "bigint", "command_id": "text", "position": "bigint", "status": "text",
    "step": "text", "visit": "integer", "attempt": "integer", "worker_id": "text",
    "incarnation": "text", "issued_event_id": "bigint", "claimed_event_id": "bigint",
    "terminal_event_id": "bigint", "issued_at": "timestamptz", "claimed_at": "timestamptz",
    "ended_at": "timestamptz", "error": "jsonb",
}  # fmt: skip
COMMAND = Table(
    name="command",
    columns=_COMMAND_COLUMNS,
    key=("tenant_id", "organization_id", "execution_id", "command_id"),
    # The rule of rows.merge_command, said in SQL.
    conflict=_newer(
        "position",
        [n for n in _COMMAND_COLUMNS if n not in (*_SCOPE, "execution_id", "command_id")],
        {
            name: f"COALESCE(EXCLUDED.{name}, held.{name})"
            for name in (
                "step", "visit", "worker_id", "incarnation", "claimed_event_id", "claimed_at",
            )
        }
        | {
            name: f"COALESCE(held.{name}, EXCLUDED.{name})"
            for name in ("issued_event_id", "issued_at", "terminal_event_id", "ended_at")
        }
        | {
            "status": f"CASE WHEN {_ENDED} THEN held.status ELSE EXCLUDED.status END",
            "error": f"CASE WHEN {_ENDED} THEN held.error "
            "ELSE COALESCE(EXCLUDED.error, held.error) END",
            "attempt": "GREATEST(held.attempt, EXCLUDED.attempt)",
        },
    ),
)  # fmt: skip

PLAYBOOK = Table(
    name="playbook",
    columns=_SCOPE
    | {
        "path": "text", "version": "integer", "digest": "text", "position": "bigint",
        "registered_at": "timestamptz", "name": "text", "source": "text",
        "source_ref": "jsonb", "size_bytes": "bigint",
    },
    key=("tenant_id", "organization_id", "path", "version"),
    conflict="DO NOTHING",
)  # fmt: skip

_WORKER_COLUMNS = {
    "worker_id": "text", "incarnation": "text", "status": "text", "position": "bigint",
    "slots": "integer", "place": "jsonb", "joined_at": "timestamptz",
    "ended_at": "timestamptz", "reason": "text",
}  # fmt: skip
_ANEW = "EXCLUDED.status = 'up' OR held.incarnation <> EXCLUDED.incarnation"
WORKER = Table(
    name="worker",
    columns=_WORKER_COLUMNS,
    key=("worker_id",),
    # The rule of rows.merge_worker, said in SQL.
    conflict=_newer(
        "position",
        [name for name in _WORKER_COLUMNS if name != "worker_id"],
        {
            "slots": f"CASE WHEN {_ANEW} THEN EXCLUDED.slots "
            "ELSE COALESCE(EXCLUDED.slots, held.slots) END",
            "place": f"CASE WHEN {_ANEW} THEN EXCLUDED.place ELSE held.place || EXCLUDED.place END",
            "joined_at": f"CASE WHEN {_ANEW} THEN EXCLUDED.joined_at ELSE held.joined_at END",
        },
    ),
)

_OBJECT_COLUMNS = _SCOPE | {
    "object_type": "text", "object_id": "text", "version": "bigint", "status": "text",
    "attributes": "jsonb", "recorded_at": "timestamptz", "event_id": "bigint",
    "execution_id": "bigint", "command_id": "text", "step": "text", "visit": "integer",
    "task": "text", "reference": "jsonb",
}  # fmt: skip
_OBJECT_KEY = (*_SCOPE, "object_type", "object_id")
BUSINESS_OBJECT = Table(
    name="business_object",
    columns=_OBJECT_COLUMNS,
    key=_OBJECT_KEY,
    conflict=_newer("version", [n for n in _OBJECT_COLUMNS if n not in _OBJECT_KEY], {}),
)
OBJECT_HISTORY = Table(
    name="business_object_history",
    columns=_OBJECT_COLUMNS,
    key=(*_OBJECT_KEY, "version"),
    conflict="DO NOTHING",
)

_STAGE_COLUMNS = _SCOPE | {
    "execution_id": "bigint", "stage_id": "text", "position": "bigint",
    "parent_event_id": "bigint", "parent_stage_id": "text", "loop_event_id": "bigint",
    "opened_event_id": "bigint", "closed_event_id": "bigint", "kind": "text",
    "step_name": "text", "visit": "integer", "dsl_ref": "text", "status": "text",
    "frame_policy": "jsonb", "stats": "jsonb", "started_at": "timestamptz",
    "ended_at": "timestamptz",
}  # fmt: skip
_STAGE_KEY = (*_SCOPE, "execution_id", "stage_id")
_STAGE_CHANGES = [name for name in _STAGE_COLUMNS if name not in _STAGE_KEY]
STAGE = Table(
    name="stage",
    columns=_STAGE_COLUMNS,
    key=_STAGE_KEY,
    # The rule of frames.merge_stage, said in SQL.
    conflict=_newer(
        "position",
        _STAGE_CHANGES,
        {
            name: f"COALESCE(EXCLUDED.{name}, held.{name})"
            for name in _STAGE_CHANGES
            if name not in ("position", "status")
        },
    ),
)

_FRAME_COLUMNS = _SCOPE | {
    "execution_id": "bigint", "frame_id": "text", "stage_id": "text", "position": "bigint",
    "parent_frame_id": "text", "command_id": "text", "claimed_event_id": "bigint",
    "terminal_event_id": "bigint", "cursor": "jsonb", "row_count": "bigint", "status": "text",
    "owner_worker": "text", "lease_until": "timestamptz", "output_ref": "jsonb",
    "events_emitted": "integer", "attempts": "integer", "created_at": "timestamptz",
    "completed_at": "timestamptz", "error": "jsonb",
}  # fmt: skip
_FRAME_KEY = (*_SCOPE, "execution_id", "frame_id")
_FRAME_CHANGES = [name for name in _FRAME_COLUMNS if name not in _FRAME_KEY]
_FRAME_OVER = "held.status IN ('COMMITTED', 'FAILED')"
FRAME = Table(
    name="frame",
    columns=_FRAME_COLUMNS,
    key=_FRAME_KEY,
    # The rule of frames.merge_frame, said in SQL.
    conflict=_newer(
        "position",
        _FRAME_CHANGES,
        {
            name: f"COALESCE(EXCLUDED.{name}, held.{name})"
            for name in _FRAME_CHANGES
            if name != "position"
        }
        | {
            "status": f"CASE WHEN {_FRAME_OVER} THEN held.status ELSE EXCLUDED.status END",
            "terminal_event_id": "COALESCE(held.terminal_event_id, EXCLUDED.terminal_event_id)",
            "attempts": "GREATEST(held.attempts, EXCLUDED.attempts)",
            "events_emitted": "held.events_emitted + EXCLUDED.events_emitted",
        },
    ),
)

_SHARD_COLUMNS = {
    "shard_id": "integer", "position": "bigint", "status": "text", "owner_runtime_id": "text",
    "owner_instance": "text", "epoch": "bigint", "claimed_at": "timestamptz",
    "leased_until": "timestamptz", "reason": "text", "checkpoint_position": "bigint",
    "checkpoint_event_id": "bigint", "checkpoint_executions": "integer",
    "committed_at": "timestamptz", "updated_at": "timestamptz",
}  # fmt: skip
SHARD = Table(
    name="execution_shard",
    columns=_SHARD_COLUMNS,
    key=("shard_id",),
    # The rule of shards.merge_shard, said in SQL.
    conflict=_newer(
        "position",
        [name for name in _SHARD_COLUMNS if name != "shard_id"],
        {
            name: f"COALESCE(EXCLUDED.{name}, held.{name})"
            for name in _SHARD_COLUMNS
            if name not in ("shard_id", "position")
        },
    ),
)

_PROJECTION_KEY = _SCOPE | {
    "projection_type": "text", "execution_id": "bigint", "stage_id": "text",
    "frame_id": "text", "partition_id": "text",
}  # fmt: skip
_PROJECTION_VALUES = {
    "version": "bigint", "state": "text", "checksum": "text", "source_event_id": "bigint",
    "source_first_event_id": "bigint", "meta": "jsonb", "updated_at": "timestamptz",
}  # fmt: skip
_PROJECTION_PATHS = {name: f"key.{name}" for name in _PROJECTION_KEY} | {"state": "state_text"}
PROJECTION = Table(
    name="projection",
    columns=_PROJECTION_KEY | _PROJECTION_VALUES,
    key=tuple(_PROJECTION_KEY),
    conflict=_newer("version", list(_PROJECTION_VALUES), {}),
    paths=_PROJECTION_PATHS,
)
SNAPSHOT = Table(
    name="projection_snapshot",
    columns=_PROJECTION_KEY | _PROJECTION_VALUES | {"reason": "text"},
    key=(*_PROJECTION_KEY, "version"),
    conflict="DO NOTHING",
    paths={name: f"record.{_PROJECTION_PATHS.get(name, name)}" for name in PROJECTION.columns},
)


def projection_of(row: Any) -> ProjectionRecord:
    """A projection's row read back."""
    return ProjectionRecord(
        key=ProjectionKey(**{name: row[name] for name in _PROJECTION_KEY}),
        version=row["version"],
        state=row["state"].encode(),
        checksum=row["checksum"],
        source_event_id=row["source_event_id"],
        source_first_event_id=row["source_first_event_id"],
        meta=row["meta"],
        updated_at=iso(row["updated_at"]),
    )


def execution_of(row: Any) -> ExecutionRow:
    """An execution's row read back."""
    return ExecutionRow(**EXECUTION.fields(row))


def command_of(row: Any) -> CommandRow:
    """A command's row read back."""
    return CommandRow(**COMMAND.fields(row))


def playbook_of(row: Any) -> PlaybookRow:
    """A playbook's row read back."""
    return PlaybookRow(**PLAYBOOK.fields(row))


def object_of(row: Any) -> BusinessObjectRow:
    """What was said about an object, read back."""
    return BusinessObjectRow(**BUSINESS_OBJECT.fields(row))


def stage_of(row: Any) -> StageRow:
    """A stage's row read back."""
    return StageRow(**STAGE.fields(row))


def frame_of(row: Any) -> FrameRow:
    """A frame's row read back."""
    return FrameRow(**FRAME.fields(row))


def worker_of(row: Any) -> WorkerRow:
    """A worker's row read back."""
    return WorkerRow(**WORKER.fields(row))
