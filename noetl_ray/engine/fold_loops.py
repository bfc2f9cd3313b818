"""What events about loops, their stages and frames do to a state; part of ``fold``. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.frames import Slot, StageState, stage_value
from noetl_ray.engine.policy import FramePolicy
from noetl_ray.engine.reducing import ReduceState
from noetl_ray.engine.state import LOOP_TIER, MANIFEST_TIER, CommandState, LoopState
from noetl_ray.events.types import EventType
from noetl_ray.locator.result import ResultName, frame_coordinate, step_coordinate

if TYPE_CHECKING:
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.events.envelope import Event


RESULTS_LABEL = "results"
"""Beside the step's name, in the names of what the ranges of its loop gave."""


def start_loop(draft: ExecutionState, event: Event) -> None:
    """A loop over a collection begins."""
    payload = event.payload
    draft.loops[payload["step"]] = LoopState(
        visit=payload["visit"],
        total=payload["total"],
        iterator=payload["iterator"],
        window=payload["window"],
        items=payload.get("items"),
        items_ref=msgspec.to_builtins(event.payload_ref) if event.payload_ref else None,
    )


def iterated(draft: ExecutionState, event: Event) -> None:
    """One iteration of a loop came back."""
    name, payload = event.payload["step"], event.payload
    loop = draft.loops.get(name)
    if loop is None or loop.visit != payload["visit"]:
        return
    failed = event.event_type is EventType.CALL_ERROR
    rows = payload.get("rows")
    draft.loops[name] = msgspec.structs.replace(
        loop,
        done=loop.done + (not failed),
        failed=loop.failed + failed,
        error=loop.error or (payload.get("error") if failed else None),
        results={**loop.results, str(payload["index"]): payload["result"]},
        rows=loop.rows if rows is None else (loop.rows or 0) + rows,
    )


def end_loop(draft: ExecutionState, event: Event) -> None:
    """The step's result is a list of its iterations' results, by index."""
    name = event.payload["step"]
    loop = draft.loops.pop(name)
    if loop.stage is not None:
        draft.steps[name] = msgspec.structs.replace(
            draft.steps[name],
            result=_stage_result(draft, event, loop),
            error=loop.error,
            rows=loop.rows,
        )
        return
    draft.steps[name] = msgspec.structs.replace(
        draft.steps[name],
        result={
            "status": "error" if loop.failed else "ok",
            "tier": LOOP_TIER,
            "reference": None,
            "parts": [loop.results.get(str(index)) for index in range(loop.total)],
            "stats": event.payload["stats"],
        },
        error=loop.error,
        rows=loop.rows,
    )


def open_stage(draft: ExecutionState, event: Event) -> None:
    """A framed loop begins: its slots are empty."""
    payload = event.payload
    draft.loops[payload["step"]] = LoopState(
        visit=payload["visit"],
        total=payload.get("total", 0),
        items_ref=msgspec.to_builtins(event.payload_ref) if event.payload_ref else None,
        iterator=payload["iterator"],
        window=payload.get("window", payload["slots"]),
        stage=StageState(
            stage_id=event.stage_id or "",
            policy=msgspec.convert(payload["frame_policy"], FramePolicy),
            slots=tuple(Slot() for _ in range(payload["slots"])),
            total=payload.get("total", 0),
        ),
    )


def open_reduce(draft: ExecutionState, event: Event) -> None:
    """A fan-out has a stage that takes its partitions in."""
    payload = event.payload
    loop = draft.loops[payload["step"]]
    assert loop.stage is not None
    reduce = ReduceState(
        stage_id=event.stage_id or "",
        policy=msgspec.convert(payload["frame_policy"], FramePolicy),
        stream=payload["stream"],
        outstanding_max=payload["outstanding_max"],
    )
    stage = msgspec.structs.replace(loop.stage, reduce=reduce)
    draft.loops[payload["step"]] = msgspec.structs.replace(loop, stage=stage)


def close_stage(draft: ExecutionState, event: Event) -> None:
    """A fan-out's frames are all back; its reduce may go on. Any other stage ends with its loop."""
    loop = draft.loops.get(event.payload["step"])
    if loop is not None and loop.stage is not None and loop.stage.reduce is not None:
        stage = msgspec.structs.replace(loop.stage, closed=True)
        draft.loops[event.payload["step"]] = msgspec.structs.replace(loop, stage=stage)


def dispatch_frame(draft: ExecutionState, event: Event, position: int) -> None:
    """A decision gave a slot its next frame."""
    payload = event.payload
    claim = payload.get("claim") or {}
    frame_id = event.frame_id or ""
    draft.commands[frame_id] = CommandState(
        command_id=frame_id,
        step=payload["step"],
        visit=payload["visit"],
        issued_position=position,
        issued_event_id=event.event_id,
        last_event_id=event.event_id,
        worker_id=claim.get("worker_id"),
        incarnation=claim.get("incarnation"),
        frame=True,
        lease_until_ms=payload["lease_until_ms"],
    )
    loop = draft.loops[payload["step"]]
    if loop.stage is not None:
        taken = payload.get("range")
        reduce = loop.stage.reduce
        if reduce is not None and reduce.stage_id == event.stage_id:
            stage = msgspec.structs.replace(loop.stage, reduce=reduce.dispatched(frame_id))
        else:
            stage = loop.stage.dispatched(payload["slot"], frame_id, taken and tuple(taken))
        draft.loops[payload["step"]] = msgspec.structs.replace(loop, stage=stage)


def change_holder(draft: ExecutionState, event: Event) -> None:
    """A frame was abandoned, handed on, started, or its holder said that it lives."""
    frame = draft.commands.get(event.command_id or "")
    if frame is None:
        return
    changes: dict[str, Any] = {"last_event_id": event.event_id}
    if event.event_type is EventType.FRAME_ABANDONED:
        # Who takes it next makes another attempt, also when that is not said in the same record.
        attempt = int(event.payload["attempt"]) + 1
        changes |= {"worker_id": None, "incarnation": None, "attempt": attempt}
    elif event.event_type is EventType.FRAME_DISPATCHED:
        changes |= {
            "worker_id": event.payload["worker_id"],
            "incarnation": event.payload["incarnation"],
            "attempt": int(event.payload["attempt"]),
        }
    if "lease_until_ms" in event.payload:
        changes["lease_until_ms"] = event.payload["lease_until_ms"]
    draft.commands[frame.command_id] = msgspec.structs.replace(frame, **changes)


def frame_returned(draft: ExecutionState, event: Event) -> None:
    """A frame's end was consumed: its slot is free, its counts are the stage's."""
    payload = event.payload
    loop = draft.loops.get(payload["step"])
    if loop is None or loop.stage is None:
        return
    ok = event.event_type is EventType.FRAME_COMMITTED
    stage, reduce = loop.stage, loop.stage.reduce
    if stage.stage_id == event.stage_id:
        stage = stage.returned(payload["slot"], payload, ok=ok)
    elif reduce is not None and reduce.stage_id == event.stage_id:
        reduce = reduce.returned(payload, ok=ok)
        stage = msgspec.structs.replace(stage, reduce=reduce)
    else:
        return
    draft.loops[payload["step"]] = msgspec.structs.replace(
        loop,
        stage=stage,
        done=stage.processed,
        failed=stage.frames_failed
        + (stage.failed if stage.total else 0)
        + (reduce.failed if reduce is not None else 0),
        rows=stage.processed,
        error=loop.error or payload.get("error"),
    )


def results_name(draft: ExecutionState, step: str, visit: int) -> ResultName:
    """Where the results of a framed loop lie; a part puts its first index and attempt into it."""
    return ResultName(
        tenant=draft.tenant_id,
        project=draft.project_id,
        execution_id=draft.execution_id,
        step=step_coordinate(step, RESULTS_LABEL),
        frame=frame_coordinate(visit),
    )


def _stage_result(draft: ExecutionState, event: Event, loop: LoopState) -> dict[str, Any] | None:
    """The result block of a framed loop's step."""
    stage = loop.stage
    assert stage is not None
    if stage.reduce is not None:
        return stage.reduce.result
    if stage.total:
        return {
            "status": "error" if loop.failed else "ok",
            "tier": MANIFEST_TIER,
            "reference": None,
            "stats": event.payload["stats"],
            "manifest": {
                "uri": results_name(draft, event.payload["step"], loop.visit).uri,
                "total": stage.total,
                "parts": [list(run) for run in stage.parts],
                "bytes": stage.size_bytes,
                "digest": stage.digest,
            },
        }
    return {
        "status": "error" if loop.failed else "ok",
        "tier": "inline",
        "reference": None,
        "extracted": stage_value(stage),
        "parent_ref": None,
        "context": {},
    }
