"""What a decision does about a fan-out: partitions of one collection, and what takes them in. Pure.

One step is both stages. Its fan-out cuts the collection into partitions, a frame each; its reduce
makes one value of theirs. The fan-out begins no more partitions than its limit while the reduce has
not taken in those before (FAN-3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.engine.dispatching import Deciding, dispatch, open_stage
from noetl_ray.engine.frames import SLOTS_MAX
from noetl_ray.engine.loops import plan_loop
from noetl_ray.engine.policy import frame_policy
from noetl_ray.engine.reducing import STREAM_PARTS
from noetl_ray.errors import TemplateError
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Step
    from noetl_ray.engine.names import Names
    from noetl_ray.engine.reducing import ReduceState

PARALLELISM = 8
"""Partitions at once, where the playbook does not say (FAN-1)."""
_DEFAULTS: dict[str, Any] = {"max_rows": 1, "max_seconds": 5, "max_bytes": 16_777_216}
_UNBOUND: dict[str, Any] = {"max_seconds": 86_400, "max_bytes": 1 << 40}
PARTITIONS_MAX = 100_000
REDUCE = "reduce"


def open_fanout(work: Deciding, step: Step, visit: int, names: Names) -> None:
    """Open both stages of a fan-out.

    Raises:
        TemplateError: the collection, a number or a policy cannot be worked out.
    """
    loop = step.loop
    assert loop is not None
    assert loop.reduce is not None
    templates = work.program.templates
    plan = plan_loop(step, templates, names)
    items, total = plan.pop("items"), int(plan["total"])
    wanted = {"process": "frame", **templates.value(loop.frame, names, coerce=True)}
    parts = _number(work, step, names, "partitions", loop.partitions, PARTITIONS_MAX)
    defaults = {**work.inputs.frame_defaults, **_DEFAULTS}
    if parts is not None:
        # Who says how many there are gets so many: no bound cuts one short.
        defaults |= {"max_rows": max(1, -(-total // parts)), **_UNBOUND}
    policy = frame_policy(wanted, defaults, step.name)
    window = PARALLELISM if loop.max_in_flight is None else int(plan["window"])
    slots = min(window, SLOTS_MAX, -(-total // policy.max_rows))
    outstanding = _number(work, step, names, "max_outstanding", loop.max_outstanding, 100_000)
    stage_id = open_stage(
        work,
        step,
        visit,
        policy,
        {**plan, "window": window, "slots": slots},
        kind="fanout",
    )
    work.collections[stage_id] = items
    reducing = templates.value(loop.reduce.frame, names, coerce=True)
    defaults = {**work.inputs.frame_defaults, "max_rows": STREAM_PARTS, "row_concurrency": 1}
    open_stage(
        work,
        step,
        visit,
        frame_policy(reducing, defaults, step.name),
        {
            "parent_stage_id": stage_id,
            "stream": loop.reduce.stream,
            # A reduce that waits for all partitions cannot hold them back.
            "outstanding_max": (outstanding or 2 * max(slots, 1)) if loop.reduce.stream else 0,
        },
        kind=REDUCE,
        below=f".{REDUCE}",
    )


def hand_out_reduce(work: Deciding, step: Step) -> None:
    """Give the reduce its next frame when partitions wait for it."""
    loop = work.draft.loops[step.name]
    stage = loop.stage
    assert stage is not None
    reduce = stage.reduce
    assert reduce is not None
    if loop.failed or work.draft.failed is not None:
        return
    parts = reduce.ready(stage.parts, complete=stage.over)
    if parts is None:
        return
    dispatch(
        work,
        step,
        reduce.stage_id,
        reduce.policy,
        slot=0,
        index=reduce.index,
        parent=reduce.last_frame_id or reduce.root_frame_id,
        told={
            "reduce": {
                "parts": [list(run) for run in parts],
                "from": reduce.next,
                "taken": reduce.taken,
                "process": stage.policy.process,
                "so_far": reduce.result,
                "stream": reduce.stream,
            },
            "total": stage.total,
        },
    )


def close_fanout(work: Deciding, step: Step) -> bool:
    """Close what is over of a fan-out; whether all of it is."""
    loop = work.draft.loops[step.name]
    stage = loop.stage
    assert stage is not None
    reduce = stage.reduce
    assert reduce is not None
    broken = loop.failed > 0 or work.draft.failed is not None
    end = {"step": step.name, "visit": loop.visit}
    stats = {
        "total": stage.total,
        "success": stage.processed - stage.failed,
        "failed": stage.failed,
        "partitions": stage.frames,
    }
    if not stage.closed and not stage.open and (stage.over or broken):
        counts = {"frames": stage.frames, "frames_failed": stage.frames_failed}
        status = "FAILED" if stage.stopped else "COMPLETED"
        work.emit(
            EventType.STAGE_CLOSED,
            end | {"status": status, "stats": stats | counts},
            stage_id=stage.stage_id,
        )
    if stage.open or reduce.frame_id is not None or not (broken or reduce.over(stage.total)):
        return False
    work.emit(
        EventType.STAGE_CLOSED,
        end | {"status": "FAILED" if broken else "COMPLETED", "stats": _reduced(reduce)},
        stage_id=reduce.stage_id,
    )
    work.emit(EventType.LOOP_DONE, end | {"stats": stats}, stage_id=stage.stage_id)
    return True


def _reduced(reduce: ReduceState) -> dict[str, Any]:
    told: dict[str, Any] = {"partitions": reduce.taken, "items": reduce.next}
    return told | {"frames": reduce.frames, "frames_failed": reduce.failed}


def _number(
    work: Deciding, step: Step, names: Names, key: str, wanted: Any, most: int
) -> int | None:
    value = None
    if wanted is not None:
        value = work.program.templates.value(wanted, names, coerce=True)
    if value is None or value == "":
        return None
    try:
        number = 0 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        number = 0
    if not 1 <= number <= most:
        msg = f"{key} of {step.name!r} is {value!r}; give it a number from 1 to {most}"
        raise TemplateError(msg, str(wanted)[:200])
    return number
