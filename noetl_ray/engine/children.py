"""What a decision does about sub-playbooks: name a child, let go on what waited for it. Pure.

The id of a child is the decision's own (P13): whoever sends the request, and however often, asks
for the same execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.engine.waiting import let_go_on
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.engine.dispatching import Deciding
    from noetl_ray.events.envelope import Event


def take_child_fact(work: Deciding, fact: Event, position: int) -> None:
    """Follow up on a task that parked, or on a child that ended."""
    if fact.event_type is EventType.TASK_PARKED:
        _request(work, fact, position)
    else:
        _resume(work, fact, position)


def _request(work: Deciding, fact: Event, position: int) -> None:
    """Decide the id of the child a parked task wants."""
    wait = fact.payload["wait"]
    said: dict[str, Any] = {
        "step": fact.payload["step"],
        "visit": fact.payload["visit"],
        "task": fact.payload["task"],
        "child_execution_id": work.inputs.mint(),
        "playbook": wait["playbook"],
        "asked": position,
    }
    if wait.get("timeout_s"):
        said["deadline_ms"] = work.inputs.now_ms + int(wait["timeout_s"] * 1000)
    work.emit(EventType.CHILD_REQUESTED, said, command_id=fact.command_id)


def _resume(work: Deciding, fact: Event, position: int) -> None:
    """Let the command go on that waited for a child."""
    command = work.draft.commands.get(fact.payload["command_id"])
    if command is None:
        return
    child = fact.payload["child_execution_id"]
    let_go_on(work, command.command_id, "child", position, child_execution_id=child)
