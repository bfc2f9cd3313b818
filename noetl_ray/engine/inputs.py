"""What a decision is made from and what it gives: program, inputs, claim and decision as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.context import StepReads
from noetl_ray.engine.fold import note
from noetl_ray.engine.joins import JoinGraph
from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.envelope import Record

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Playbook
    from noetl_ray.dsl.template import Templates
    from noetl_ray.wal.port import Recorded


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A worker chosen for a command when it is issued (P16)."""

    worker_id: str
    incarnation: str
    lease_ms: int
    distance: str = "any"


class Program:
    """A playbook with what decisions need of it worked out once."""

    def __init__(self, playbook: Playbook, templates: Templates) -> None:
        self.playbook = playbook
        self.templates = templates
        self.graph = JoinGraph(playbook)
        self.reads = StepReads(playbook, templates)


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision takes from outside; all of it ends up in the events."""

    now_ms: int
    producer: str
    mint: Callable[[], int]
    assign: Callable[[str], Claim | None]
    env: Mapping[str, str] = {}
    facts_max: int = 1_000_000
    """Facts one decision may consume; fewer make its message smaller."""
    resolved: Mapping[str, Any] = {}
    """Whole results by step, fetched because a decision asked for them; they never change."""
    loop_items: Mapping[str, list[Any]] = {}
    """Items of loops by step, where the log keeps only their reference."""
    frame_defaults: Mapping[str, Any] = {}
    """What frames are like where a loop does not say (FRM-4)."""
    workload: dict[str, Any] | None = None
    """The merged workload where the request keeps it outside the log."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One message for the control subject.

    And the state once it is accepted (but for its position).
    """

    record: Record
    state: ExecutionState
    collections: Mapping[str, list[Any]] = {}
    """Items of the stages it opens: to be stored, and named by the event, before it is appended."""


def accepted(draft: ExecutionState, recorded: Recorded) -> ExecutionState:
    """The draft a decision was made on, now that its record has a position.

    The same as folding the record into the state the decision started from: the draft has all of
    it but the position. Only for whoever made the decision and knows that nothing came between.
    """
    for event in recorded.record.events:
        command = draft.commands.get(event.command_id or "")
        if command is not None and command.issued_event_id == event.event_id:
            draft.commands[command.command_id] = msgspec.structs.replace(
                command, issued_position=recorded.position
            )
    draft.control_version = recorded.position
    note(draft, recorded)
    return draft


class ResultNeededError(Exception):
    """A decision needs the whole result of a step; fetch it and decide again (P27)."""

    def __init__(self, step: str, block: dict[str, Any]) -> None:
        """Name the step and the result block the decision sees; nobody else may have it yet."""
        super().__init__(step)
        self.step = step
        self.block = block
