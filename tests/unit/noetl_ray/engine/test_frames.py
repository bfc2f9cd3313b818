"""Frame policy, slots of a stage and the size of the next frame."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.config.settings import FramePolicySettings
from noetl_ray.engine.frames import (
    SLOTS_MAX,
    Slot,
    StageState,
    frame_id_of,
    frame_ordinal,
    stage_value,
)
from noetl_ray.engine.policy import FramePolicy, frame_policy, next_max_rows
from noetl_ray.errors import TemplateError


def stage(slots: int = 2) -> StageState:
    return StageState(stage_id="1-s-1", policy=FramePolicy(), slots=(Slot(),) * slots)


def test_without_a_word_a_frame_is_one_row():
    policy = frame_policy({}, {}, "s")
    assert (policy.max_rows, policy.process, policy.row_concurrency) == (1, "row", 1)
    assert (policy.max_seconds, policy.max_bytes, policy.max_attempts) == (30, 67_108_864, 3)
    assert (policy.lease_seconds, policy.heartbeat_seconds) == (120, 30)


def test_the_defaults_are_those_of_the_settings():
    given = FramePolicySettings()
    names = ("max_rows", "max_seconds", "max_bytes", "lease_seconds", "heartbeat_seconds")
    for name in (*names, "max_attempts", "row_concurrency"):
        assert getattr(FramePolicy(), name) == getattr(given, name), name


def test_what_a_loop_says_goes_over_the_defaults():
    policy = frame_policy({"max_rows": "7", "process": "frame"}, {"max_rows": 3}, "s")
    assert (policy.max_rows, policy.process) == (7, "frame")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"max_rows": 0}, "frame.max_rows of 's' is 0; give it a whole number from 1 to 1e+06"),
        ({"max_rows": 1.5}, "frame.max_rows of 's' is 1.5"),
        ({"max_rows": True}, "frame.max_rows of 's' is True"),
        ({"max_rows": "many"}, "frame.max_rows of 's' is 'many'"),
        ({"process": "rows"}, "'rows' is not known in the frame of 's'; use row or frame"),
        ({"retry_mode": "row"}, "'row' is not known in the frame of 's'; use whole_frame"),
        (
            {"lease_seconds": 10, "heartbeat_seconds": 6},
            "frame.heartbeat_seconds of 's' is 6; it must be at most half of lease_seconds, 10",
        ),
    ],
)
def test_a_bad_policy_is_refused_not_clamped(wanted: dict[str, Any], message: str):
    with pytest.raises(TemplateError) as caught:
        frame_policy(wanted, {}, "s")
    assert message in caught.value.message


def test_a_short_lease_brings_its_own_heartbeat():
    assert frame_policy({"lease_seconds": 8}, {}, "s").heartbeat_seconds == 2


def test_p26_a_stage_of_many_frames_stays_small():
    state = stage()
    for index in range(1_000):
        for number in (0, 1):
            frame_id = frame_id_of("1-s-1", number, index)
            state = state.dispatched(number, frame_id)
            assert state.slots[number].frame_id == frame_id
            state = state.returned(
                number, {"row_count": 5, "processed": 5, "failed": 1, "next_max_rows": 5}, ok=True
            )
    assert (state.frames, state.processed, state.failed) == (2_000, 10_000, 2_000)
    assert len(repr(state)) < 1_200


def test_an_empty_frame_ends_its_slot_and_no_other():
    state = stage().dispatched(0, "a").dispatched(1, "b")
    assert state.idle_slot is None
    state = state.returned(0, {"row_count": 0}, ok=True)
    assert (state.idle_slot, state.open, state.over) == (None, 1, False)
    state = state.returned(1, {"row_count": 3, "processed": 3}, ok=True)
    assert state.idle_slot == 1
    state = state.dispatched(1, "c").returned(1, {"row_count": 0}, ok=True)
    assert state.over
    assert state.root_frame_id == "a"
    assert stage_value(state)["status"] == "ok"


def test_a_failed_frame_lets_no_other_begin():
    state = stage().dispatched(0, "a").dispatched(1, "b").returned(0, {}, ok=False)
    assert (state.idle_slot, state.over) == (None, False)
    state = state.returned(1, {"row_count": 3, "processed": 3}, ok=True)
    assert (state.idle_slot, state.over) == (None, True)
    assert stage_value(state) == {
        "status": "partial", "processed": 3, "failed": 0, "frame_count": 1, "frames_failed": 1,
        "stage_id": "1-s-1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "seconds", "size", "wanted"),
    [
        (50, 1.0, 10, 50),
        (50, 60.0, 10, 25),
        (50, 1.0, 2 * 67_108_864, 25),
        (50, 60.0, 100 * 67_108_864, 1),
        (0, 60.0, 0, 50),
    ],
)
def test_a_frame_over_a_bound_makes_the_next_one_smaller(rows, seconds, size, wanted):
    policy = FramePolicy(max_rows=50, max_seconds=30)
    assert next_max_rows(policy, rows, seconds, size) == wanted


def test_frames_never_share_a_place():
    places = {frame_ordinal(slot, index) for slot in range(SLOTS_MAX) for index in range(20)}
    assert len(places) == SLOTS_MAX * 20
