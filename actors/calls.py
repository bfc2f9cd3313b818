"""Calls of other playbooks, as the worker that runs the calling task sees them (P13).

Owns what a task waits for, pinned before it parks (version, digest, merged workload), and what its
answer is once the child has ended. The child's id is the conductor's decision; who runs it, and
when, is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actors.callbacks import given_answer
from noetl_ray.dsl.language import CALLBACK
from noetl_ray.dsl.merge import merge_workload
from noetl_ray.engine.names import whole_value
from noetl_ray.engine.waiting import CHILD
from noetl_ray.errors import InternalError, NotFoundError, ToolError
from noetl_ray.events.canonical import to_jsonable
from noetl_ray.events.envelope import PayloadRef
from noetl_ray.events.types import EventType
from noetl_ray.results.extracted import MASKED
from noetl_ray.results.redact import secret_values
from noetl_ray.submit import Submission, SubmitPorts, choose_playbook, kept_workload, load_playbook
from noetl_ray.tools.playbook import DEPTH_MAX, result_of
from noetl_ray.tools.port import ToolResult
from noetl_ray.tools.waiting import RETRY, TIMER, nobody_answered, time_over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.contexts import ContextStore
    from noetl_ray.events.envelope import Event
    from noetl_ray.results.redact import Redactor
    from noetl_ray.results.store import ResultStore
    from noetl_ray.scope import Scope
    from noetl_ray.tools.port import PlaybookCall
    from noetl_ray.wal.port import Log


class Calls:
    """The calls of one command."""

    def __init__(
        self,
        submit: SubmitPorts,
        *,
        scope: Scope,
        depth: int,
        redactor: Callable[[], Redactor],
    ) -> None:
        """Bind the calls of a command.

        Args:
            submit: Where playbooks are registered.
            scope: Whose command it is.
            depth: How many executions stand above the one it belongs to.
            redactor: Removes what the credentials used so far hold: a child gets no secret.
        """
        self._submit = submit
        self._scope = scope
        self._depth = depth
        self._redactor = redactor

    async def pin(self, call: PlaybookCall) -> dict[str, Any]:
        """What a task waits for that calls another playbook.

        Raises:
            NotFoundError: there is no such playbook or version.
            ToolError: executions are nested too deep.
        """
        if self._depth + 1 > DEPTH_MAX:
            msg = (
                f"playbooks call each other {DEPTH_MAX} deep; does {call.path or call.digest!r} "
                "call itself without a condition that ends it?"
            )
            raise ToolError(msg, "schema", False, {"code": "PLAYBOOK_DEPTH"})
        asked = Submission(path=call.path, version=call.version, digest=call.digest)
        try:
            entry = await choose_playbook(self._submit, self._scope, asked)
        except NotFoundError as error:
            raise ToolError(error.message, "not_found", False) from None
        playbook = await load_playbook(self._submit, self._scope, entry.digest)
        given = self._redactor().value(to_jsonable(call.workload))
        workload, reference = await kept_workload(
            self._submit, self._scope, merge_workload(playbook.workload, given)
        )
        return {
            "kind": CHILD,
            "playbook": entry.pinned(),
            "workload": workload,
            "workload_ref": None if reference is None else msgspec.to_builtins(reference),
            "return_step": call.return_step,
            "return_result": call.return_result,
            "detached": not call.waits,
            "timeout_s": call.timeout_s,
        }


async def answer_of(
    wait: Mapping[str, Any],
    position: int,
    *,
    log: Log,
    results: ResultStore,
    contexts: ContextStore,
    scope: Scope,
    learn: Callable[[set[str]], None],
) -> ToolResult | ToolError | None:
    """What a parked task is given: the answer it waited for, its child's result, how it failed.

    A task that waited for its next try is given nothing: it runs.

    Raises:
        InternalError: nothing of the kind lies at that position of the log.
        StoreError: the result is out of reach.
    """
    kind = wait["kind"]
    if kind == RETRY:
        return None
    if kind == TIMER:
        return time_over(wait)
    if kind == CALLBACK:
        if not position:
            return nobody_answered(wait)
        return ToolResult(data=await given_answer(log, contexts, scope, position, learn))
    event = await _ended(log, position)
    returned = event.payload.get("returned") or {}
    if event.payload_ref is not None:
        returned = await contexts.load(scope, event.payload_ref)
    block = returned.get("result")
    value: Any = None
    if block is not None:
        value = await results.load(scope, block)
        if MASKED in (block.get("truncated") or {}).values():
            learn(secret_values(value))
        value = whole_value(None, value)
    try:
        return result_of(wait, event.payload, value)
    except ToolError as error:
        return error


async def _ended(log: Log, position: int) -> Event:
    recorded = await log.get(position)
    for event in recorded.record.events if recorded else ():
        if event.event_type is EventType.CHILD_ENDED:
            return event
    msg = f"no end of a sub-playbook at position {position} of the log"
    raise InternalError(msg)


def workload_ref(wait: Mapping[str, Any]) -> PayloadRef | None:
    """Where a child's workload lies that is too large or too secret for the log."""
    found = wait.get("workload_ref")
    return None if found is None else msgspec.convert(found, PayloadRef)
