"""Routes about events: reading those of an execution, and telling it something from outside.

What is told goes to the execution's inbox (P10). Nothing told here can pass for the runtime's own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from noetl_ray.errors import NotFoundError
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.submit.outside import OutsideFact, Told, tell
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import event_shape, json_response, read_body, schema_of
from noetl_ray.web.submitting import known_of

Asking = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]

routes = APIRouter(prefix="/api/events")


class EventRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/events``."""

    execution_id: int | str
    name: str
    data: dict[str, Any] = {}
    idempotency_key: str | None = None


class BatchedEvent(msgspec.Struct, kw_only=True):
    """One event of a batch."""

    name: str
    data: dict[str, Any] = {}


class EventBatchRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/events/batch``."""

    execution_id: int | str
    events: list[BatchedEvent]
    idempotency_key: str | None = None


@routes.get("")
async def events(
    caller: Asking,
    execution_id: str,
    command_id: str | None = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Limit = 500,
) -> Response:
    """Events of an execution, or of one of its commands, in log order."""
    number = execution_id_of(execution_id)
    found = await caller.deps.queries.events(
        caller.scope, number, command_id=command_id, after_position=after, limit=limit
    )
    if not found and after == 0 and command_id is None:
        msg = f"no execution {execution_id}; one just submitted appears within a moment"
        raise NotFoundError(msg)
    return json_response(
        {
            "events": [event_shape(each) for each in found],
            "next_after": found[-1].position if found else after,
        }
    )


@routes.post("", openapi_extra=schema_of(EventRequest))
async def event(request: Request, caller: Asking) -> Response:
    """Tell an execution one thing from outside."""
    body = await read_body(request, EventRequest)
    fact = OutsideFact(name=body.name, data=body.data)
    told = await _tell(caller, request, body, [fact], batch=False)
    return json_response({**_shape(told), "event_id": str(told.event_ids[0])}, status=202)


@routes.post("/batch", openapi_extra=schema_of(EventBatchRequest))
async def batch(request: Request, caller: Asking) -> Response:
    """Tell an execution several things at once, all of them or none."""
    body = await read_body(request, EventBatchRequest)
    facts = [OutsideFact(name=each.name, data=each.data) for each in body.events]
    told = await _tell(caller, request, body, facts, batch=True)
    more = {"batch_id": str(told.batch_id), "event_ids": [str(each) for each in told.event_ids]}
    return json_response({**_shape(told), **more}, status=202)


async def _tell(
    caller: Caller,
    request: Request,
    body: EventRequest | EventBatchRequest,
    facts: list[OutsideFact],
    *,
    batch: bool,
) -> Told:
    number = execution_id_of(str(body.execution_id))
    return await tell(
        caller.deps.submit,
        caller.scope,
        number,
        facts,
        batch=batch,
        key=body.idempotency_key or request.headers.get("idempotency-key"),
        **await known_of(caller, number),
    )


def _shape(told: Told) -> dict[str, Any]:
    return {
        "status": "duplicate" if told.duplicate else "accepted",
        "duplicate": told.duplicate,
        "position": told.position,
    }
