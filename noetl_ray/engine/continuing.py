"""Executions that go on from a step of an earlier one, with what was done before it. Pure.

The request holds the variables, the results of steps and the steps to begin with; nothing is looked
up in the earlier execution, so either may be replayed without the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.state import ExecutionState, HeldToken, StepState
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.engine.dispatching import Deciding
    from noetl_ray.events.envelope import Event


def take_over(draft: ExecutionState, payload: dict[str, Any]) -> None:
    """Fold's part of the request: variables and steps as the earlier execution had them."""
    again = payload.get("again")
    if again is None:
        return
    draft.ctx = dict(again["ctx"])
    draft.steps = msgspec.convert(again["steps"], dict[str, StepState])


def begin(draft: ExecutionState, payload: dict[str, Any]) -> None:
    """Fold's part of the first decision: the steps to begin with are reached."""
    for name, sources in payload.get("held", {}).items():
        draft.held[name] = HeldToken(step=name, sources=tuple(sources))


def initialize(work: Deciding, request: Event) -> bool:
    """Say that an execution begins; whether it does so at the entry of its playbook."""
    said: dict[str, Any] = {"playbook": request.payload["playbook"]}
    again = request.payload.get("again")
    if again is not None:
        said["held"] = again["held"]
    work.emit(EventType.PLAYBOOK_INITIALIZED, said)
    return again is None
