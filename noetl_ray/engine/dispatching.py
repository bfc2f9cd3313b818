"""Events of stages and frames that every kind of stage makes alike. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl_ray.engine.context import command_context
from noetl_ray.engine.frames import frame_id_of
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Step
    from noetl_ray.engine.inputs import Inputs, Program
    from noetl_ray.engine.policy import FramePolicy
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.events.envelope import Event


class Deciding(Protocol):
    """A decision under way, as much of it as stages need."""

    draft: ExecutionState
    program: Program
    inputs: Inputs
    events: list[Event]
    collections: dict[str, list[Any]]
    """Items of the stages that this decision opens, by stage."""

    def emit(
        self,
        kind: EventType,
        payload: dict[str, Any],
        *,
        command_id: str | None = None,
        stage_id: str | None = None,
        frame_id: str | None = None,
    ) -> Event:
        """Add an event to the decision."""
        ...

    @property
    def workload(self) -> dict[str, Any]:
        """The merged input of the execution."""
        ...


def open_stage(
    work: Deciding,
    step: Step,
    visit: int,
    policy: FramePolicy,
    told: dict[str, Any],
    *,
    kind: str = "loop",
    below: str = "",
) -> str:
    """Open a stage of a step; its id."""
    stage_id = f"{work.draft.execution_id}-{step.name}-{visit}{below}"
    work.emit(
        EventType.STAGE_OPENED,
        {
            "step": step.name,
            "visit": visit,
            "kind": kind,
            "frame_policy": msgspec.to_builtins(policy),
            "dsl_ref": work.program.playbook.digest,
            **told,
        },
        stage_id=stage_id,
    )
    return stage_id


def dispatch(
    work: Deciding,
    step: Step,
    stage_id: str,
    policy: FramePolicy,
    *,
    slot: int,
    index: int,
    parent: str | None,
    told: dict[str, Any],
) -> None:
    """Give a slot of a stage its next frame, and a worker to it when one has room."""
    draft = work.draft
    frame_id = frame_id_of(stage_id, slot, index)
    claim = work.inputs.assign(frame_id)
    reads = work.program.reads.of(step.name, work.workload)
    work.emit(
        EventType.FRAME_DISPATCHED,
        {
            "step": step.name,
            "visit": draft.loops[step.name].visit,
            "attempt": 1,
            "slot": slot,
            "frame_index": index,
            "parent_frame_id": parent,
            "frame_policy": msgspec.to_builtins(policy),
            "lease_until_ms": work.inputs.now_ms + int(policy.lease_seconds * 1000),
            "playbook_digest": work.program.playbook.digest,
            "project_id": draft.project_id,
            "context": command_context(draft, work.workload, reads),
            "claim": None if claim is None else msgspec.to_builtins(claim),
            **told,
        },
        command_id=frame_id,
        stage_id=stage_id,
        frame_id=frame_id,
    )
