"""The workers as a conductor knows them: members from the log, room by its own count."""

from __future__ import annotations

from typing import Any

from actors.fleet import (
    FRAMES_MAX,
    OVERCOMMIT,
    PACE_KEPT_S,
    PACE_LEFT,
    PACE_S,
    QUEUE_S,
    ROOM_PER_SLOT_MAX,
    Fleet,
)
from actors.stamp import system_event
from noetl_ray.engine.frames import frame_id_of, is_frame_id
from noetl_ray.events.types import EventType
from placement.offer import Place

HERE = Place(region="eu", zone="eu-1", node="n1")


def said(kind: EventType, worker_id: str, incarnation: str, **more: Any) -> Any:
    payload = {"worker_id": worker_id, "incarnation": incarnation, **more}
    return system_event(kind, worker_id, payload, event_id=1, now_ms=0, producer="p")


def joined(worker_id: str, incarnation: str = "i1", slots: int = 1, **place: str) -> Any:
    return said(EventType.WORKER_JOINED, worker_id, incarnation, slots=slots, place=place)


def fleet_of(*events: Any) -> Fleet:
    fleet = Fleet(HERE, 5_000)
    for event in events:
        fleet.observe(event)
    return fleet


def test_nobody_is_chosen_from_an_empty_fleet() -> None:
    fleet = fleet_of()
    assert fleet.choose("c") is None
    assert not fleet.has_room()
    assert len(fleet) == 0


def test_a_claim_says_who_which_incarnation_how_long_and_how_far() -> None:
    claim = fleet_of(joined("w1", region="eu", zone="eu-1", node="n2")).choose("c")
    assert claim is not None
    assert (claim.worker_id, claim.incarnation) == ("w1", "i1")
    assert (claim.lease_ms, claim.distance) == (5_000, "zone")


def test_room_is_slots_and_a_small_queue_and_comes_back() -> None:
    fleet = fleet_of(joined("w1", slots=2))
    taken = [f"c{i}" for i in range(2 * OVERCOMMIT)]
    assert all(fleet.choose(c) for c in taken)
    assert fleet.choose("more") is None
    assert not fleet.has_room()
    fleet.release("w1", taken[0])
    assert fleet.has_room()
    assert fleet.choose("more") is not None


def room_of(fleet: Fleet) -> int:
    """How many commands fit; takes them and gives them back unseen."""
    taken = []
    while fleet.choose(f"fill{len(taken)}") is not None:
        taken.append(f"fill{len(taken)}")
    for name in taken:
        fleet._members["w1"].held.discard(name)
    return len(taken)


def test_a_fast_worker_may_hold_what_it_does_in_the_next_moment() -> None:
    seconds = 10.0
    fleet = Fleet(HERE, 5_000, lambda: seconds)
    fleet.observe(joined("w1", slots=4))
    fleet.choose("slow")
    for index in range(20):
        fleet.choose(f"c{index % 4}")
        fleet.release("w1", f"c{index % 4}")
    assert room_of(fleet) + 1 == 4 * OVERCOMMIT, "its pace is not known yet"
    seconds += PACE_S * 2
    per_s = 20 / (PACE_S * 2)
    assert room_of(fleet) + 1 == 4 * OVERCOMMIT + int(per_s * QUEUE_S)
    seconds += PACE_S * 2
    slower = int(per_s * PACE_LEFT**2 * QUEUE_S)
    assert room_of(fleet) + 1 == 4 * OVERCOMMIT + slower, "nothing came back since"
    seconds += PACE_S * 30
    assert room_of(fleet) + 1 == 4 * OVERCOMMIT


def test_a_pace_outlives_a_short_rest_and_not_a_long_one() -> None:
    seconds = 10.0
    fleet = Fleet(HERE, 5_000, lambda: seconds)
    fleet.observe(joined("w1", slots=4))
    names = [f"c{index}" for index in range(8)]
    for name in names:
        fleet.choose(name)
    seconds += PACE_S * 2
    for name in names:
        fleet.release("w1", name)
    fast = 4 * OVERCOMMIT + int(8 / (PACE_S * 2) * QUEUE_S)
    seconds += PACE_KEPT_S / 2
    assert room_of(fleet) == fast
    fleet.choose("first after a long rest")
    fleet.release("w1", "first after a long rest")
    seconds += PACE_KEPT_S * 2
    fleet.choose("first after a long rest")
    assert room_of(fleet) + 1 == 4 * OVERCOMMIT


def test_room_has_an_end_however_fast_a_worker_is() -> None:
    seconds = 0.0
    fleet = Fleet(HERE, 5_000, lambda: seconds)
    fleet.observe(joined("w1", slots=1))
    fleet.holds("w1", "slow")
    for index in range(10_000):
        fleet.holds("w1", f"c{index}")
        fleet.release("w1", f"c{index}")
    seconds += PACE_S
    assert room_of(fleet) + 1 == ROOM_PER_SLOT_MAX


def test_the_same_command_counts_once() -> None:
    fleet = fleet_of(joined("w1", slots=1))
    fleet.holds("w1", "c")
    fleet.holds("w1", "c")
    assert fleet.choose("d") is not None
    fleet.release("w1", "never held")
    assert fleet.choose("e") is None


def test_the_near_one_fills_first_then_the_far_one() -> None:
    fleet = fleet_of(joined("far", region="us"), joined("near", node="n1"))
    chosen = [fleet.choose(f"c{i}").worker_id for i in range(4)]
    assert chosen == ["near", "near", "far", "far"]


def test_equals_share_the_work() -> None:
    fleet = fleet_of(joined("a"), joined("b"))
    assert [fleet.choose(f"c{i}").worker_id for i in range(4)] == ["a", "b", "a", "b"]


def test_p22_a_new_incarnation_replaces_the_old_and_starts_empty() -> None:
    fleet = fleet_of(joined("w1"))
    fleet.choose("c1")
    fleet.observe(joined("w1", "i2"))
    assert not fleet.alive("w1", "i1")
    assert fleet.alive("w1", "i2")
    assert len(fleet) == 1
    assert fleet.choose("c2").incarnation == "i2"


def test_a_renewal_keeps_what_is_held() -> None:
    fleet = fleet_of(joined("w1"))
    for name in ("c1", "c2"):
        fleet.choose(name)
    fleet.observe(joined("w1"))
    assert not fleet.has_room()


def test_leaving_and_being_lost_end_exactly_that_incarnation() -> None:
    for kind, more in ((EventType.WORKER_LEFT, {}), (EventType.WORKER_LOST, {"reason": "x"})):
        fleet = fleet_of(joined("w1", "i2"))
        fleet.observe(said(kind, "w1", "i1", **more))
        assert fleet.alive("w1", "i2")
        fleet.observe(said(kind, "w1", "i2", **more))
        assert not fleet.alive("w1", "i2")
        fleet.observe(said(kind, "w1", "i2", **more))


def test_strangers_are_not_alive_and_hold_nothing() -> None:
    fleet = fleet_of(joined("w1"))
    assert not fleet.alive(None, None)
    assert not fleet.alive("w2", "i1")
    fleet.holds("w2", "c")
    fleet.release(None, "c")
    assert fleet.has_room()


def test_frm_19_a_worker_holds_few_frames_and_still_takes_commands() -> None:
    fleet = fleet_of(joined("w", slots=8))
    frames = [frame_id_of("7-s-1", 0, index) for index in range(FRAMES_MAX + 1)]
    assert all(fleet.choose(frame) for frame in frames[:FRAMES_MAX])
    assert fleet.choose(frames[-1]) is None
    assert fleet.choose("7-s-2") is not None
    fleet.holds("w", frames[0])  # told again, counted once
    fleet.release("w", frames[0])
    assert fleet.choose(frames[-1]) is not None
    fleet.observe(joined("v", slots=8))
    assert fleet.choose(frame_id_of("8-s-1", 0, 0)) is not None


def test_is_frame_id_knows_frames_from_other_commands() -> None:
    assert is_frame_id(frame_id_of("7-s-1", 63, 99_999))
    assert is_frame_id(frame_id_of("7-s-1.reduce", 0, 1))
    for other in ("7-s-1", "7-a.s1.f-2", "7-s-1.12", "7-x.f1-1"):
        assert not is_frame_id(other)
