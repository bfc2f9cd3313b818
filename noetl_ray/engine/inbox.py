"""What a decision does with a fact of the inbox: the wishes of its owner, and answers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.engine import ending
from noetl_ray.engine.state import awaits
from noetl_ray.engine.waiting import let_go_on
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.engine.dispatching import Deciding
    from noetl_ray.events.envelope import Event


def take_from_inbox(work: Deciding, fact: Event, position: int) -> None:
    """Do what a fact of the inbox asks; it is consumed already."""
    said = fact.payload
    kind = fact.event_type
    if kind is EventType.EXECUTION_CANCEL_REQUESTED:
        ending.cancel(work)
    elif kind is EventType.EXECUTION_PAUSE_REQUESTED:
        work.emit(EventType.EXECUTION_PAUSED, {"reason": said["reason"]})
    elif kind is EventType.EXECUTION_RESUME_REQUESTED:
        work.emit(EventType.EXECUTION_RESUMED, {})
    else:
        command = work.draft.commands.get(said["command_id"])
        if command is not None and awaits(command, said["key"]):
            let_go_on(work, command.command_id, "answered", position)
        else:
            ignored = {"key": said["key"], "command_id": said["command_id"]}
            ignored["reason"] = "nothing waits for it any more"
            work.emit(EventType.CALLBACK_IGNORED, ignored)
