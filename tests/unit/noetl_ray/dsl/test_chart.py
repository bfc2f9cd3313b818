"""Drawings: every step once, joins after what they join, cycles and ends told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.dsl.chart import ChartArc, ChartStep, chart, mermaid, short
from noetl_ray.dsl.graph import StepGraph
from noetl_ray.dsl.model import Arc, Loop, Playbook, Step, Task


def book(steps: dict[str, Step]) -> Playbook:
    return Playbook(
        name="g",
        path="g",
        workload={},
        steps=steps,
        entry=next(iter(steps)),
        digest="",
        source="",
    )


def plain(arcs: dict[str, str]) -> Playbook:
    """A playbook from names to their targets, one letter each."""
    return book(
        {
            name: Step(name=name, arcs=tuple(Arc(step=target) for target in targets))
            for name, targets in arcs.items()
        }
    )


def test_a_join_is_drawn_after_what_it_joins() -> None:
    made = chart(plain({"a": "bcd", "d": "j", "b": "j", "c": "x", "x": "j", "j": ""}))
    assert [step.name for step in made] == ["a", "b", "c", "x", "d", "j"]
    assert made[-1].joins == ("d", "b", "x")
    assert made[0].entry


def test_cycles_ends_and_orphans() -> None:
    steps = {
        "s": Step(name="s", arcs=(Arc(step="f"),)),
        "f": Step(
            name="f",
            arcs=(Arc(step="f", when="{{ more }}"), Arc(step="end")),
            tasks=(Task(label="x", kind="http", config={}),),
        ),
        "o": Step(name="o"),
    }
    first, fetch, orphan = chart(book(steps))
    assert first.arcs == (ChartArc(step="f"),)
    assert fetch.arcs == (
        ChartArc(step="f", label="more", back=True),
        ChartArc(step="end", label="otherwise", ends=True),
    )
    assert fetch.joins == ()
    assert (orphan.name, orphan.reached) == ("o", False)


def test_what_a_step_does() -> None:
    tasks = tuple(Task(label=str(n), kind="noop", config={}) for n in range(6))
    loop = Loop(items="{{ rows }}", iterator="row", mode="parallel", max_in_flight=4)
    (made,) = chart(book({"a": Step(name="a", tasks=tasks, loop=loop, desc="Say\n what")}))
    assert made == ChartStep(
        name="a",
        what="noop + noop + noop + 3 more",
        desc="Say what",
        loop="for each row in rows, 4 at once",
        entry=True,
    )
    cursor = Loop(iterator="row", mode="cursor", cursor={"kind": "postgres"})
    (made,) = chart(book({"a": Step(name="a", loop=cursor)}))
    assert (made.what, made.loop) == ("", "for each row in cursor, 1 at once")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{ a > 1 }}", "a > 1"),
        ("{{- a -}}", "a"),
        ("{{ a }} and {{ b }}", "{{ a }} and {{ b }}"),
        (True, "True"),
        ("x" * 80, "x" * 59 + "…"),
    ],
)
def test_labels_are_short(value: object, expected: str) -> None:
    assert short(value) == expected


def test_mermaid_text() -> None:
    steps = (
        ChartStep(
            name='s"1',
            what="python",
            entry=True,
            arcs=(
                ChartArc(step="j", label="a < b | c"),
                ChartArc(step='s"1', back=True),
                ChartArc(step="end", ends=True),
            ),
        ),
        ChartStep(name="j", what="", joins=("a", "b")),
        ChartStep(name="o\n1", what="noop", reached=False),
    )
    assert mermaid(steps).splitlines() == [
        "flowchart TD",
        '  s0(["s#quot;1<br/>python"])',
        '  s1{{"j"}}',
        '  s2["o 1<br/>noop"]',
        '  done(("end"))',
        '  s0 -->|"a #lt; b #124; c"| s1',
        "  s0 -.-> s0",
        "  s0 --> done",
        "  classDef unreached stroke-dasharray: 4 4,opacity:0.6",
        "  class s2 unreached",
    ]


_ARCS = st.dictionaries(st.sampled_from("abcdefg"), st.text("abcdefgz", max_size=3), min_size=1)


@given(_ARCS)
def test_every_step_is_drawn_once_and_after_what_it_waits_for(arcs: dict[str, str]) -> None:
    playbook = plain(arcs)
    graph = StepGraph(playbook)
    made = chart(playbook)
    at = {step.name: index for index, step in enumerate(made)}
    assert sorted(at) == sorted(arcs)
    assert len(made) == len(arcs)
    assert at[playbook.entry] == 0
    reached = graph.reachable(playbook.entry) | {playbook.entry}
    for step in made:
        assert step.reached == (step.name in reached)
        waited = graph.upstreams(step.name) & reached
        assert all(at[name] < at[step.name] for name in waited)
        assert set(step.joins) == (waited if len(waited) > 1 else set())
        for arc in step.arcs:
            assert arc.ends == (arc.step not in arcs)
            assert not arc.back or at[arc.step] <= at[step.name]
    lines = mermaid(made).splitlines()
    assert sum("-->" in line or "-.->" in line for line in lines) == sum(map(len, arcs.values()))
