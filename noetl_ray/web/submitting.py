"""Routes that append: execute, cancel, pause, resume, rerun. All through ``noetl_ray.submit``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from noetl_ray.errors import NoetlError, UsageError
from noetl_ray.events.types import EventType
from noetl_ray.submit import (
    Submission,
    Submitted,
    cancel_execution,
    pause_execution,
    rerun_execution,
    resume_execution,
    submit_execution,
    submit_many,
)
from noetl_ray.web.catalog import suggesting
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.problems import describe
from noetl_ray.web.shapes import (
    BatchRequest,
    CancelRequest,
    ExecuteRequest,
    PauseRequest,
    RerunRequest,
    json_response,
    read_body,
    schema_of,
    submitted_shape,
    version_of,
)

BATCH_ITEMS_MAX = 10_000

Asking = Annotated[Caller, Depends(caller_of)]

routes = APIRouter(prefix="/api")


@routes.post("/execute", openapi_extra=schema_of(ExecuteRequest))
async def execute(request: Request, caller: Asking) -> Response:
    """Submit one execution."""
    body = await read_body(request, ExecuteRequest)
    if body.idempotency_key is None:
        body.idempotency_key = request.headers.get("idempotency-key")
    async with suggesting(caller, body.path):
        found = await submit_execution(
            caller.deps.submit, caller.scope, caller.project_id, _submission(body)
        )
    _count(caller, found)
    return json_response({**submitted_shape(found), "commands_generated": 0})


@routes.post("/execute/batch", openapi_extra=schema_of(BatchRequest))
async def execute_batch(request: Request, caller: Asking) -> Response:
    """Submit many; each answer, an execution or an error, stands at its question's place."""
    body = await read_body(request, BatchRequest)
    if len(body.items) > BATCH_ITEMS_MAX:
        msg = f"a batch holds at most {BATCH_ITEMS_MAX} items, not {len(body.items)}"
        raise UsageError(msg)
    asked = [_submission(item) for item in body.items]
    answers = await submit_many(caller.deps.submit, caller.scope, caller.project_id, asked)
    items: list[dict[str, Any]] = []
    for answer in answers:
        if isinstance(answer, NoetlError):
            items.append({"error": describe(answer)})
        else:
            _count(caller, answer)
            items.append(submitted_shape(answer))
    return json_response({"items": items})


@routes.post("/executions/{execution_id}/cancel", openapi_extra=schema_of(CancelRequest))
async def cancel(execution_id: str, request: Request, caller: Asking) -> Response:
    """Ask for an execution to stop; it ends when a decision takes the request."""
    number = execution_id_of(execution_id)
    body = await read_body(request, CancelRequest)
    known = await known_of(caller, number)
    await cancel_execution(
        caller.deps.submit, caller.scope, number, body.reason, cascade=body.cascade, **known
    )
    return json_response({"execution_id": execution_id, "status": "cancel_requested"}, status=202)


@routes.post("/executions/{execution_id}/pause", openapi_extra=schema_of(PauseRequest))
async def pause(execution_id: str, request: Request, caller: Asking) -> Response:
    """Ask that nothing new begins; what runs finishes. Pausing a paused execution is no error."""
    number = execution_id_of(execution_id)
    body = await read_body(request, PauseRequest)
    known = await known_of(caller, number)
    await pause_execution(caller.deps.submit, caller.scope, number, body.reason, **known)
    return json_response({"execution_id": execution_id, "status": "pause_requested"}, status=202)


@routes.post("/executions/{execution_id}/resume")
async def resume(execution_id: str, caller: Asking) -> Response:
    """Let a paused execution go on; one that is not paused goes on anyway."""
    number = execution_id_of(execution_id)
    known = await known_of(caller, number)
    await resume_execution(caller.deps.submit, caller.scope, number, **known)
    return json_response({"execution_id": execution_id, "status": "resume_requested"}, status=202)


@routes.post("/executions/{execution_id}/rerun", openapi_extra=schema_of(RerunRequest))
async def rerun(execution_id: str, request: Request, caller: Asking) -> Response:
    """Submit the same playbook version and workload anew."""
    number = execution_id_of(execution_id)
    known = await known_of(caller, number)
    body = await read_body(request, RerunRequest)
    found = await rerun_execution(
        caller.deps.submit, caller.scope, number, from_step=body.from_step, **known
    )
    _count(caller, found)
    return json_response({**submitted_shape(found), "rerun_of": execution_id})


async def known_of(caller: Caller, execution_id: int) -> dict[str, Any]:
    """Project and key of an execution, from its request; one just submitted may not show it yet.

    The execution's row would not do: it learns the key only from the first decision.
    """
    rows = await caller.deps.queries.events(caller.scope, execution_id, limit=1)
    if not rows or rows[0].event.event_type is not EventType.EXECUTION_REQUESTED:
        return {"project_id": caller.project_id}
    event = rows[0].event
    return {"project_id": event.payload["project_id"], "idempotency_key": event.idempotency_key}


def _submission(body: ExecuteRequest) -> Submission:
    if body.payload is not None and body.workload is not None:
        msg = "give payload or workload, not both: they are two names of one thing"
        raise UsageError(msg)
    workload = body.payload if body.payload is not None else body.workload
    parent = body.parent_execution_id
    return Submission(
        path=body.path,
        version=version_of(body.version),
        digest=body.digest or body.catalog_id,
        source=body.playbook,
        workload=workload or {},
        idempotency_key=body.idempotency_key,
        parent_execution_id=None if parent is None else execution_id_of(str(parent)),
    )


def _count(caller: Caller, found: Submitted) -> None:
    caller.metrics.submitted.labels(str(found.duplicate).lower()).inc()
