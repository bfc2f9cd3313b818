"""What is written on a frame's subject when its holder changes (FRM-11, FRM-14). Pure.

A frame is tried whole, never split: whoever takes it over begins from its own claim of rows. After
the last attempt the frame fails, with what an operator needs to find the rows it held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from noetl_ray.engine.frames import StageState
    from noetl_ray.engine.inputs import Claim
    from noetl_ray.engine.reducing import ReduceState
    from noetl_ray.engine.state import CommandState, ExecutionState

    Stage = StageState | ReduceState

OUTSIDE = "outside"
"""The incarnation of a holder that never joined: nobody sees it die, so its lease alone counts."""

Wanted = list[tuple[EventType, dict[str, Any]]]


def stage_of(state: ExecutionState, frame: CommandState) -> Stage | None:
    """The stage a frame belongs to, while it is open."""
    loop = state.loops.get(frame.step)
    if loop is None or loop.visit != frame.visit:
        return None
    stage = loop.stage
    reduce = stage.reduce if stage is not None else None
    if reduce is not None and reduce.frame_id == frame.command_id:
        return reduce
    return stage


def lease_ran_out(frame: CommandState, now_ms: int) -> bool:
    """Whether a frame's lease, as its holder told it, is over by somebody's clock."""
    return frame.frame and frame.worker_id is not None and now_ms > frame.lease_until_ms


def handover(
    stage: Stage,
    frame: CommandState,
    claim: Claim | None,
    released: str | None,
    now_ms: int,
) -> Wanted:
    """Abandoned by the old holder, dispatched to the new one, or failed for good."""
    policy = stage.policy
    facts: dict[str, Any] = {
        "step": frame.step,
        "visit": frame.visit,
        "retry_mode": policy.retry_mode,
        "rows_split": False,
        "max_attempts": policy.max_attempts,
    }
    wanted: Wanted = []
    attempt = frame.attempt
    if released is not None:
        held = {
            "reason": released,
            "attempt": attempt,
            "previous_worker": frame.worker_id,
            "previous_incarnation": frame.incarnation,
            "previous_lease_until_ms": frame.lease_until_ms,
            "taken_by": claim.worker_id if claim is not None else None,
        }
        wanted.append((EventType.FRAME_ABANDONED, facts | held))
        attempt += 1
        if attempt > policy.max_attempts:
            wanted.append((EventType.FRAME_FAILED, facts | _failure(stage, frame, released)))
            return wanted
    if claim is not None:
        taken = {
            "attempt": attempt,
            "worker_id": claim.worker_id,
            "incarnation": claim.incarnation,
            "distance": claim.distance,
            "previous_attempts": attempt - 1,
            "lease_until_ms": now_ms + int(policy.lease_seconds * 1000),
        }
        wanted.append((EventType.FRAME_DISPATCHED, facts | taken))
    return wanted


def _failure(stage: Stage, frame: CommandState, reason: str) -> dict[str, Any]:
    slot, index = stage.place_of(frame.command_id)
    message = (
        f"frame {frame.command_id} was given up after {stage.policy.max_attempts} attempts: "
        f"{reason}; its rows stay claimed"
    )
    return {
        "slot": slot,
        "frame_index": index,
        "frame_policy": msgspec.to_builtins(stage.policy),
        "attempts": frame.attempt,
        "last_worker": frame.worker_id,
        "row_count": 0,
        "error": {
            "kind": "frame",
            "code": "frame_attempts_used_up",
            "message": message,
            "retryable": False,
            "step": frame.step,
        },
    }
