"""Routes that read executions. All answers come from the read model and the result store, in scope.

``GET /api/executions/{id}`` reads one row and nothing else (PRJ-13).
"""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
import pyarrow.feather as feather
from fastapi import APIRouter, Depends, Query, Request, Response

from noetl_ray.engine.state import LOOP_TIERS, ExecutionState, parse_state
from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.events.types import EventType
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.readmodel.records import EXECUTION_STATE, ExecutionRow, ProjectionKey
from noetl_ray.results.redact import MASK, is_credential_key, mask
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import (
    WaitRequest,
    event_shape,
    execution_shape,
    json_response,
    log_shape,
    read_body,
    schema_of,
    status_shape,
)
from noetl_ray.web.waiting import WAIT_S_MAX

ARROW_FILE = "application/vnd.apache.arrow.file"
STATUSES = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
WAIT_IDS_MAX = 10_000
CHILDREN_SHOWN_MAX = 100
"""Children in a status, newest first; the list of executions has them all."""

Asking = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Timeout = Annotated[float, Query(ge=0, le=WAIT_S_MAX)]

routes = APIRouter(prefix="/api/executions")


@routes.get("")
async def executions(
    caller: Asking,
    status: str | None = None,
    path: str | None = None,
    parent: str | None = None,
    before: str | None = None,
    limit: Limit = 50,
) -> Response:
    """Newest first; ``next_before`` reads on; ``parent`` gives the children of an execution."""
    if status is not None and status.upper() not in STATUSES:
        msg = f"status {status[:40]!r} is not one of {', '.join(STATUSES)}"
        raise UsageError(msg)
    rows = await caller.deps.queries.executions(
        caller.scope,
        status=status.upper() if status else None,
        path=path,
        parent=execution_id_of(parent) if parent else None,
        before=execution_id_of(before) if before else None,
        limit=limit,
    )
    following = str(rows[-1].execution_id) if len(rows) == limit else None
    return json_response(
        {"executions": [execution_shape(row) for row in rows], "next_before": following}
    )


@routes.post("/wait", openapi_extra=schema_of(WaitRequest))
async def wait_many(request: Request, caller: Asking) -> Response:
    """Wait until all have ended or time is over; who has not ended stands in ``pending``."""
    body = await read_body(request, WaitRequest)
    if len(body.ids) > WAIT_IDS_MAX:
        msg = f"at most {WAIT_IDS_MAX} ids at once, not {len(body.ids)}"
        raise UsageError(msg)
    numbers = [execution_id_of(str(given)) for given in body.ids]
    ended = await caller.waiters.wait(caller.scope, numbers, body.timeout)
    pending = [str(number) for number in dict.fromkeys(numbers) if number not in ended]
    rows = [execution_shape(ended[number]) for number in dict.fromkeys(numbers) if number in ended]
    return json_response({"executions": rows, "pending": pending})


@routes.get("/{execution_id}")
async def execution(execution_id: str, caller: Asking) -> Response:
    """One execution's row."""
    return json_response(execution_shape(await _row(caller, execution_id)))


@routes.get("/{execution_id}/status")
async def status(execution_id: str, caller: Asking) -> Response:
    """The short form NoETL's clients poll."""
    row = await _row(caller, execution_id)
    children = await caller.deps.queries.executions(
        caller.scope, parent=row.execution_id, limit=CHILDREN_SHOWN_MAX
    )
    return json_response(status_shape(row, await _variables(caller, row), children))


@routes.get("/{execution_id}/wait")
async def wait(execution_id: str, caller: Asking, timeout: Timeout = 30.0) -> Response:
    """The row once the execution has ended, or the row as it is with ``timed_out``."""
    number = execution_id_of(execution_id)
    ended = await caller.waiters.wait(caller.scope, (number,), timeout)
    if number in ended:
        return json_response({**execution_shape(ended[number]), "timed_out": False})
    row = await caller.deps.queries.execution(caller.scope, number)
    if row is None:
        raise _missing(execution_id)
    return json_response({**execution_shape(row), "timed_out": True})


@routes.get("/{execution_id}/events")
async def events(
    execution_id: str,
    caller: Asking,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Limit = 500,
) -> Response:
    """Events in log order; ``next_after`` is the position to read on from."""
    row = await _row(caller, execution_id)
    found = await caller.deps.queries.events(
        caller.scope, row.execution_id, after_position=after, limit=limit
    )
    return json_response(
        {
            "events": [event_shape(each) for each in found],
            "next_after": found[-1].position if found else after,
            "status": row.status,
        }
    )


@routes.get("/{execution_id}/logs")
async def logs(
    execution_id: str,
    caller: Asking,
    step: str | None = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Limit = 500,
) -> Response:
    """Printed lines in order; ``next_after`` is the id to read on from."""
    row = await _row(caller, execution_id)
    found = await caller.deps.queries.logs(
        caller.scope, row.execution_id, step=step, after=after, limit=limit
    )
    return json_response(
        {
            "lines": [log_shape(each) for each in found],
            "next_after": str(found[-1].log_id if found else after),
            "status": row.status,
        }
    )


@routes.get("/{execution_id}/results/{step:path}")
async def result(execution_id: str, step: str, request: Request, caller: Asking) -> Response:
    """A step's result: JSON, or an Arrow file when the caller accepts one."""
    number = execution_id_of(execution_id)
    block, visit = await _result_block(caller, number, step)
    if ARROW_FILE in request.headers.get("accept", ""):
        table = masked_table(await caller.deps.results.table(caller.scope, block))
        sink = pa.BufferOutputStream()
        feather.write_feather(table, sink, compression="uncompressed")
        return Response(sink.getvalue().to_pybytes(), media_type=ARROW_FILE)
    value = await caller.deps.results.load(caller.scope, block)
    reference = block.get("reference")
    return json_response(
        {
            "execution_id": execution_id,
            "step": step,
            "visit": visit,
            "tier": block.get("tier"),
            "reference": reference,
            "result": mask(value),
        }
    )


def masked_table(table: pa.Table) -> pa.Table:
    """A table whose credential-shaped columns say nothing."""
    for index, name in enumerate(table.column_names):
        if is_credential_key(name):
            table = table.set_column(index, name, pa.array([MASK] * table.num_rows, pa.string()))
    return table


async def _row(caller: Caller, execution_id: str) -> ExecutionRow:
    row = await caller.deps.queries.execution(caller.scope, execution_id_of(execution_id))
    if row is None:
        raise _missing(execution_id)
    return row


async def _variables(caller: Caller, row: ExecutionRow) -> dict[str, Any]:
    """Workload and ctx as the fold has them; empty while the state cannot be read."""
    state = await _state(caller, row.execution_id)
    return {**state.workload, **state.ctx} if state is not None else {}


async def _state(caller: Caller, execution_id: int) -> ExecutionState | None:
    """The folded state as the projector kept it; None while there is none to read."""
    if caller.deps.states is None:
        return None
    key = ProjectionKey(
        tenant_id=caller.scope.tenant_id,
        organization_id=caller.scope.organization_id,
        projection_type=EXECUTION_STATE,
        execution_id=execution_id,
    )
    record = await caller.deps.states.load_projection(key)
    return parse_state(record.state) if record is not None else None


async def _result_block(caller: Caller, execution_id: int, step: str) -> tuple[dict[str, Any], int]:
    """``payload.result`` of the step's latest completed visit, and that visit.

    A loop's results are put together by the fold, so its block comes from the folded state.
    """
    state = await _state(caller, execution_id)
    step_state = state.steps.get(step) if state is not None else None
    if step_state is not None and (step_state.result or {}).get("tier") in LOOP_TIERS:
        return step_state.result or {}, step_state.visits
    after, found, visit, seen = 0, None, 0, False
    while True:
        page = await caller.deps.queries.events(
            caller.scope, execution_id, after_position=after, limit=LIMIT_MAX
        )
        for row in page:
            event = row.event
            seen = True
            if event.event_type is EventType.CALL_DONE and event.payload["step"] == step:
                number = int(event.payload["visit"])
                if number >= visit:
                    found, visit = event.payload["result"], number
        if len(page) < LIMIT_MAX:
            break
        after = page[-1].position
    if not seen:
        raise _missing(str(execution_id))
    if found is None:
        msg = f"step {step!r} of execution {execution_id} has no result"
        raise NotFoundError(msg)
    return found, visit


def _missing(execution_id: str) -> NotFoundError:
    msg = f"no execution {execution_id}; one just submitted appears within a moment"
    return NotFoundError(msg)
