"""Routes where answers to callbacks come in: by token from outside, by step from people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.submit.callbacks import answer_callback, find_wait
from noetl_ray.submit.tokens import token_digest
from noetl_ray.web.deps import Caller, caller_of, execution_id_of
from noetl_ray.web.shapes import json_response
from noetl_ray.web.submitting import known_of

if TYPE_CHECKING:
    from noetl_ray.submit.callbacks import Answered

Asking = Annotated[Caller, Depends(caller_of)]

routes = APIRouter(prefix="/api")


@routes.post("/callbacks/{token}")
async def answer(token: str, request: Request, caller: Asking) -> Response:
    """Answer a callback. The token is all the permission there is, and says whose wait it is."""
    tokens = caller.deps.callbacks
    if tokens is None:
        msg = "this gateway takes no callbacks"
        raise NotFoundError(msg)
    target = tokens.read(token)
    body = await _json_of(request)
    found = await answer_callback(caller.deps.submit, target, token_digest(token), body)
    return _told(found)


@routes.post("/executions/{execution_id}/callbacks/{step}")
async def answer_step(
    execution_id: str, step: str, request: Request, caller: Asking, index: int | None = None
) -> Response:
    """Answer what a step waits for, for people who see the execution; ``index`` in a loop."""
    number = execution_id_of(execution_id)
    body = await _json_of(request)
    known = await known_of(caller, number)
    target, key = await find_wait(
        caller.deps.submit,
        caller.scope,
        number,
        step,
        project_id=known["project_id"],
        index=index,
    )
    return _told(await answer_callback(caller.deps.submit, target, key, body))


async def _json_of(request: Request) -> Any:
    """The body as JSON; an empty one is an empty mapping."""
    data = await request.body()
    try:
        return msgspec.json.decode(data) if data else {}
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"an answer is JSON: {error}"
        raise UsageError(msg) from None


def _told(found: Answered) -> Response:
    return json_response(
        {
            "execution_id": str(found.execution_id),
            "command_id": found.command_id,
            "task": found.task,
            "status": "duplicate" if found.duplicate else "accepted",
            "duplicate": found.duplicate,
        },
        status=200 if found.duplicate else 202,
    )
