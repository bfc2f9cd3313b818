"""Routes about commands: those of an execution, one of them, and giving one to a worker by name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.submit.commands import claim_command
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import command_shape, json_response, read_body, schema_of

Asking = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]

STATUSES = ("ISSUED", "CLAIMED", "STARTED", "RELEASED", "COMPLETED", "FAILED", "CANCELLED")

routes = APIRouter(prefix="/api/commands")


class ClaimRequest(msgspec.Struct, kw_only=True):
    """Body of a claim."""

    execution_id: int | str
    position: int
    """Where the command was issued, as the events of the command say."""
    worker_id: str
    incarnation: str


@routes.get("")
async def commands(
    caller: Asking, execution_id: str, status: str | None = None, limit: Limit = 1_000
) -> Response:
    """The commands of an execution in the order they were issued."""
    if status is not None and status.upper() not in STATUSES:
        msg = f"status {status[:40]!r} is not one of {', '.join(STATUSES)}"
        raise UsageError(msg)
    rows = await caller.deps.queries.commands(caller.scope, execution_id_of(execution_id))
    found = [row for row in rows if status is None or row.status == status.upper()]
    return json_response({"commands": [command_shape(row) for row in found[:limit]]})


@routes.post("/{command_id:path}/claim", openapi_extra=schema_of(ClaimRequest))
async def claim(command_id: str, request: Request, caller: Asking) -> Response:
    """Give a command nobody has to a worker that has joined; 409 when somebody was first."""
    body = await read_body(request, ClaimRequest)
    if body.position < 1:
        msg = "position must be that of the event command.issued"
        raise UsageError(msg)
    number = execution_id_of(str(body.execution_id))
    claimed = await claim_command(
        caller.deps.submit,
        caller.scope,
        number,
        command_id,
        issued_position=body.position,
        worker_id=body.worker_id,
        incarnation=body.incarnation,
        lease_ms=caller.deps.settings.runtime.worker_lease_ms,
    )
    shape: dict[str, Any] = msgspec.to_builtins(claimed)
    return json_response({"command_id": command_id, "execution_id": str(number), **shape})


@routes.get("/{command_id:path}")
async def command(command_id: str, execution_id: str, caller: Asking) -> Response:
    """One command, and where it was issued, which a claim has to name."""
    number = execution_id_of(execution_id)
    rows = await caller.deps.queries.commands(caller.scope, number)
    for row in rows:
        if row.command_id == command_id:
            events = await caller.deps.queries.events(
                caller.scope, number, command_id=command_id, limit=1
            )
            issued = events[0].position if events else None
            return json_response({**command_shape(row), "issued_position": issued})
    msg = f"execution {execution_id} has no command {command_id!r}"
    raise NotFoundError(msg)
