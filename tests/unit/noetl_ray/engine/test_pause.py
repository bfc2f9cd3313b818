"""A paused execution: facts wait, its owner is heard, nothing new is issued."""

from __future__ import annotations

from noetl_ray.engine.state import encode_state, parse_state, wants_decision
from noetl_ray.events.types import EventType
from tests.unit.noetl_ray.engine.rig import Rig, playbook, step

PAUSE = EventType.EXECUTION_PAUSE_REQUESTED
RESUME = EventType.EXECUTION_RESUME_REQUESTED


def begun(*steps) -> Rig:
    rig = Rig(playbook(*steps))
    rig.request()
    rig.settle()
    return rig


def test_p10_a_completion_waits_while_paused_and_counts_after() -> None:
    rig = begun(step("a", "b"), step("b"))
    rig.ask(PAUSE)
    rig.settle()
    assert rig.state is not None
    assert rig.state.status == "PAUSED"
    rig.finish("a")
    assert not wants_decision(rig.state)
    assert not rig.decide()
    assert rig.open() == []
    rig.ask(RESUME)
    rig.settle()
    assert (rig.state.status, rig.open()) == ("RUNNING", ["b"])
    rig.finish("b")
    rig.settle()
    assert rig.state.status == "COMPLETED"


def test_p4_facts_of_one_decision_are_taken_in_the_order_it_names() -> None:
    """The resume is younger than the completion it frees, and consumed before it."""
    rig = begun(step("a", "b"), step("b"))
    rig.ask(PAUSE)
    rig.settle()
    rig.finish("a")
    rig.ask(RESUME)
    completion, resume = len(rig.log) - 1, len(rig.log)
    rig.settle()
    assert rig.log[-1].record.consumed == (resume, completion)


def test_what_was_issued_before_the_pause_in_one_decision_stays() -> None:
    rig = Rig(playbook(step("a", "b"), step("b")))
    rig.request()
    rig.ask(PAUSE)
    rig.settle()
    assert rig.state is not None
    assert (rig.state.status, rig.open()) == ("PAUSED", ["a"])


def test_cancel_works_when_paused() -> None:
    rig = begun(step("a", "b"), step("b"))
    rig.ask(PAUSE)
    rig.settle()
    rig.cancel("enough")
    rig.settle()
    assert rig.state is not None
    assert (rig.state.status, rig.state.cancel_reason) == ("CANCELLED", "enough")


def test_pausing_twice_and_resuming_twice_leaves_nothing_behind() -> None:
    rig = begun(step("a"))
    for kind in (PAUSE, PAUSE, RESUME, RESUME):
        rig.ask(kind)
        rig.settle()
        assert rig.state is not None
        assert rig.state.pending == {}
    assert rig.state.status == "RUNNING"


def test_a_pause_survives_being_stored() -> None:
    rig = begun(step("a", "b"), step("b"))
    rig.ask(PAUSE)
    rig.settle()
    rig.finish("a")
    assert rig.state is not None
    again = parse_state(encode_state(rig.state))
    assert again == rig.state
    assert not wants_decision(again)
