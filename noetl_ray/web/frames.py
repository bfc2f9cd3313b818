"""Routes about stages and frames: which windows of rows there are, and who has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import json_response

if TYPE_CHECKING:
    from noetl_ray.readmodel.records import FrameRow, StageRow

Asking = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]

routes = APIRouter(prefix="/api/executions/{execution_id}")


@routes.get("/stages")
async def stages(execution_id: str, caller: Asking) -> Response:
    """Stages of an execution in the order they were opened."""
    rows = await caller.deps.queries.stages(caller.scope, execution_id_of(execution_id))
    return json_response({"stages": [_shape(row) for row in rows]})


@routes.get("/frames")
async def frames(
    execution_id: str,
    caller: Asking,
    stage_id: str | None = None,
    status: str | None = None,
    limit: Limit = 1_000,
) -> Response:
    """Frames of an execution, last changed first."""
    rows = await caller.deps.queries.frames(
        caller.scope,
        execution_id_of(execution_id),
        stage_id=stage_id,
        status=status.upper() if status else None,
        limit=limit,
    )
    return json_response({"frames": [_shape(row) for row in rows]})


def _shape(row: StageRow | FrameRow) -> dict[str, Any]:
    """A row with its ids as text: they do not fit the numbers of every reader of JSON."""
    body: dict[str, Any] = msgspec.to_builtins(row)
    for name, value in body.items():
        if isinstance(value, int) and (name == "execution_id" or name.endswith("_event_id")):
            body[name] = str(value)
    return body
