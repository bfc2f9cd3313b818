"""What a decision does about a cursor loop: open its stage, hand out frames, close it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl_ray.engine.context import command_context
from noetl_ray.engine.frames import SLOTS_MAX, frame_id_of, frame_policy
from noetl_ray.errors import TemplateError
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Step
    from noetl_ray.engine.inputs import Inputs, Program
    from noetl_ray.engine.names import Names
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.events.envelope import Event


class Deciding(Protocol):
    """A decision under way, as much of it as stages need."""

    draft: ExecutionState
    program: Program
    inputs: Inputs
    events: list[Event]

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


def open_stage(work: Deciding, step: Step, visit: int, names: Names) -> None:
    """Fix the policy and the number of slots of a stage.

    Raises:
        TemplateError: they cannot be worked out.
    """
    loop = step.loop
    assert loop is not None
    assert loop.cursor is not None
    templates = work.program.templates
    wanted = templates.value(loop.frame, names, coerce=True)
    policy = frame_policy(wanted, work.inputs.frame_defaults, step.name)
    stage_id = f"{work.draft.execution_id}-{step.name}-{visit}"
    work.emit(
        EventType.STAGE_OPENED,
        {
            "step": step.name,
            "visit": visit,
            "kind": "loop",
            "cursor": str(loop.cursor.get("kind", "")),
            "iterator": loop.iterator,
            "slots": _slots(step, templates.value(loop.max_in_flight, names, coerce=True)),
            "frame_policy": msgspec.to_builtins(policy),
            "dsl_ref": work.program.playbook.digest,
        },
        stage_id=stage_id,
    )


def go_on(work: Deciding, step: Step, events_max: int) -> str | None:
    """Hand out frames, close the stage when it is over; then how its step ended."""
    _hand_out(work, step, events_max)
    failed = work.draft.loops[step.name].failed
    if not _close(work, step):
        return None
    return "failed" if failed else "completed"


def _hand_out(work: Deciding, step: Step, events_max: int) -> None:
    """Give every idle slot of a stage its next frame."""
    draft = work.draft
    while len(work.events) < events_max and draft.failed is None:
        loop = draft.loops[step.name]
        stage = loop.stage
        assert stage is not None
        number = stage.idle_slot
        if number is None:
            return
        slot = stage.slots[number]
        frame_id = frame_id_of(stage.stage_id, number, slot.index)
        claim = work.inputs.assign(frame_id)
        reads = work.program.reads.of(step.name, work.workload)
        work.emit(
            EventType.FRAME_DISPATCHED,
            {
                "step": step.name,
                "visit": loop.visit,
                "attempt": 1,
                "slot": number,
                "frame_index": slot.index,
                "parent_frame_id": slot.last_frame_id or stage.root_frame_id,
                "max_rows": slot.max_rows or stage.policy.max_rows,
                "frame_policy": msgspec.to_builtins(stage.policy),
                "lease_until_ms": work.inputs.now_ms + int(stage.policy.lease_seconds * 1000),
                "playbook_digest": work.program.playbook.digest,
                "project_id": draft.project_id,
                "context": command_context(draft, work.workload, reads),
                "claim": None if claim is None else msgspec.to_builtins(claim),
            },
            command_id=frame_id,
            stage_id=stage.stage_id,
            frame_id=frame_id,
        )


def _close(work: Deciding, step: Step) -> bool:
    """Close a stage with nothing under way and nothing to follow; False while there is."""
    loop = work.draft.loops[step.name]
    stage = loop.stage
    assert stage is not None
    if stage.open or not (stage.over or work.draft.failed is not None):
        return False
    stats = {"total": stage.processed, "success": stage.processed - stage.failed}
    stats["failed"] = stage.failed
    counts = {"frames": stage.frames, "frames_failed": stage.frames_failed}
    end = {"step": step.name, "visit": loop.visit}
    status = "FAILED" if stage.frames_failed else "COMPLETED"
    work.emit(
        EventType.STAGE_CLOSED,
        end | {"status": status, "stats": stats | counts},
        stage_id=stage.stage_id,
    )
    work.emit(EventType.LOOP_DONE, end | {"stats": stats}, stage_id=stage.stage_id)
    return True


def _slots(step: Step, value: Any) -> int:
    if value is None or value == "":
        return 1
    try:
        slots = int(value)
    except (TypeError, ValueError):
        slots = 0
    if not 1 <= slots <= SLOTS_MAX or isinstance(value, bool):
        msg = f"max_in_flight of {step.name!r} is {value!r}; give it a number from 1 to {SLOTS_MAX}"
        raise TemplateError(msg)
    return slots
