"""The join barrier as a function of the graph."""

from __future__ import annotations

from noetl_ray.engine.joins import JoinGraph, startable
from tests.unit.noetl_ray.engine.rig import playbook, step

DIAMOND = JoinGraph(
    playbook(step("a", "b", "c"), step("b", "j"), step("c", "j"), step("j"), step("z"))
)


def test_a_step_with_one_way_in_never_waits() -> None:
    assert not DIAMOND.must_wait("b", ["a", "c"])
    assert not DIAMOND.must_wait("a", ["b"])
    assert not DIAMOND.must_wait("unknown", ["a"])


def test_a_join_waits_while_a_way_in_can_still_run() -> None:
    assert DIAMOND.must_wait("j", ["a"])
    assert DIAMOND.must_wait("j", ["b"])
    assert not DIAMOND.must_wait("j", [])
    assert not DIAMOND.must_wait("j", ["z", "j"])


def test_the_back_edge_of_a_cycle_does_not_block_its_head() -> None:
    graph = JoinGraph(playbook(step("start", "head"), step("head", "body"), step("body", "head")))
    assert not graph.must_wait("head", ["head"])
    assert graph.must_wait("head", ["body"])
    assert graph.must_wait("head", ["start"])


def test_a_path_only_through_the_waiting_step_itself_does_not_count() -> None:
    graph = JoinGraph(playbook(step("a", "j"), step("b", "j"), step("j", "k"), step("k", "b")))
    assert not graph.must_wait("j", ["j"])
    assert graph.must_wait("j", ["k"])


def test_an_arc_to_itself_is_no_way_in() -> None:
    graph = JoinGraph(playbook(step("a", "b"), step("b", "b", "c"), step("c")))
    assert not graph.must_wait("b", ["a"])


def test_an_arc_to_a_missing_step_leads_nowhere() -> None:
    graph = JoinGraph(playbook(step("a", "end", "b"), step("b", "end")))
    assert not graph.must_wait("end", ["a"])


def test_the_oldest_token_that_may_start_goes_first() -> None:
    assert startable(DIAMOND, ["c", "b"], []) == "c"
    assert startable(DIAMOND, ["j", "b"], []) == "b"
    assert startable(DIAMOND, ["j"], ["b"]) is None
    assert startable(DIAMOND, ["j"], []) == "j"
    assert startable(DIAMOND, [], []) is None


def test_a_step_in_flight_is_not_started_again() -> None:
    assert startable(DIAMOND, ["b"], ["b"]) is None
    assert startable(DIAMOND, ["b", "c"], ["b"]) == "c"


def test_joins_that_wait_for_each_other_go_in_the_order_of_the_flow() -> None:
    steps = (step("a", "x", "b"), step("b", "y"), step("x", "y"), step("y", "x"))
    graph = JoinGraph(playbook(*steps))
    assert graph.must_wait("x", ["y"])
    assert graph.must_wait("y", ["x"])
    assert startable(graph, ["y", "x"], []) == "x"
    assert startable(graph, ["x", "y"], []) == "x"
    assert startable(graph, ["y", "x"], ["z"]) is None
