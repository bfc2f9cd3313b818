"""Routes of credentials. Data goes in and never comes out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import NotFoundError
from noetl_ray.web.deps import Caller, caller_of
from noetl_ray.web.shapes import (
    CredentialRequest,
    credential_shape,
    json_response,
    read_body,
    schema_of,
)

Asking = Annotated[Caller, Depends(caller_of)]

routes = APIRouter(prefix="/api/credentials")


@routes.post("", openapi_extra=schema_of(CredentialRequest))
async def add(request: Request, caller: Asking) -> Response:
    """Add or replace a credential."""
    body = await read_body(request, CredentialRequest)
    credential = Credential(
        name=body.name, type=body.type, data=body.data, description=body.description
    )
    await caller.deps.credentials.put(caller.scope, credential)
    return json_response(
        {"name": body.name, "type": body.type, "fields": sorted(body.data)}, status=201
    )


@routes.get("")
async def listed(caller: Asking) -> Response:
    """All credentials of the scope, without their data."""
    found = await caller.deps.credentials.list(caller.scope)
    return json_response({"credentials": [credential_shape(info) for info in found]})


@routes.delete("/{name:path}")
async def remove(name: str, caller: Asking) -> Response:
    """Remove a credential."""
    if not await caller.deps.credentials.remove(caller.scope, name):
        msg = f"no credential {name!r}"
        raise NotFoundError(msg)
    return json_response({"name": name, "status": "removed"})
