"""The fold's part about sub-playbooks: open children and that they ended (P13).

Nothing here looks a child up; what is sent to it follows from this state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.engine.state import ChildState
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.events.envelope import Event

CHILD_FACTS = frozenset({EventType.TASK_PARKED, EventType.CHILD_ENDED})
"""Facts about sub-playbooks that wait for a decision."""


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
