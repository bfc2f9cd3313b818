"""Routes about stages and frames: which there are, who has them, and the way to work by HTTP.

Claiming, heartbeats and commits are the fallback for operators and for workers that speak only
HTTP: they fold the execution from the log, which takes its time, and append what the runtime would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from noetl_ray.clock import iso_utc
from noetl_ray.errors import UsageError
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.replay.history import replay
from noetl_ray.replay.reading import read_execution
from noetl_ray.submit.frames import beat_frame, claim_frames, end_frame
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import json_response, read_body, schema_of

if TYPE_CHECKING:
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.readmodel.records import FrameRow, StageRow
    from noetl_ray.submit.frames import ClaimedFrame

Asking = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]

routes = APIRouter()
_OF_EXECUTION = "/api/executions/{execution_id}"


class ClaimRequest(msgspec.Struct, kw_only=True):
    """Body of a claim."""

    worker_id: str
    incarnation: str | None = None
    """Of a worker that has joined; it is then offered what it took."""
    requested_count: int = 1
    lease_seconds: float | None = None


class BeatRequest(msgspec.Struct, kw_only=True):
    """Body of a heartbeat; the first one starts the frame."""

    worker_id: str
    lease_seconds: float | None = None
    row_count: int = 0


class CommitRequest(msgspec.Struct, kw_only=True):
    """Body of a commit."""

    worker_id: str
    status: Literal["COMMITTED", "FAILED"] = "COMMITTED"
    row_count: int = 0
    failed: int = 0
    output_ref: dict[str, Any] | None = None
    cursor: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


@routes.get(_OF_EXECUTION + "/stages")
async def stages(execution_id: str, caller: Asking) -> Response:
    """Stages of an execution in the order they were opened."""
    rows = await caller.deps.queries.stages(caller.scope, execution_id_of(execution_id))
    return json_response({"stages": [_shape(row) for row in rows]})


@routes.get(_OF_EXECUTION + "/frames")
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


@routes.post("/api/stages/{stage_id:path}/frames/claim", openapi_extra=schema_of(ClaimRequest))
async def claim(stage_id: str, request: Request, caller: Asking) -> Response:
    """Take frames of a stage that nobody has, or whose lease has run out."""
    body = await read_body(request, ClaimRequest)
    claimed = await claim_frames(
        caller.deps.submit,
        await _state(caller, stage_id),
        stage_id,
        worker_id=_named(body.worker_id),
        incarnation=body.incarnation,
        count=body.requested_count,
        lease_seconds=body.lease_seconds,
    )
    return json_response({"frames": [_claimed(each) for each in claimed]})


@routes.post("/api/frames/{frame_id:path}/heartbeat", openapi_extra=schema_of(BeatRequest))
async def heartbeat(frame_id: str, request: Request, caller: Asking) -> Response:
    """Keep a frame; 409 when it has ended or is another's."""
    body = await read_body(request, BeatRequest)
    until = await beat_frame(
        caller.deps.submit,
        await _state(caller, frame_id),
        frame_id,
        worker_id=_named(body.worker_id),
        lease_seconds=body.lease_seconds,
        row_count=body.row_count,
    )
    return json_response({"frame_id": frame_id, "lease_until": iso_utc(until)})


@routes.post("/api/frames/{frame_id:path}/commit", openapi_extra=schema_of(CommitRequest))
async def commit(frame_id: str, request: Request, caller: Asking) -> Response:
    """End a frame; 409 with the end it has when it has one."""
    body = await read_body(request, CommitRequest)
    if body.row_count < 0 or not 0 <= body.failed <= body.row_count:
        msg = "row_count and failed must be 0 or more, failed at most row_count"
        raise UsageError(msg)
    error = body.error
    if body.status == "FAILED" and not (error and error.get("message")):
        msg = "a failed frame needs error.message: say what went wrong"
        raise UsageError(msg)
    event_id = await end_frame(
        caller.deps.submit,
        await _state(caller, frame_id),
        frame_id,
        worker_id=_named(body.worker_id),
        row_count=body.row_count,
        failed=body.failed,
        output_ref=body.output_ref,
        cursor=body.cursor,
        error=error if body.status == "FAILED" else None,
    )
    told = {"ok": True, "terminal_event_id": str(event_id), "next_action": "claim"}
    return json_response({"frame_id": frame_id, **told})


async def _state(caller: Caller, name: str) -> ExecutionState:
    """The execution a stage or a frame belongs to, folded from the log."""
    number = execution_id_of(name.partition("-")[0])
    records = await read_execution(caller.deps.submit.log, caller.scope, number)
    return replay(records)[number]


def _named(worker_id: str) -> str:
    if not worker_id.strip():
        msg = "worker_id is empty; say who takes the frame"
        raise UsageError(msg)
    return worker_id


def _claimed(frame: ClaimedFrame) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(frame)
    body["lease_until"] = iso_utc(body.pop("lease_until_ms"))
    return body


def _shape(row: StageRow | FrameRow) -> dict[str, Any]:
    """A row with its ids as text: they do not fit the numbers of every reader of JSON."""
    body: dict[str, Any] = msgspec.to_builtins(row)
    for name, value in body.items():
        if isinstance(value, int) and (name == "execution_id" or name.endswith("_event_id")):
            body[name] = str(value)
    return body
