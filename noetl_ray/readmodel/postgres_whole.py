"""One execution with all its rows, read from Postgres at one moment.

A comparison with the log needs rows that belong together, however busy the projector is: all
statements see one snapshot, and so does the position that says up to where the log is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.readmodel.postgres_tables import (
    COMMAND,
    EXECUTION,
    FRAME,
    OBJECT_HISTORY,
    PROJECTION,
    STAGE,
    command_of,
    execution_of,
    frame_of,
    object_of,
    projection_of,
    stage_of,
)
from noetl_ray.readmodel.projecting import REGISTRY_DIGEST, shard_consumer
from noetl_ray.readmodel.records import EXECUTION_STATE, ExecutionRows

if TYPE_CHECKING:
    from asyncpg import Record

    from noetl_ray.readmodel.postgres_pool import Connection
    from noetl_ray.readmodel.postgres_tables import Table
    from noetl_ray.scope import Scope

_OF_EXECUTION = "WHERE tenant_id = $1 AND organization_id = $2 AND execution_id = $3"


async def read_whole(
    connection: Connection, scope: Scope, execution_id: int
) -> ExecutionRows | None:
    """Everything about one execution; the connection has stated its scope already."""
    asked = (scope.tenant_id, scope.organization_id, execution_id)

    async def rows_of(table: Table) -> list[Record]:
        return await connection.fetch(f"{table.select} {_OF_EXECUTION}", *asked)

    async with connection.transaction(isolation="repeatable_read", readonly=True):
        executions = await rows_of(EXECUTION)
        states = await connection.fetch(
            f"{PROJECTION.select} {_OF_EXECUTION} AND projection_type = $4", *asked, EXECUTION_STATE
        )
        if not executions or not states:
            return None
        row, kept = execution_of(executions[0]), projection_of(states[0])
        mark = await connection.fetchval(
            "SELECT last_projected_position FROM noetl.projection_checkpoint WHERE consumer = $1",
            shard_consumer(row.shard),
        )
        return ExecutionRows(
            execution=row,
            state=kept.state,
            registry_digest=kept.meta.get(REGISTRY_DIGEST, ""),
            position=max(mark or 0, row.last_position),
            commands=tuple(command_of(each) for each in await rows_of(COMMAND)),
            stages=tuple(stage_of(each) for each in await rows_of(STAGE)),
            frames=tuple(frame_of(each) for each in await rows_of(FRAME)),
            objects=tuple(object_of(each) for each in await rows_of(OBJECT_HISTORY)),
        )
