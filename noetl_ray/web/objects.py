"""Routes about business objects: what they are now, and everything that was said of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from noetl_ray.errors import UsageError
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import json_response, object_shape

Asking = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Before = Annotated[int | None, Query(ge=1)]
Type = Annotated[str | None, Query(alias="type")]
Id = Annotated[str | None, Query(alias="id")]

routes = APIRouter(prefix="/api/business-objects")


@routes.get("")
async def business_objects(
    caller: Asking,
    object_type: Type = None,
    object_id: Id = None,
    status: str | None = None,
    before: Before = None,
    limit: Limit = 100,
) -> Response:
    """Objects as they are, last changed first; ``next_before`` reads on."""
    rows = await caller.deps.queries.business_objects(
        caller.scope,
        object_type=object_type,
        object_id=object_id,
        status=status,
        before=before,
        limit=limit,
    )
    following = rows[-1].version if len(rows) == limit else None
    return json_response({"objects": [object_shape(row) for row in rows], "next_before": following})


@routes.get("/history")
async def history(
    caller: Asking,
    object_type: Type = None,
    object_id: Id = None,
    execution_id: str | None = None,
    before: Before = None,
    limit: Limit = 100,
) -> Response:
    """Everything said about one object, or by one execution, newest first."""
    if execution_id is None and (object_type is None or object_id is None):
        msg = "give type and id of an object, or an execution_id"
        raise UsageError(msg)
    rows = await caller.deps.queries.business_object_history(
        caller.scope,
        object_type=object_type,
        object_id=object_id,
        execution_id=None if execution_id is None else execution_id_of(execution_id),
        before=before,
        limit=limit,
    )
    following = rows[-1].version if len(rows) == limit else None
    return json_response({"objects": [object_shape(row) for row in rows], "next_before": following})
