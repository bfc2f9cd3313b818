"""The fold's part about sub-playbooks: parked commands, open children, what they came to (P13).

A parked command has no holder and is offered to nobody until a decision that consumed the answer
resumes it. Nothing here looks a child up; what is sent to it follows from this state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl_ray.engine.state import ChildState
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.events.envelope import Event

CHILD_FACTS = frozenset({EventType.TASK_PARKED, EventType.CHILD_ENDED})
"""Facts about sub-playbooks that wait for a decision."""


def park(draft: ExecutionState, event: Event, position: int) -> None:
    """The holder of a command wrote down how far it is and let go."""
    command = draft.commands.get(event.command_id or "")
    if command is not None:
        draft.commands[command.command_id] = msgspec.structs.replace(
            command,
            last_event_id=event.event_id,
            recorded=position,
            worker_id=None,
            incarnation=None,
            parked=True,
            answer=0,
        )


def ask_child(draft: ExecutionState, event: Event) -> None:
    """A decision named a child."""
    payload = event.payload
    child = ChildState(
        execution_id=payload["child_execution_id"],
        command_id=event.command_id or "",
        event_id=event.event_id,
        asked=payload["asked"],
        deadline_ms=payload.get("deadline_ms", 0),
    )
    draft.children[str(child.execution_id)] = child


def child_ended(draft: ExecutionState, event: Event) -> None:
    """A child came to its end; what waits for it goes on by a decision."""
    draft.children.pop(str(event.payload["child_execution_id"]), None)


def resume(draft: ExecutionState, event: Event) -> None:
    """A parked command may be held again; its holder finds the answer where the decision says."""
    command = draft.commands.get(event.command_id or "")
    if command is not None:
        draft.commands[command.command_id] = msgspec.structs.replace(
            command, parked=False, answer=event.payload["answer"]
        )
