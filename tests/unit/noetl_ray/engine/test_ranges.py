"""Ranges of a collection: handed out once, remembered in a few numbers."""

from __future__ import annotations

import random

import msgspec

from noetl_ray.engine.frames import Slot, StageState
from noetl_ray.engine.policy import FramePolicy
from noetl_ray.engine.ranges import add_part, available, frame_rows, halved_to, mixed, parts_of
from noetl_ray.engine.reducing import ReduceState

REF = {"uri": "u", "sha256": "ab" * 32, "bytes": 10}


def stage(total: int, slots: int = 3, rows: int = 10) -> StageState:
    policy = FramePolicy(max_rows=rows)
    return StageState(stage_id="1-s-1", policy=policy, slots=(Slot(),) * slots, total=total)


def test_p26_a_hundred_thousand_items_leave_a_few_numbers():
    rng = random.Random(1)
    state, running, seen = stage(100_000, 4, 50), [], []
    while not state.over:
        number = state.idle_slot
        if number is not None and (not running or rng.random() < 0.6):
            taken = state.range_for(number)
            assert taken is not None
            state = state.dispatched(number, f"f{taken[0]}", taken)
            running.append((number, taken))
            continue
        number, taken = running.pop(rng.randrange(len(running)))
        seen.append(taken)
        payload = {"row_count": taken[1], "processed": taken[1], "range": list(taken)}
        state = state.returned(number, payload | {"attempt": 1, "output_ref": REF}, ok=True)
        assert len(repr(state)) < 1_500
    assert state.parts == ((0, 50, 1, 2_000),)
    assert sorted(seen) == [(first, 50) for first in range(0, 100_000, 50)]
    assert state.processed == 100_000


def test_what_a_frame_gives_back_is_handed_out_again():
    state = stage(30, 1)
    first = state.range_for(0)
    assert first == (0, 10)
    state = state.dispatched(0, "a", first)
    given = {"row_count": 4, "processed": 4, "range": [0, 10], "attempt": 2, "output_ref": REF}
    state = state.returned(0, given, ok=True)
    assert (state.gaps, state.parts, state.range_for(0)) == (((4, 6),), ((0, 4, 2, 1),), (4, 6))
    state = state.dispatched(0, "b", (4, 6))
    assert (state.gaps, state.issued) == ((), 10)


def test_a_failed_item_stops_the_stage():
    state = stage(30).dispatched(0, "a", (0, 10)).dispatched(1, "b", (10, 10))
    given = {"row_count": 3, "processed": 3, "failed": 1, "range": [0, 10], "attempt": 1}
    state = state.returned(0, given | {"output_ref": REF}, ok=True)
    assert (state.idle_slot, state.over, state.gaps, state.stopped) == (None, False, (), True)


def test_equal_neighbours_are_one_run_whatever_order_they_come_in():
    runs = ()
    for first in (20, 0, 30, 10):
        runs = add_part(runs, first, 10, 1)
    assert runs == ((0, 10, 1, 4),)
    runs = add_part(add_part(runs, 40, 5, 1), 45, 5, 2)
    assert runs == ((0, 10, 1, 4), (40, 5, 1, 1), (45, 5, 2, 1))
    assert list(parts_of(runs))[3:] == [(30, 10, 1), (40, 5, 1), (45, 5, 2)]


def test_frames_are_cut_so_that_every_slot_gets_some():
    assert [frame_rows(total, 4, 500) for total in (1, 100, 5_000, 100_000)] == [1, 7, 313, 500]
    assert [halved_to(50, fit) for fit in (70.0, 50.0, 49.0, 10.0, 0.2)] == [50, 50, 25, 6, 1]


def test_a_digest_of_parts_knows_no_order():
    one, two = "12" * 32, "fe" * 32
    assert mixed(mixed("", one), two) == mixed(mixed("", two), one) != mixed("", one)


def test_what_is_available_follows_from_a_start_without_a_hole():
    runs = ((0, 5, 1, 3), (15, 5, 2, 1), (25, 5, 1, 2))
    assert available(runs, 0, 0) == ((0, 5, 1, 3), (15, 5, 2, 1))
    assert available(runs, 5, 0) == ((5, 5, 1, 2), (15, 5, 2, 1))
    assert available(runs, 5, 2) == ((5, 5, 1, 2),)
    assert available(runs, 20, 0) == ()
    assert available(runs, 25, 1) == ((25, 5, 1, 1),)
    assert available((), 0, 3) == ()


def test_fan_3_the_part_a_reduce_waits_for_is_dispatched_whatever_lies_there():
    reduce = ReduceState(stage_id="r", policy=FramePolicy(), outstanding_max=2)
    state = msgspec.structs.replace(stage(40), reduce=reduce)
    for number in (0, 1):
        state = state.dispatched(number, f"f{number}", state.range_for(number))
    assert state.idle_slot == 2
    assert not state.may_go_on
    cut_short = {"range": (0, 10), "row_count": 4, "attempt": 1, "output_ref": REF}
    state = state.returned(0, cut_short, ok=True)
    assert not state.may_go_on  # the first four items are there, so the reduce has something to do
    taken = {"reduced_to": 4, "partitions": 1, "result": {}}
    state = msgspec.structs.replace(state, reduce=reduce.dispatched("r0").returned(taken, ok=True))
    state = state.returned(
        1, {"range": (10, 10), "row_count": 10, "attempt": 1, "output_ref": REF}, ok=True
    )
    assert state.range_for(0) == (4, 6)
    assert state.may_go_on


def test_a_reduce_frame_that_failed_leaves_what_was_taken_in():
    reduce = ReduceState(stage_id="r", policy=FramePolicy(), next=8, taken=2).dispatched("f")
    assert reduce.ready(((8, 4, 1, 1),), complete=True) is None
    failed = reduce.returned({"failed": 1}, ok=True)
    assert (failed.next, failed.taken, failed.failed) == (8, 2, 1)
    assert failed.ready(((8, 4, 1, 1),), complete=True) is None
