"""``GET /api/replay/state``: an execution folded anew from the log, as of any moment (RPL-1).

Answers from the log alone, so it works while the read model is away; asked to compare, it holds the
six checksums of both sides against each other and names the first difference (VAL-1).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

from noetl_ray.clock import iso_utc, parse_iso_utc
from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.events.upcast import registry
from noetl_ray.replay.archive import Archive
from noetl_ray.replay.payloads import references_in
from noetl_ray.replay.payloads import resolve_payloads as evidence
from noetl_ray.replay.reading import position_at_time, position_of_event
from noetl_ray.replay.snapshots import Start, newest_start, read_from
from noetl_ray.replay.surfaces import (
    CHECKSUM_ALGORITHM,
    bundle_of,
    checksum_of_bundle,
    differing,
    first_difference,
    rows_of_records,
    surfaces_of,
)
from noetl_ray.results.redact import mask
from noetl_ray.scope import Scope
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import json_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.readmodel.records import ExecutionRows
    from noetl_ray.wal.port import Recorded

Asking = Annotated[Caller, Depends(caller_of)]
Projection = Literal["execution", "frame", "loop", "business_object", "command", "stage", "all"]

_SHOWN: dict[str, tuple[str, ...]] = {
    "execution": ("execution",),
    "stage": ("stages",),
    "frame": ("stages", "frames"),
    "command": ("commands",),
    "loop": ("loops",),
    "business_object": ("business_objects",),
    "all": ("execution", "stages", "frames", "commands", "business_objects", "loops"),
}

routes = APIRouter(prefix="/api/replay")


@routes.get("/state")
async def state(
    caller: Asking,
    execution_id: str,
    tenant_id: str | None = None,
    organization_id: str | None = None,
    as_of_event_id: str | None = None,
    as_of_position: Annotated[int | None, Query(ge=1)] = None,
    as_of_time: str | None = None,
    projection: Projection = "execution",
    compare: bool = False,
    use_snapshot: bool = True,
    resolve_payloads: bool = False,
) -> Response:
    """The state of an execution as of a moment, with its checksums."""
    scope = Scope(
        tenant_id=tenant_id or caller.scope.tenant_id,
        organization_id=organization_id or caller.scope.organization_id,
    )
    if sum(given is not None for given in (as_of_event_id, as_of_position, as_of_time)) > 1:
        msg = "as_of_event_id, as_of_position and as_of_time exclude each other"
        raise UsageError(msg)
    if compare and (as_of_event_id or as_of_position or as_of_time):
        msg = "compare looks at what the read model holds now; leave as_of out"
        raise UsageError(msg)
    number = execution_id_of(execution_id)
    # The read model first: the log then has all of it, and is cut where the read model stands.
    live = await caller.deps.queries.whole_execution(scope, number) if compare else None
    results = caller.deps.results
    archive = Archive(results.objects, results.placement)
    start = Start()
    if (
        use_snapshot
        and not resolve_payloads
        and not compare
        and not as_of_event_id
        and not as_of_time
    ):
        # An event or a moment becomes a position only by its records, and a comparison is there to
        # doubt what lies beside the read model.
        start = await newest_start(caller.deps.states, scope, number, as_of=as_of_position)
    records = await read_from(caller.deps.submit.log, scope, number, start, archive)
    if compare:
        as_of = live.position if live is not None else None
    else:
        as_of = _position(records, as_of_event_id, as_of_position, as_of_time)
    body = await asyncio.to_thread(_answer, records, as_of, live, projection, compare, start)
    if resolve_payloads:
        body |= await evidence(results, scope, references_in(records, as_of=as_of))
    return json_response({"tenant_id": scope.tenant_id, "organization_id": scope.organization_id}
                         | body)  # fmt: skip


def _answer(
    records: Sequence[Recorded],
    as_of: int | None,
    live: ExecutionRows | None,
    projection: Projection,
    compare: bool,
    start: Start,
) -> dict[str, Any]:
    """Folding a long history takes its time: not on the loop that serves everyone."""
    rows = rows_of_records(records, as_of=as_of, start=start.rows)
    if rows is None:
        msg = f"the execution had not begun at position {as_of}"
        raise NotFoundError(msg)
    surfaces = surfaces_of(rows)
    bundle = bundle_of(surfaces)
    last_ms = max((r.time_ms for r in records if r.position <= rows.position), default=0)
    body: dict[str, Any] = {
        "execution_id": str(rows.execution.execution_id),
        "status": rows.execution.status,
        "position": rows.position,
        "as_of": iso_utc(last_ms or (start.told or {}).get("as_of_ms", 0)),
        "event_count": rows.execution.event_count,
        "projection": projection,
        "state": {name: mask(surfaces[name]) for name in _SHOWN[projection]},
        "checksum": checksum_of_bundle(bundle),
        "checksum_algorithm": CHECKSUM_ALGORITHM,
        "projection_checksums": bundle,
        "upcaster_registry_digest": registry().digest,
        "snapshot": start.told,
    }
    if compare:
        body["parity"] = _parity(surfaces, bundle, live)
    return body


def _parity(
    surfaces: dict[str, Any], bundle: dict[str, str], live: ExecutionRows | None
) -> dict[str, Any]:
    if live is None:
        return {"matches": False, "live_checksums": None, "differing": [], "first_difference": None}
    theirs = surfaces_of(live)
    live_bundle = bundle_of(theirs)
    apart = differing(bundle, live_bundle)
    return {
        "matches": not apart,
        "live_checksums": live_bundle,
        "differing": apart,
        "first_difference": mask(first_difference(surfaces, theirs)) if apart else None,
    }


def _position(
    records: Sequence[Recorded], event_id: str | None, position: int | None, time: str | None
) -> int | None:
    if event_id is not None:
        return position_of_event(records, execution_id_of(event_id))
    if time is not None:
        try:
            return position_at_time(records, parse_iso_utc(time))
        except ValueError:
            msg = f"as_of_time {time[:40]!r} is not UTC in ISO form, as 2026-01-31T12:00:00.000Z"
            raise UsageError(msg) from None
    return position
