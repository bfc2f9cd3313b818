"""Routes of the catalog: register, list, versions, show, validate.

What is asked of one path is read from the log, so that a version is there as soon as it is
registered; the list of paths comes from the read model.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from noetl_ray.dsl.parse import parse_playbook
from noetl_ray.dsl.problems import did_you_mean
from noetl_ray.errors import NotFoundError, PlaybookError, StoreError
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.submit import (
    find_playbook,
    playbook_text,
    playbook_versions,
    register_playbook,
)
from noetl_ray.submit.catalog import REGISTER_FIRST
from noetl_ray.web.deps import Caller, caller_of
from noetl_ray.web.shapes import (
    RegisterRequest,
    entry_shape,
    json_response,
    playbook_shape,
    read_body,
    schema_of,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Asking = Annotated[Caller, Depends(caller_of)]
PATHS_COMPARED_MAX = 1_000

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]

routes = APIRouter(prefix="/api")


@routes.post("/catalog/register", openapi_extra=schema_of(RegisterRequest))
async def register(request: Request, caller: Asking) -> Response:
    """Register a playbook; the same text as the newest version is that version."""
    body = await read_body(request, RegisterRequest)
    entry = await register_playbook(caller.deps.submit, caller.scope, body.content)
    return json_response(
        {
            **entry_shape(entry),
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


@routes.get("/catalog/versions")
async def versions(
    caller: Asking,
    path: str,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """The versions of a path, newest first; ``next_before`` reads on."""
    async with suggesting(caller, path):
        found = await playbook_versions(
            caller.deps.submit, caller.scope, path, before=before, limit=limit
        )
    more = found[-1].version if found and found[-1].version > 1 and len(found) == limit else None
    return json_response(
        {"path": path, "versions": [entry_shape(each) for each in found], "next_before": more}
    )


@routes.get("/catalog/show")
async def show(
    caller: Asking, path: str, version: str | None = None, digest: str | None = None
) -> Response:
    """One version with its text: the newest, or that of a version or digest."""
    async with suggesting(caller, path):
        entry = await find_playbook(
            caller.deps.submit, caller.scope, path, version=version_of(version), digest=digest
        )
    content = await playbook_text(caller.deps.submit, caller.scope, entry.digest)
    return json_response({**entry_shape(entry), "content": content})


@asynccontextmanager
async def suggesting(caller: Caller, path: str | None) -> AsyncIterator[None]:
    """Add the registered path most alike to the error about one that is not there."""
    try:
        yield
    except NotFoundError as error:
        if path is None:
            raise
        known: list[str] = []
        with suppress(StoreError):
            rows = await caller.deps.queries.playbooks(caller.scope, limit=PATHS_COMPARED_MAX)
            known = [row.path for row in rows]
        hint = "" if path in known else did_you_mean(path[:300], known)
        if not hint:
            raise
        said = error.message.removesuffix(REGISTER_FIRST)
        msg = f"{said}; {hint} see what there is with: noetl-ray catalog list"
        raise NotFoundError(msg) from None


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
