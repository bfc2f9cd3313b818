"""How a decision ends an execution: completed, failed or cancelled, and what a parent gets of it.

The record that ends an execution says all that anybody outside may ask of it: the last step and
where its result is, the error, and for a sub-playbook the result its parent waits for. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.engine.dispatching import Deciding
    from noetl_ray.engine.state import ExecutionState

IMPLICIT_END = "end"
"""A step that other engines add to every playbook; to ask for its result is to ask for the last."""


def end(work: Deciding) -> None:
    """Nothing is left to do: say how the execution ended."""
    draft = work.draft
    said = {"final_step": draft.final_step, **_final_result(draft)}
    if draft.failed is not None:
        work.emit(EventType.PLAYBOOK_FAILED, said | {"error": draft.failed})
        return
    said["failures_handled"] = draft.failures_handled
    if draft.parent is not None:
        said["returned"] = _returned(draft, draft.parent.get("return_step"))
    work.emit(EventType.PLAYBOOK_COMPLETED, said)


def cancel(work: Deciding) -> None:
    """Somebody asked for the end."""
    draft = work.draft
    said: dict[str, Any] = {
        "reason": draft.cancel_reason,
        "final_step": draft.final_step,
        "open_commands": sorted(draft.commands),
    }
    if not draft.cancel_cascade:
        said["cascade"] = False
    work.emit(EventType.EXECUTION_CANCELLED, said)


def told(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result block without its content, which its own event has."""
    return {
        "status": result["status"],
        "reference": result["reference"],
        "parent_ref": result.get("parent_ref"),
        "context": {},
    }


def _final_result(draft: ExecutionState) -> dict[str, Any]:
    final = draft.steps.get(draft.final_step or "")
    return {"result": told(final.result)} if final is not None and final.result else {}


def _returned(draft: ExecutionState, wanted: str | None) -> dict[str, Any]:
    """The whole result block of the step a parent asked for, else of the last one."""
    name = wanted or draft.final_step
    if name == IMPLICIT_END and name not in draft.steps:
        name = draft.final_step
    step = draft.steps.get(name or "")
    return {"step": name, "result": step.result if step is not None else None}
