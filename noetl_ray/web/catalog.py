"""Routes of the catalog: register, list, validate."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from noetl_ray.dsl.parse import parse_playbook
from noetl_ray.errors import PlaybookError
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.submit import register_playbook
from noetl_ray.web.deps import Caller, caller_of
from noetl_ray.web.shapes import (
    RegisterRequest,
    json_response,
    playbook_shape,
    read_body,
    schema_of,
)

Asking = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]

routes = APIRouter(prefix="/api")


@routes.post("/catalog/register", openapi_extra=schema_of(RegisterRequest))
async def register(request: Request, caller: Asking) -> Response:
    """Register a playbook; the same text as the newest version is that version."""
    body = await read_body(request, RegisterRequest)
    entry = await register_playbook(caller.deps.submit, caller.scope, body.content)
    return json_response(
        {
            **entry.pinned(),
            "catalog_id": entry.digest,
            "status": "registered" if entry.created else "unchanged",
        }
    )


@routes.get("/catalog")
async def catalog(
    caller: Asking,
    path: str | None = None,
    version: Annotated[int | None, Query(ge=1)] = None,
    limit: Limit = 100,
) -> Response:
    """The newest version of each path, or the versions of one."""
    rows = await caller.deps.queries.playbooks(
        caller.scope, path=path, version=version, limit=limit
    )
    return json_response({"playbooks": [playbook_shape(row) for row in rows]})


@routes.post("/validate", openapi_extra=schema_of(RegisterRequest))
async def validate(request: Request, _: Asking) -> Response:
    """Say whether a text could be registered, and if not every reason."""
    body = await read_body(request, RegisterRequest)
    try:
        playbook = parse_playbook(body.content)
    except PlaybookError as error:
        return json_response({"valid": False, "message": error.message, "problems": error.problems})
    return json_response(
        {
            "valid": True,
            "path": playbook.path,
            "name": playbook.name,
            "digest": playbook.digest,
            "entry": playbook.entry,
            "steps": list(playbook.steps),
            "problems": [],
        }
    )
