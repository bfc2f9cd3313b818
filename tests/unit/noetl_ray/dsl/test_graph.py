from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.dsl.graph import StepGraph, components
from noetl_ray.dsl.model import Arc, Playbook, Step


def graph(arcs: dict[str, str]) -> StepGraph:
    """A graph from names to their targets, one letter each."""
    steps = {
        name: Step(name=name, arcs=tuple(Arc(step=target) for target in targets))
        for name, targets in arcs.items()
    }
    return StepGraph(
        Playbook(
            name="g",
            path="g",
            workload={},
            steps=steps,
            entry=next(iter(arcs)),
            digest="",
            source="",
        )
    )


def test_a_diamond_joins() -> None:
    made = graph({"a": "bc", "b": "d", "c": "d", "d": ""})
    assert made.reachable("a") == {"b", "c", "d"}
    assert made.reachable("d") == frozenset()
    assert made.upstreams("d") == {"b", "c"}
    assert made.upstreams("a") == frozenset()
    assert not made.is_loop_branch("a")
    assert made.targets("a") == ("b", "c")


def test_a_back_edge_is_no_upstream() -> None:
    made = graph({"s": "f", "f": "c", "c": "fv", "v": ""})
    assert made.upstreams("f") == {"s"}
    assert made.upstreams("v") == {"c"}
    assert made.is_loop_branch("c")
    assert made.is_loop_branch("f")
    assert not made.is_loop_branch("s")
    assert "f" in made.reachable("f")


def test_a_step_that_leads_to_itself() -> None:
    made = graph({"a": "ab", "b": ""})
    assert made.upstreams("a") == frozenset()
    assert made.is_loop_branch("a")
    assert made.targets("a") == ("a", "b")


def test_missing_targets_lead_nowhere() -> None:
    made = graph({"a": "zb", "b": "bb"})
    assert made.targets("a") == ("b",)
    assert made.reachable("a") == {"b"}
    assert made.reachable("z") == frozenset()
    assert made.upstreams("z") == frozenset()
    assert made.targets("b") == ("b",)


def test_answers_are_kept() -> None:
    made = graph({"a": "b", "b": ""})
    assert made.reachable("a") is made.reachable("a")
    assert made.upstreams("b") is made.upstreams("b")


_ARCS = st.dictionaries(st.sampled_from("abcdef"), st.text("abcdef", max_size=3), min_size=1)


@given(_ARCS)
def test_reach_is_the_closure_of_the_arcs(arcs: dict[str, str]) -> None:
    made = graph(arcs)
    for name in arcs:
        direct = set(made.targets(name))
        expected = direct.union(*(made.reachable(target) for target in direct))
        assert made.reachable(name) == expected
        assert made.is_loop_branch(name) == (name in expected)
        for source in made.upstreams(name):
            assert name in made.targets(source)
            assert source not in made.reachable(name)


@given(_ARCS)
def test_components_are_what_reaches_each_other(arcs: dict[str, str]) -> None:
    made = graph(arcs)
    groups = components({name: made.targets(name) for name in arcs})
    assert sorted(name for group in groups for name in group) == sorted(arcs)
    for group in groups:
        for name in group:
            others = {o for o in made.reachable(name) if name in made.reachable(o)}
            assert others | {name} == set(group)


def test_components_of_a_long_chain_need_no_recursion() -> None:
    targets = {str(n): [str(n + 1)] for n in range(20_000)} | {"20000": ["0"]}
    assert len(components(targets)) == 1
