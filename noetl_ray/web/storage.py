"""Routes about where objects lie: cells, access plans, tiers (LOC-5, LOC-6, LOC-7, CCH-8).

Served from settings and memory; no store is asked, and no key or secret is shown.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from noetl_ray.errors import UsageError
from noetl_ray.locator.cells import PURPOSES, Location, resolve
from noetl_ray.locator.legacy import parse_legacy_uri, shape_of
from noetl_ray.payloads.opening import cell_of
from noetl_ray.payloads.replicated import ReplicatedObjects
from noetl_ray.payloads.sealed import SealedObjects
from noetl_ray.web.deps import Caller, caller_of
from noetl_ray.web.shapes import json_response

Asking = Annotated[Caller, Depends(caller_of)]

routes = APIRouter(prefix="/api/internal")


@routes.get("/cells")
async def cells(caller: Asking) -> Response:
    """Cell to provider, bucket, endpoint and region, with every copy and what is known of it."""
    cell = cell_of(caller.deps.settings)
    states = _health(caller)
    primary = _shape(cell.locations[0], states)
    return json_response(
        {
            "cells": {
                cell.name: {
                    **{name: primary[name] for name in ("provider", "bucket", "endpoint")},
                    "region": cell.region,
                    "locations": [_shape(location, states) for location in cell.locations],
                }
            },
            "shard_count": caller.deps.settings.runtime.shard_count,
        }
    )


@routes.get("/resolve")
async def plan(
    caller: Asking,
    uri: str,
    purpose: str = "read",
    preferred_region: str = "",
    required_capability: str = "",
) -> Response:
    """Where the bytes of a name are to be asked for: keys, and locations best first."""
    shape = shape_of(uri)
    caller.metrics.uris.labels(shape).inc()
    if shape == "legacy":
        uri = _modern(caller, uri)
    chosen = next((known for known in PURPOSES if known == purpose), None)
    if chosen is None:
        msg = f"purpose {purpose[:40]!r} is not one of {', '.join(PURPOSES)}"
        raise UsageError(msg)
    states = _health(caller)
    found = resolve(
        cell_of(caller.deps.settings),
        caller.deps.results.placement,
        uri,
        requester=caller.scope,
        purpose=chosen,
        preferred_region=preferred_region,
        required_capability=required_capability,
        health=states,
    )
    return json_response(
        {
            "uri": found.uri,
            "purpose": found.purpose,
            "requester": found.requester,
            "cell": found.cell,
            "keys": list(found.keys),
            "chosen": found.chosen.name,
            "locations": [_shape(location, states) for location, _ in found.locations],
        }
    )


@routes.get("/tiers")
async def tiers(caller: Asking) -> Response:
    """What the tiers of all processes did, as last told: totals, shares, and each process."""
    return json_response(caller.deps.tiers.page())


def _modern(caller: Caller, uri: str) -> str:
    name = parse_legacy_uri(uri).in_project(caller.scope.tenant_id, caller.project_id)
    if name is None:
        msg = f"{uri[:120]!r} names a result but not its coordinates: ask for it by step"
        raise UsageError(msg)
    return name.uri


def _health(caller: Caller) -> dict[str, Any]:
    objects = caller.deps.results.objects
    if isinstance(objects, SealedObjects):
        objects = objects.inner
    return dict(objects.health()) if isinstance(objects, ReplicatedObjects) else {}


def _shape(location: Location, states: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": location.name,
        "provider": location.provider,
        "bucket": location.bucket,
        "prefix": location.prefix,
        "endpoint": location.endpoint,
        "region": location.region,
        "capabilities": list(location.capabilities),
        "replica_state": states.get(location.name, "healthy"),
    }
