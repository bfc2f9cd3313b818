"""The projection store on Postgres: one transaction per batch, rows and position together (P30).

Only projectors hold one (PRJ-1). Its connections are operators: they write for every scope. As the
tables' only writer it also brings their schema up to date, before its first use and again whenever
the tables are gone: a dropped read model is then rebuilt by whoever projects.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from noetl_ray.errors import ConflictError
from noetl_ray.readmodel.limits import check_limit
from noetl_ray.readmodel.objects import newest_objects
from noetl_ray.readmodel.postgres_errors import store_errors
from noetl_ray.readmodel.postgres_events import insert_events, insert_lines
from noetl_ray.readmodel.postgres_pool import (
    changed_rows,
    close_pool,
    columns_of,
    instant,
    open_pool,
)
from noetl_ray.readmodel.postgres_tables import (
    BUSINESS_OBJECT,
    COMMAND,
    EXECUTION,
    FRAME,
    OBJECT_HISTORY,
    PLAYBOOK,
    PROJECTION,
    SHARD,
    SNAPSHOT,
    STAGE,
    WORKER,
    Table,
    projection_of,
)
from noetl_ray.readmodel.records import (
    Checkpoint,
    CommitResult,
    ProjectionBatch,
    ProjectionKey,
    ProjectionRecord,
    ProjectionSnapshot,
)
from noetl_ray.readmodel.schema import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import msgspec

    from noetl_ray.readmodel.postgres_pool import Connection, Pool
    from noetl_ray.scope import Scope

_OF_KEY = " AND ".join(f"{name} = ${n}" for n, name in enumerate(PROJECTION.key, 1))


class PostgresProjectionStore:
    """``ProjectionStore`` over a pool. Opening it connects to nothing yet."""

    def __init__(self, pool: Pool, dsn: str) -> None:
        self._pool = pool
        self._dsn = dsn
        self._is_current = False
        self.stale = 0
        """Writes that were older than what was held (PRS-2)."""

    @classmethod
    async def open(cls, dsn: str, *, pool_max: int = 4) -> PostgresProjectionStore:
        """A store on a database; its role must be allowed to make the schema if there is none."""
        with store_errors():
            return cls(await open_pool(dsn, size_max=pool_max, operator=True), dsn)

    async def close(self) -> None:
        """Let go of connections."""
        await close_pool(self._pool)

    async def save_projection(self, record: ProjectionRecord) -> bool:
        """Keep a projection unless a newer or equal version is held."""
        async with self._connection() as connection:
            stale = await _write(connection, PROJECTION, [record])
        self.stale += stale
        return not stale

    async def load_projection(self, key: ProjectionKey) -> ProjectionRecord | None:
        """The projection of that name, or None."""
        async with self._connection() as connection:
            row = await connection.fetchrow(f"{PROJECTION.select} WHERE {_OF_KEY}", *_key(key))
        return None if row is None else projection_of(row)

    async def save_snapshot(self, snapshot: ProjectionSnapshot) -> bool:
        """Keep a snapshot beside those of other versions."""
        async with self._connection() as connection:
            return not await _write(connection, SNAPSHOT, [snapshot])

    async def load_snapshot(
        self, key: ProjectionKey, *, at_or_before: int | None = None
    ) -> ProjectionSnapshot | None:
        """The newest snapshot, or the newest not after a position."""
        async with self._connection() as connection:
            row = await connection.fetchrow(
                f"{SNAPSHOT.select} WHERE {_OF_KEY} AND ($8::bigint IS NULL OR version <= $8) "
                "ORDER BY version DESC LIMIT 1",
                *_key(key),
                at_or_before,
            )
        if row is None:
            return None
        return ProjectionSnapshot(record=projection_of(row), reason=row["reason"])

    async def query(
        self,
        scope: Scope,
        *,
        projection_type: str,
        execution_ids: Sequence[int] | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[ProjectionRecord]:
        """Projections of one type by ascending execution id."""
        check_limit(limit)
        only = "" if execution_ids is None else "AND execution_id = ANY($6::bigint[]) "
        async with self._connection() as connection:
            rows = await connection.fetch(
                f"{PROJECTION.select} WHERE tenant_id = $1 AND organization_id = $2 "
                f"AND projection_type = $3 AND execution_id > $4 {only}"
                "ORDER BY execution_id, stage_id, frame_id LIMIT $5",
                scope.tenant_id,
                scope.organization_id,
                projection_type,
                after,
                limit,
                *(() if execution_ids is None else (list(execution_ids),)),
            )
        return [projection_of(row) for row in rows]

    async def commit(self, batch: ProjectionBatch) -> CommitResult:
        """Write a whole batch and its checkpoints in one transaction, or nothing."""
        async with self._connection() as connection, connection.transaction():
            await _fence(connection, batch.checkpoints)
            events_new = await insert_events(connection, batch.events)
            stale = await _write_rows(connection, batch)
            await insert_lines(connection, batch.lines)
            await _advance(connection, batch.checkpoints)
        self.stale += stale
        return CommitResult(events_new=events_new, stale=stale)

    async def position(self, consumer: str) -> int:
        """The last position this consumer has committed, 0 when none."""
        async with self._connection() as connection:
            held = await connection.fetchval(
                "SELECT last_projected_position FROM noetl.projection_checkpoint "
                "WHERE consumer = $1",
                consumer,
            )
        return int(held or 0)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        if not self._is_current:
            await migrate(self._dsn)
            self._is_current = True
        with store_errors():
            try:
                async with self._pool.acquire() as connection:
                    yield connection
            except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
                self._is_current = False
                raise


async def _write_rows(connection: Connection, batch: ProjectionBatch) -> int:
    stale = await _write(connection, EXECUTION, batch.executions)
    stale += await _write(connection, COMMAND, batch.commands)
    stale += await _write(connection, STAGE, batch.stages)
    stale += await _write(connection, FRAME, batch.frames)
    stale += await _write(connection, WORKER, batch.workers)
    stale += await _write(connection, SHARD, batch.shards)
    await _write(connection, PLAYBOOK, batch.playbooks)
    await _write(connection, OBJECT_HISTORY, batch.objects)
    objects = newest_objects(batch.objects)
    # Statements of several shards arrive out of step: an older one is no sign of trouble.
    await _write(connection, BUSINESS_OBJECT, objects)
    return stale + await _write(connection, PROJECTION, batch.projections)


async def _write(connection: Connection, table: Table, rows: Sequence[msgspec.Struct]) -> int:
    """Write rows in one statement; returns how many were turned away as stale."""
    if not rows:
        return 0
    done = await connection.execute(table.insert, *table.columns_of(rows))
    return len(rows) - changed_rows(done)


async def _fence(connection: Connection, marks: Sequence[Checkpoint]) -> None:
    """Lock the checkpoints and refuse when another projector has moved them.

    A consumer's first commit finds no row to lock; the unconditional INSERT of ``_advance`` is its
    fence.
    """
    rows = await connection.fetch(
        "SELECT consumer, last_projected_position FROM noetl.projection_checkpoint "
        "WHERE consumer = ANY($1::text[]) ORDER BY consumer FOR UPDATE",
        [mark.consumer for mark in marks],
    )
    held = {row["consumer"]: row["last_projected_position"] for row in rows}
    for mark in marks:
        if held.get(mark.consumer, 0) != mark.expected:
            msg = (
                f"{mark.consumer}: expected position {mark.expected}, "
                f"the store has {held.get(mark.consumer, 0)}"
            )
            raise ConflictError(msg)


async def _advance(connection: Connection, marks: Sequence[Checkpoint]) -> None:
    if not marks:
        return
    rows = [
        (
            mark.consumer,
            mark.expected,
            mark.position,
            mark.event_id,
            instant(mark.projected_at),
            mark.lag_ms,
        )
        for mark in sorted(marks, key=lambda mark: mark.consumer)
    ]
    done = await connection.execute(
        "WITH mark AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], "
        "$5::timestamptz[], $6::bigint[]) "
        "AS mark (consumer, expected, position, event_id, projected_at, lag_ms)) "
        "INSERT INTO noetl.projection_checkpoint AS held "
        "SELECT consumer, position, event_id, projected_at, lag_ms FROM mark "
        "ON CONFLICT (consumer) DO UPDATE SET "
        "last_projected_position = EXCLUDED.last_projected_position, "
        "last_projected_event_id = EXCLUDED.last_projected_event_id, "
        "last_projected_at = EXCLUDED.last_projected_at, lag_ms = EXCLUDED.lag_ms "
        "WHERE held.last_projected_position = "
        "(SELECT expected FROM mark WHERE mark.consumer = held.consumer)",
        *columns_of(rows),
    )
    if changed_rows(done) != len(rows):
        msg = f"checkpoints of {rows[0][0]} and others were moved by another projector"
        raise ConflictError(msg)


def _key(key: ProjectionKey) -> tuple[Any, ...]:
    return tuple(getattr(key, name) for name in PROJECTION.key)
