"""Parked commands: held by nobody until a decision lets them go on. Fold's part and the decision's.

A worker parks its command by a record on the command's subject. From then on only the control
subject says when it goes on and why, so that a time, an answer and a child's end that come together
have one order for everyone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.state import ExecutionState, Wait
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.engine.dispatching import Deciding
    from noetl_ray.events.envelope import Event

CHILD = "child"
"""The kind of wait that a sub-playbook is; it needs a decision that names the child (P13)."""
CALLBACK_GRACE_MS = 1_000
"""An answer accepted right before its deadline may come to the decision a little later."""


def park(draft: ExecutionState, event: Event, position: int) -> None:
    """The holder of a command wrote down how far it is and let go."""
    command = draft.commands.get(event.command_id or "")
    if command is None:
        return
    said = event.payload["wait"]
    wait = None if said["kind"] == CHILD else msgspec.convert(said, Wait)
    draft.commands[command.command_id] = msgspec.structs.replace(
        command,
        last_event_id=event.event_id,
        recorded=position,
        worker_id=None,
        incarnation=None,
        parked=True,
        wait=wait,
        answer=0,
    )
    if wait is not None:
        grace = CALLBACK_GRACE_MS if wait.key else 0
        draft.due[command.command_id] = wait.until_ms + grace


def resume(draft: ExecutionState, event: Event) -> None:
    """A parked command goes on, on a worker at once or on the next that has room.

    Its holder finds the answer where the decision says.
    """
    command = draft.commands.get(event.command_id or "")
    if command is None:
        return
    draft.due.pop(command.command_id, None)
    claim = event.payload.get("claim") or {}
    draft.commands[command.command_id] = msgspec.structs.replace(
        command,
        worker_id=claim.get("worker_id"),
        incarnation=claim.get("incarnation"),
        parked=False,
        wait=None,
        answer=event.payload["answer"],
    )


def needs_decision(event: Event) -> bool:
    """Whether a record that parks a command is also a fact for a decision."""
    return bool(event.payload["wait"]["kind"] == CHILD)


def let_due_go_on(work: Deciding, events_max: int) -> None:
    """Let every command go on whose time has come, the longest overdue first."""
    for at, command_id in sorted((at, command_id) for command_id, at in work.draft.due.items()):
        if at > work.inputs.now_ms or len(work.events) >= events_max:
            return
        let_go_on(work, command_id, "due")


def let_go_on(work: Deciding, command_id: str, reason: str, answer: int = 0, **more: Any) -> None:
    """Let one command go on; the worker that gets it is part of the decision (P16)."""
    command = work.draft.commands[command_id]
    claim = work.inputs.assign(command_id)
    work.emit(
        EventType.COMMAND_RESUMED,
        {
            "step": command.step,
            "visit": command.visit,
            "attempt": command.attempt,
            "reason": reason,
            "answer": answer,
            "parked_at": command.recorded,
            "claim": None if claim is None else msgspec.to_builtins(claim),
            **more,
        },
        command_id=command_id,
    )
