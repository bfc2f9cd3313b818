"""One execution with all its rows, read from Postgres at one moment.

A comparison with the log needs rows that belong together, however busy the projector is: all
statements see one snapshot, and so does the position that says up to where the log is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from collections.abc import Callable, Sequence

    from asyncpg import Record

    from noetl_ray.readmodel.postgres_pool import Connection
    from noetl_ray.readmodel.postgres_tables import Table
    from noetl_ray.scope import Scope

_OF_EXECUTIONS = (
    "WHERE tenant_id = $1 AND organization_id = $2 AND execution_id = ANY($3::bigint[])"
)


async def read_whole(
    connection: Connection, scope: Scope, execution_id: int
) -> ExecutionRows | None:
    """Everything about one execution; the connection has stated its scope already."""
    return (await read_many(connection, scope, [execution_id])).get(execution_id)


async def read_many(
    connection: Connection, scope: Scope, execution_ids: Sequence[int]
) -> dict[int, ExecutionRows]:
    """The same for several at once, by id; those there are."""
    asked = (scope.tenant_id, scope.organization_id, list(execution_ids))

    async def rows_of(table: Table) -> list[Record]:
        return await connection.fetch(f"{table.select} {_OF_EXECUTIONS}", *asked)

    async def grouped(table: Table, made: Callable[[Record], Any]) -> dict[int, list[Any]]:
        groups: dict[int, list[Any]] = {}
        for each in await rows_of(table):
            groups.setdefault(each["execution_id"], []).append(made(each))
        return groups

    async with connection.transaction(isolation="repeatable_read", readonly=True):
        rows = [execution_of(each) for each in await rows_of(EXECUTION)]
        kept = await connection.fetch(
            f"{PROJECTION.select} {_OF_EXECUTIONS} AND projection_type = $4",
            *asked,
            EXECUTION_STATE,
        )
        marks = await connection.fetch(
            "SELECT consumer, last_projected_position FROM noetl.projection_checkpoint"
        )
        commands = await grouped(COMMAND, command_of)
        stages = await grouped(STAGE, stage_of)
        frames = await grouped(FRAME, frame_of)
        objects = await grouped(OBJECT_HISTORY, object_of)
    states = {each["execution_id"]: projection_of(each) for each in kept}
    projected = {each["consumer"]: each["last_projected_position"] for each in marks}
    return {
        row.execution_id: ExecutionRows(
            execution=row,
            state=states[row.execution_id].state,
            registry_digest=states[row.execution_id].meta.get(REGISTRY_DIGEST, ""),
            position=max(projected.get(shard_consumer(row.shard), 0), row.last_position),
            commands=tuple(commands.get(row.execution_id, ())),
            stages=tuple(stages.get(row.execution_id, ())),
            frames=tuple(frames.get(row.execution_id, ())),
            objects=tuple(objects.get(row.execution_id, ())),
        )
        for row in rows
        if row.execution_id in states
    }
