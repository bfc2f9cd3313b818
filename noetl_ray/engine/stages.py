"""What a decision does about a framed loop: open its stage, hand out frames, close it. Pure.

A loop over a cursor is always framed, one over a collection above a threshold of items or when it
says how its frames are to be. The items themselves leave with the decision, not with its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.dsl.language import PARKING
from noetl_ray.engine.dispatching import Deciding, dispatch, open_stage
from noetl_ray.engine.fanout import close_fanout, hand_out_reduce, open_fanout
from noetl_ray.engine.frames import SLOTS_MAX
from noetl_ray.engine.loops import plan_loop
from noetl_ray.engine.policy import FramePolicy, frame_policy
from noetl_ray.engine.ranges import COLLECTION_ROWS, COLLECTION_THRESHOLD, frame_rows
from noetl_ray.errors import TemplateError
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.dsl.model import Loop, Step
    from noetl_ray.engine.frames import StageState
    from noetl_ray.engine.names import Names
    from noetl_ray.engine.state import LoopState

COLLECTION_SLOTS = 4
"""Frames of one collection at once: what a worker holds (FRM-19)."""


def start_loop(work: Deciding, step: Step, visit: int, names: Names) -> None:
    """Fix what a loop goes over: a cursor, a collection in frames, or items one by one.

    Raises:
        TemplateError: the collection, a limit or the policy cannot be worked out.
    """
    loop = step.loop
    assert loop is not None
    if loop.mode == "cursor":
        assert loop.cursor is not None
        templates = work.program.templates
        slots = _slots(step, templates.value(loop.max_in_flight, names, coerce=True))
        policy = _policy(work, step, names)
        told = {"cursor": str(loop.cursor.get("kind", "")), "iterator": loop.iterator}
        open_stage(work, step, visit, policy, told | {"slots": slots})
        return
    if loop.mode == "fanout":
        open_fanout(work, step, visit, names)
        return
    plan = plan_loop(step, work.program.templates, names)
    parks = any(task.kind in PARKING for task in step.tasks)
    if parks or not _is_framed(loop, plan["total"], work.inputs.frame_defaults):
        # A frame holds its worker to the end, which nobody may do while others work.
        work.emit(EventType.LOOP_STARTED, {"step": step.name, "visit": visit, **plan})
        return
    items = plan.pop("items")
    slots, policy = _collection_policy(work, step, names, plan)
    stage_id = open_stage(work, step, visit, policy, plan | {"slots": slots})
    work.collections[stage_id] = items


def _is_framed(loop: Loop, total: int, defaults: Mapping[str, Any]) -> bool:
    """Whether a collection goes in frames; who says how frames are to be, wants them."""
    threshold = int(defaults.get("collection_threshold", COLLECTION_THRESHOLD))
    return total > threshold or (total > 0 and bool(loop.frame))


def _policy(work: Deciding, step: Step, names: Names, **given: Any) -> FramePolicy:
    assert step.loop is not None
    wanted = work.program.templates.value(step.loop.frame, names, coerce=True)
    return frame_policy(wanted, {**work.inputs.frame_defaults, **given}, step.name)


def _collection_policy(
    work: Deciding, step: Step, names: Names, plan: dict[str, Any]
) -> tuple[int, FramePolicy]:
    """Slots and policy of a collection: all frames together run no more items than the window."""
    loop = step.loop
    assert loop is not None
    window = int(plan["window"])
    defaults = work.inputs.frame_defaults
    rows_max = int(defaults.get("collection_max_rows", COLLECTION_ROWS))
    policy = _policy(work, step, names, max_rows=rows_max, row_concurrency=window)
    at_once = min(policy.row_concurrency, window)
    slots = min(window, COLLECTION_SLOTS)
    if "row_concurrency" in loop.frame:
        slots = max(1, min(COLLECTION_SLOTS, window // at_once))
    rows = frame_rows(int(plan["total"]), slots, policy.max_rows)
    if "max_rows" in loop.frame:
        rows = policy.max_rows
    slots = min(slots, -(-int(plan["total"]) // rows))
    return slots, msgspec.structs.replace(policy, max_rows=rows, row_concurrency=at_once)


def go_on(work: Deciding, step: Step, events_max: int) -> str | None:
    """Hand out frames, close the stage when it is over; then how its step ended."""
    stage = work.draft.loops[step.name].stage
    assert stage is not None
    if stage.reduce is not None:
        hand_out_reduce(work, step)
    _hand_out(work, step, events_max)
    failed = work.draft.loops[step.name].failed
    close = _close if stage.reduce is None else close_fanout
    if not close(work, step):
        return None
    return "failed" if failed else "completed"


def _hand_out(work: Deciding, step: Step, events_max: int) -> None:
    """Give every idle slot of a stage its next frame."""
    draft = work.draft
    while len(work.events) < events_max and draft.failed is None:
        loop = draft.loops[step.name]
        stage = loop.stage
        assert stage is not None
        number = stage.idle_slot if loop.has_room else None
        if number is None:
            return
        slot = stage.slots[number]
        dispatch(
            work,
            step,
            stage.stage_id,
            stage.policy,
            slot=number,
            index=slot.index,
            parent=slot.last_frame_id or stage.root_frame_id,
            told={
                "max_rows": slot.max_rows or stage.policy.max_rows,
                **_range(loop, stage, number),
            },
        )


def _range(loop: LoopState, stage: StageState, number: int) -> dict[str, Any]:
    """What a frame over a collection is told: its items, and how many it may run at once."""
    taken = stage.range_for(number)
    if taken is None:
        return {}
    share, more = divmod(loop.window, len(stage.slots))
    fanned = {} if stage.reduce is None else {"partition": True}
    return {
        **fanned,
        "range": list(taken),
        "total": stage.total,
        "items_ref": loop.items_ref,
        "row_concurrency": min(max(1, share + (number < more)), stage.policy.row_concurrency),
    }


def _close(work: Deciding, step: Step) -> bool:
    """Close a stage with nothing under way and nothing to follow; False while there is."""
    loop = work.draft.loops[step.name]
    stage = loop.stage
    assert stage is not None
    if stage.open or not (stage.over or work.draft.failed is not None):
        return False
    total = stage.total or stage.processed
    stats = {"total": total, "success": stage.processed - stage.failed}
    stats["failed"] = stage.failed
    counts = {"frames": stage.frames, "frames_failed": stage.frames_failed}
    end = {"step": step.name, "visit": loop.visit}
    status = "FAILED" if stage.stopped else "COMPLETED"
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
