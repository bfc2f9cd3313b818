"""Routes about the system itself: health, metrics, shards, workers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from noetl_ray import __version__
from noetl_ray.errors import NoetlError
from noetl_ray.web.deps import Caller, caller_of
from noetl_ray.web.problems import describe
from noetl_ray.web.shapes import json_response, shard_shape, worker_shape

Asking = Annotated[Caller, Depends(caller_of)]

routes = APIRouter()


@routes.get("/api/health")
async def health(caller: Asking) -> Response:
    """Whether the gateway can do its work; 503 with the reason when it cannot. Needs no token."""
    body: dict[str, Any] = {"status": "ok", "version": __version__}
    try:
        body["log_position"] = await caller.deps.submit.log.last_position()
        if caller.deps.health is not None:
            body |= await caller.deps.health()
    except NoetlError as error:
        body |= {"status": "unavailable", "error": describe(error)}
        return json_response(body, status=503)
    return json_response(body)


@routes.get("/metrics")
async def metrics(caller: Asking) -> Response:
    """Prometheus text."""
    return Response(caller.metrics.page(), media_type=CONTENT_TYPE_LATEST)


@routes.get("/api/shards")
async def shards(caller: Asking) -> Response:
    """Who owns each shard and how far it is kept; ``live`` is what its owner said lately."""
    rows = await caller.deps.queries.shards()
    live = caller.deps.shards.live() if caller.deps.shards is not None else {}
    return json_response({"shards": [shard_shape(row, live.get(row.shard_id)) for row in rows]})


@routes.get("/api/workers")
async def workers(caller: Asking) -> Response:
    """Every worker ever seen, newest change first."""
    rows = await caller.deps.queries.workers()
    return json_response({"workers": [worker_shape(row) for row in rows]})
