"""Queries on Postgres: indexed reads of rows, each within one scope.

Every statement names its scope, and the connection has stated it too before the statement runs, so
that row-level security would hold even where a statement forgot (TEN-3). Nothing here folds events
(WAL-3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.engine.state import TERMINAL_STATUSES
from noetl_ray.events.envelope import EVENTS_PER_RECORD_MAX
from noetl_ray.readmodel.limits import check_limit, whole_records
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.readmodel.postgres_errors import store_errors
from noetl_ray.readmodel.postgres_events import SELECT_EVENTS, SELECT_LINES, event_of, line_of
from noetl_ray.readmodel.postgres_pool import close_pool, open_pool
from noetl_ray.readmodel.postgres_tables import (
    BUSINESS_OBJECT,
    COMMAND,
    EXECUTION,
    FRAME,
    OBJECT_HISTORY,
    PLAYBOOK,
    SHARD,
    STAGE,
    WORKER,
    command_of,
    execution_of,
    frame_of,
    object_of,
    playbook_of,
    stage_of,
    worker_of,
)
from noetl_ray.readmodel.postgres_whole import read_whole
from noetl_ray.readmodel.shards import ShardRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg import Record

    from noetl_ray.readmodel.postgres_pool import Pool
    from noetl_ray.readmodel.postgres_tables import Table
    from noetl_ray.readmodel.records import (
        BusinessObjectRow,
        CommandRow,
        EventRow,
        ExecutionRow,
        ExecutionRows,
        FrameRow,
        LogRow,
        PlaybookRow,
        StageRow,
        WorkerRow,
    )
    from noetl_ray.scope import Scope

_STATE_SCOPE = (
    "SELECT set_config('noetl.tenant_id', $1, false), "
    "set_config('noetl.organization_id', $2, false)"
)
_IN_SCOPE = "WHERE tenant_id = $1 AND organization_id = $2"


class PostgresQueries:
    """``Queries`` over a pool of connections that see one scope at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str, *, pool_max: int = 4) -> PostgresQueries:
        """Queries on a database; until a projector has made the tables they are unavailable."""
        with store_errors():
            return cls(await open_pool(dsn, size_max=pool_max, operator=False))

    async def close(self) -> None:
        """Let go of connections."""
        await close_pool(self._pool)

    async def execution(self, scope: Scope, execution_id: int) -> ExecutionRow | None:
        """One execution, or None when this scope has none of that id."""
        rows = await self._fetch(
            scope, f"{EXECUTION.select} {_IN_SCOPE} AND execution_id = $3", execution_id
        )
        return execution_of(rows[0]) if rows else None

    async def whole_execution(self, scope: Scope, execution_id: int) -> ExecutionRows | None:
        """Everything about one execution at one moment."""
        with store_errors():
            async with self._pool.acquire() as connection:
                await connection.execute(_STATE_SCOPE, scope.tenant_id, scope.organization_id)
                return await read_whole(connection, scope, execution_id)

    async def executions(
        self,
        scope: Scope,
        *,
        status: str | None = None,
        path: str | None = None,
        parent: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[ExecutionRow]:
        """Newest first."""
        wanted = {
            "status =": status,
            "path =": path,
            "parent_execution_id =": parent,
            "execution_id <": before,
        }
        rows = await self._newest(scope, EXECUTION, "execution_id", wanted, limit)
        return [execution_of(row) for row in rows]

    async def ended(self, scope: Scope, execution_ids: Sequence[int]) -> list[ExecutionRow]:
        """Those of the given executions that have ended."""
        if not execution_ids:
            return []
        check_limit(len(execution_ids))
        rows = await self._fetch(
            scope,
            f"{EXECUTION.select} {_IN_SCOPE} AND execution_id = ANY($3::bigint[]) "
            "AND status = ANY($4::text[])",
            execution_ids,
            sorted(TERMINAL_STATUSES),
        )
        return [execution_of(row) for row in rows]

    async def events(
        self,
        scope: Scope,
        execution_id: int,
        *,
        command_id: str | None = None,
        after_position: int = 0,
        limit: int = 500,
    ) -> list[EventRow]:
        """Events in log order after a position; a record is never cut."""
        check_limit(limit)
        only = "" if command_id is None else "AND command_id = $6 "
        rows = await self._fetch(
            scope,
            f"{SELECT_EVENTS} {_IN_SCOPE} AND execution_id = $3 AND position > $4 {only}"
            "ORDER BY position, ordinal LIMIT $5",
            execution_id,
            after_position,
            limit + EVENTS_PER_RECORD_MAX,
            *(() if command_id is None else (command_id,)),
        )
        return whole_records([event_of(row) for row in rows], limit)

    async def logs(
        self,
        scope: Scope,
        execution_id: int,
        *,
        step: str | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[LogRow]:
        """Printed lines in order after a log id."""
        check_limit(limit)
        only = "" if step is None else "AND step = $6 "
        rows = await self._fetch(
            scope,
            f"{SELECT_LINES} {_IN_SCOPE} AND execution_id = $3 AND log_id > $4 {only}"
            "ORDER BY log_id LIMIT $5",
            execution_id,
            after,
            limit,
            *(() if step is None else (step,)),
        )
        return [line_of(row) for row in rows]

    async def commands(self, scope: Scope, execution_id: int) -> list[CommandRow]:
        """All commands of an execution in the order they were issued."""
        rows = await self._fetch(
            scope,
            f"{COMMAND.select} {_IN_SCOPE} AND execution_id = $3 "
            f"ORDER BY COALESCE(issued_event_id, 0), command_id LIMIT {LIMIT_MAX}",
            execution_id,
        )
        return [command_of(row) for row in rows]

    async def stages(self, scope: Scope, execution_id: int) -> list[StageRow]:
        """Stages in the order they were opened."""
        rows = await self._newest(
            scope, STAGE, "opened_event_id", {"execution_id =": execution_id}, LIMIT_MAX
        )
        return [stage_of(row) for row in reversed(rows)]

    async def frames(
        self,
        scope: Scope,
        execution_id: int,
        *,
        stage_id: str | None = None,
        status: str | None = None,
        limit: int = 1_000,
    ) -> list[FrameRow]:
        """Frames, last changed first."""
        wanted = {"execution_id =": execution_id, "stage_id =": stage_id, "status =": status}
        rows = await self._newest(scope, FRAME, "position", wanted, limit)
        return [frame_of(row) for row in rows]

    async def playbooks(
        self,
        scope: Scope,
        *,
        path: str | None = None,
        version: int | None = None,
        limit: int = 100,
    ) -> list[PlaybookRow]:
        """Registered playbooks, newest version first."""
        check_limit(limit)
        values: list[Any] = []
        if path is None:
            newest = PLAYBOOK.select.replace("SELECT", "SELECT DISTINCT ON (path)", 1)
            statement = f"{newest} {_IN_SCOPE}"
        else:
            statement = f"{PLAYBOOK.select} {_IN_SCOPE} AND path = $4"
            values.append(path)
            if version is not None:
                statement += " AND version = $5"
                values.append(version)
        rows = await self._fetch(
            scope, f"{statement} ORDER BY path, version DESC LIMIT $3", limit, *values
        )
        return [playbook_of(row) for row in rows]

    async def business_objects(
        self,
        scope: Scope,
        *,
        object_type: str | None = None,
        object_id: str | None = None,
        status: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[BusinessObjectRow]:
        """Objects as they are, last changed first."""
        wanted = {
            "object_type =": object_type,
            "object_id =": object_id,
            "status =": status,
            "version <": before,
        }
        rows = await self._newest(scope, BUSINESS_OBJECT, "version", wanted, limit)
        return [object_of(row) for row in rows]

    async def business_object_history(
        self,
        scope: Scope,
        *,
        object_type: str | None = None,
        object_id: str | None = None,
        execution_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[BusinessObjectRow]:
        """Everything said, newest first."""
        wanted = {
            "object_type =": object_type,
            "object_id =": object_id,
            "execution_id =": execution_id,
            "version <": before,
        }
        rows = await self._newest(scope, OBJECT_HISTORY, "version", wanted, limit)
        return [object_of(row) for row in rows]

    async def shards(self) -> list[ShardRow]:
        """Every shard that was ever claimed or kept, in order."""
        with store_errors():
            rows = await self._pool.fetch(f"{SHARD.select} ORDER BY shard_id LIMIT {LIMIT_MAX}")
        return [ShardRow(**SHARD.fields(row)) for row in rows]

    async def workers(self) -> list[WorkerRow]:
        """Every worker ever seen, newest change first."""
        with store_errors():
            rows = await self._pool.fetch(
                f"{WORKER.select} ORDER BY position DESC, worker_id LIMIT {LIMIT_MAX}"
            )
        return [worker_of(row) for row in rows]

    async def _newest(
        self, scope: Scope, table: Table, order: str, wanted: Mapping[str, Any], limit: int
    ) -> list[Record]:
        """Rows of a table that meet the conditions, from the greatest down."""
        check_limit(limit)
        given = [(clause, value) for clause, value in wanted.items() if value is not None]
        # Only the conditions in use are written out, so that each combination finds its own index.
        more = "".join(f" AND {clause} ${n}" for n, (clause, _) in enumerate(given, 4))
        return await self._fetch(
            scope,
            f"{table.select} {_IN_SCOPE}{more} ORDER BY {order} DESC LIMIT $3",
            limit,
            *(value for _, value in given),
        )

    async def _fetch(self, scope: Scope, statement: str, *values: Any) -> list[Record]:
        with store_errors():
            async with self._pool.acquire() as connection:
                await connection.execute(_STATE_SCOPE, scope.tenant_id, scope.organization_id)
                return await connection.fetch(
                    statement, scope.tenant_id, scope.organization_id, *values
                )
