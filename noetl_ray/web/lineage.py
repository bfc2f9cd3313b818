"""Routes about where results come from: the result index, states of steps, the trace of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from noetl_ray.errors import NotFoundError, StoreError
from noetl_ray.payloads.content import get_payload
from noetl_ray.readmodel.lineage import issued_of, newest_of, result_index, step_states
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import json_response

if TYPE_CHECKING:
    from noetl_ray.readmodel.lineage import ResultRow
    from noetl_ray.readmodel.records import EventRow

Asking = Annotated[Caller, Depends(caller_of)]
TRACED_MAX = 1_000
"""Links of one trace; a cycle visited oftener is cut there and says so."""

routes = APIRouter(prefix="/api/executions")


@routes.get("/{execution_id}/result-index")
async def index(
    execution_id: str,
    caller: Asking,
    step: str | None = None,
    task: str | None = None,
    iteration: Annotated[int | None, Query(ge=0)] = None,
    status: str | None = None,
) -> Response:
    """Results of an execution in log order, all or those asked for, and the state of each step."""
    rows = result_index(await _events(caller, execution_id))
    wanted = {"step_name": step, "task_label": task, "iteration": iteration, "status": status}
    asked = {name: value for name, value in wanted.items() if value is not None}
    return json_response(
        {
            "results": [
                _shape(row)
                for row in rows
                if all(getattr(row, name) == value for name, value in asked.items())
            ],
            "step_state": step_states(rows),
        }
    )


@routes.get("/{execution_id}/trace/{step:path}")
async def trace(execution_id: str, step: str, caller: Asking) -> Response:
    """A step's newest result, linked back to all it was made from."""
    events = await _events(caller, execution_id)
    rows = result_index(events)
    first = newest_of(rows, step)
    if first is None:
        msg = f"step {step!r} of execution {execution_id} has no result"
        raise NotFoundError(msg)
    issued = issued_of(events)
    links: dict[int, dict[str, Any]] = {}
    waiting = [first]
    while waiting and len(links) < TRACED_MAX:
        number = waiting.pop()
        if number in links:
            continue
        row = rows[number]
        command = issued.get(row.step_run_id)
        read = await _steps_read(caller, command) if command else []
        before = command.position if command else row.position
        parents = [newest_of(rows, name, before=before) for name in read]
        known = [parent for parent in parents if parent is not None]
        tasks = [
            _shape(each)
            for each in rows[:number]
            if each.step_run_id == row.step_run_id and each.task_label is not None
        ]
        made_from = [{"ref_id": str(rows[n].event_id), "step": rows[n].step_name} for n in known]
        links[number] = {**_shape(row), "made_from": made_from, "tasks": tasks}
        waiting += known
    return json_response(
        {
            "execution_id": execution_id,
            "step": step,
            "links": [links[number] for number in sorted(links, reverse=True)],
            "cut": bool(waiting),
        }
    )


async def _events(caller: Caller, execution_id: str) -> list[EventRow]:
    number, found, after = execution_id_of(execution_id), list[Any](), 0
    while True:
        page = await caller.deps.queries.events(
            caller.scope, number, after_position=after, limit=LIMIT_MAX
        )
        found += page
        if len(page) < LIMIT_MAX:
            break
        after = page[-1].position
    if not found:
        msg = f"no execution {execution_id}; one just submitted appears within a moment"
        raise NotFoundError(msg)
    return found


async def _steps_read(caller: Caller, command: EventRow) -> list[str]:
    """The steps whose results a command carried, from its event or from beside the log."""
    event = command.event
    context = event.payload.get("context") or {}
    if event.payload_ref is not None:
        results = caller.deps.results
        try:
            data = await get_payload(
                results.objects, results.placement, caller.scope, event.payload_ref.uri
            )
            context = msgspec.json.decode(data)
        except StoreError:
            return []
    return sorted(context.get("steps") or {})


def _shape(row: ResultRow) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(row)
    return {**shown, "event_id": str(row.event_id)}
