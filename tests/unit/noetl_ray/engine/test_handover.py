"""What a frame's subject says when its holder changes."""

from __future__ import annotations

import msgspec

from noetl_ray.engine.frames import Slot, StageState
from noetl_ray.engine.handover import handover, stage_of
from noetl_ray.engine.inputs import Claim
from noetl_ray.engine.policy import FramePolicy
from noetl_ray.engine.state import CommandState, ExecutionState, LoopState
from noetl_ray.events.types import EventType

STAGE = StageState(
    stage_id="1-s-1",
    policy=FramePolicy(max_attempts=2, lease_seconds=10),
    slots=(Slot(), Slot(index=4, frame_id="f")),
)
FRAME = CommandState(
    command_id="f", step="s", visit=1, issued_position=1, issued_event_id=1, last_event_id=1,
    worker_id="w/0", incarnation="w/0#1", frame=True, lease_until_ms=5_000,
)  # fmt: skip
CLAIM = Claim(worker_id="w/1", incarnation="w/1#1", lease_ms=8_000, distance="zone")


def test_frm_11_both_events_say_who_held_it_and_who_took_it():
    abandoned, dispatched = handover(STAGE, FRAME, CLAIM, "w/0 is gone", 7_000)
    assert [abandoned[0], dispatched[0]] == [EventType.FRAME_ABANDONED, EventType.FRAME_DISPATCHED]
    for _, payload in (abandoned, dispatched):
        assert payload["retry_mode"] == "whole_frame"
        assert payload["rows_split"] is False
        assert payload["max_attempts"] == 2
    assert abandoned[1]["previous_worker"] == "w/0"
    assert abandoned[1]["previous_lease_until_ms"] == 5_000
    assert abandoned[1]["taken_by"] == "w/1"
    assert dispatched[1]["attempt"] == 2
    assert dispatched[1]["previous_attempts"] == 1
    assert dispatched[1]["lease_until_ms"] == 17_000


def test_nobody_to_take_it_leaves_it_abandoned():
    (only,) = handover(STAGE, FRAME, None, "w/0 is gone", 7_000)
    assert only[0] is EventType.FRAME_ABANDONED
    assert only[1]["taken_by"] is None


def test_a_waiting_frame_is_only_dispatched():
    (only,) = handover(STAGE, FRAME, CLAIM, None, 7_000)
    assert only[0] is EventType.FRAME_DISPATCHED
    assert only[1]["attempt"] == 1


def test_frm_14_after_the_last_attempt_it_fails_with_what_an_operator_needs():
    last = msgspec.structs.replace(FRAME, attempt=2)
    abandoned, failed = handover(STAGE, last, CLAIM, "w/0 is gone", 7_000)
    assert [abandoned[0], failed[0]] == [EventType.FRAME_ABANDONED, EventType.FRAME_FAILED]
    assert (failed[1]["slot"], failed[1]["frame_index"]) == (1, 3)
    assert failed[1]["attempts"] == 2
    assert failed[1]["last_worker"] == "w/0"
    assert failed[1]["frame_policy"]["max_attempts"] == 2
    assert failed[1]["error"]["message"] == (
        "frame f was given up after 2 attempts: w/0 is gone; its rows stay claimed"
    )


def test_a_frame_belongs_to_the_visit_it_was_made_for():
    loop = LoopState(visit=1, total=0, iterator="x", window=2, stage=STAGE)
    state = ExecutionState(execution_id=1, tenant_id="t", organization_id="o", loops={"s": loop})
    assert stage_of(state, FRAME) is STAGE
    assert stage_of(state, msgspec.structs.replace(FRAME, visit=2)) is None
