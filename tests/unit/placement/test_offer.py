"""Which worker is offered a command: near first, then the emptiest, always the same one."""

from __future__ import annotations

import random

import pytest

from placement.offer import Candidate, Place, choose_worker, distance

HERE = Place(region="eu", zone="eu-1", node="n1")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Place(region="eu", zone="eu-1", node="n1"), "node"),
        (Place(region="us", zone="us-1", node="n1"), "node"),
        (Place(region="eu", zone="eu-1", node="n2"), "zone"),
        (Place(region="eu", zone="eu-2", node="n2"), "region"),
        (Place(region="us", zone="us-1", node="n2"), "any"),
        (Place(), "any"),
    ],
)
def test_distance_is_the_closest_thing_in_common(other: Place, expected: str) -> None:
    assert distance(HERE, other) == distance(other, HERE) == expected


def test_places_nobody_named_are_not_the_same_place() -> None:
    assert distance(Place(), Place()) == "any"


def worker(name: str, place: Place = HERE, held: int = 0, room: int = 4) -> Candidate:
    return Candidate(worker_id=name, place=place, held=held, room=room)


def chosen(*candidates: Candidate) -> tuple[str, str] | None:
    found = choose_worker(candidates, HERE)
    return None if found is None else (found[0].worker_id, found[1])


def test_the_nearest_with_room_is_chosen() -> None:
    far, near = worker("a", Place(region="us")), worker("b", Place(region="eu"), held=3)
    assert chosen(far, near) == ("b", "region")
    full = worker("b", Place(region="eu"), held=4)
    assert chosen(far, full) == ("a", "any")


def test_among_equals_the_share_of_room_taken_counts_not_the_number() -> None:
    assert chosen(worker("a", held=2, room=4), worker("b", held=3, room=8)) == ("b", "node")


def test_a_tie_goes_to_the_first_name_whatever_the_order() -> None:
    workers = [worker(name) for name in "dbca"]
    for _ in range(10):
        random.shuffle(workers)
        assert chosen(*workers) == ("a", "node")


def test_nobody_is_chosen_when_all_are_full_or_absent() -> None:
    assert chosen() is None
    assert chosen(worker("a", held=4), worker("b", held=9), worker("c", room=0)) is None
