"""Routes that keep the object store in order: garbage collection (GC-1), repair (DR-1).

Switched off unless the settings say otherwise, and a dry run unless the caller says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from noetl_ray.errors import ConflictError
from noetl_ray.replay.archive import Archive
from noetl_ray.results.collecting import Collector
from noetl_ray.results.repairing import Repairer
from noetl_ray.wal.subjects import catalog_filter, execution_filter, scope_filter
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import json_response, read_body, schema_of

if TYPE_CHECKING:
    from noetl_ray.results.collecting import Report

Asking = Annotated[Caller, Depends(caller_of)]

routes = APIRouter(prefix="/api/internal/result-tier")


class GcRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/internal/result-tier/gc``."""

    dry_run: bool = True


@routes.post("/gc", openapi_extra=schema_of(GcRequest))
async def collect(request: Request, caller: Asking) -> Response:
    """Look for objects of the caller's tenant that nobody needs; delete them when told to."""
    settings = caller.deps.settings.results
    if not settings.gc_enabled:
        msg = "garbage collection is off; set results.gc_enabled (NOETL_RESULT_TIER_GC)"
        raise ConflictError(msg)
    body = await read_body(request, GcRequest)
    collector = Collector(
        caller.deps.submit.log,
        caller.deps.results.objects,
        caller.deps.results.placement,
        caller.deps.clock,
        grace_ms=settings.gc_grace_s * 1_000,
        payload_ttl_ms=settings.payload_ttl_days * 86_400_000,
        archive=Archive(caller.deps.results.objects, caller.deps.results.placement),
    )
    report = await collector.collect(caller.scope, dry_run=body.dry_run)
    for outcome, count in report.counts.items():
        caller.metrics.collected.labels(outcome).inc(count)
    return json_response(_shape(report))


class RepairRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/internal/result-tier/repair``."""

    execution_id: str | int | None = None
    dry_run: bool = False


@routes.post("/repair", openapi_extra=schema_of(RepairRequest))
async def repair(request: Request, caller: Asking) -> Response:
    """Verify the objects that the log names, of one execution or all, and rebuild bad ones."""
    body = await read_body(request, RepairRequest)
    scope = caller.scope
    if body.execution_id is None:
        wanted = [scope_filter(scope), catalog_filter(scope)]
    else:
        wanted = [execution_filter(scope, execution_id_of(str(body.execution_id)))]
    repairer = Repairer(caller.deps.submit.log, caller.deps.results)
    report = await repairer.repair(scope, *wanted, dry_run=body.dry_run)
    for outcome, count in report.counts.items():
        caller.metrics.repaired.labels(outcome).inc(count)
    return json_response(
        {
            "dry_run": report.dry_run,
            "counts": dict(sorted(report.counts.items())),
            "findings": report.findings,
        }
    )


def _shape(report: Report) -> dict[str, Any]:
    return {
        "dry_run": report.dry_run,
        "counts": dict(sorted(report.counts.items())),
        "reclaimable_bytes": report.reclaimable_bytes,
        "live_candidates": report.live_candidates,
        "candidates": report.candidates,
    }
