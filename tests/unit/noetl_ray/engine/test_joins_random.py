"""Random graphs with cycles, worked off in random order: every token starts one step once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_ray.dsl.model import Arc, Step, Task
from noetl_ray.events.types import EventType
from tests.unit.noetl_ray.engine.rig import Rig, playbook

TURNS = 3
"""How often a step may send the flow back."""
COMPLETIONS_MAX = 2_000


@dataclass(frozen=True)
class Graph:
    """Arcs by step: targets, whether all of them are taken; which steps run no task."""

    arcs: tuple[tuple[tuple[int, ...], bool], ...]
    empty: frozenset[int]

    @property
    def has_cycle(self) -> bool:
        return any(target <= index for index, (to, _) in enumerate(self.arcs) for target in to)


@st.composite
def graphs(draw: st.DrawFn, cycles: bool) -> Graph:
    size = draw(st.integers(3, 9))
    arcs = []
    for index in range(size):
        near = st.integers(index + 1, min(index + 3, size))
        anywhere = st.integers(0 if cycles else index + 1, size)
        targets = draw(st.lists(near | anywhere, min_size=1, max_size=4, unique=True))
        # The number after the last stands for a step that does not exist.
        arcs.append((tuple(targets), draw(st.sampled_from([True, True, False]))))
    return Graph(tuple(arcs), frozenset(draw(st.sets(st.integers(0, size - 1)))))


def steps_of(graph: Graph) -> list[Step]:
    found = []
    for index, (targets, inclusive) in enumerate(graph.arcs):
        name = f"s{index}"
        # A way back closes after a few turns, so that every run comes to an end.
        back = f"{{{{ ctx.n{index} < {TURNS} }}}}"
        found.append(
            Step(
                name=name,
                tasks=() if index in graph.empty else (Task(label="t", kind="noop", config={}),),
                set={f"ctx.n{index}": f"{{{{ (ctx.n{index} | default(0)) + 1 }}}}"},
                arcs=tuple(
                    Arc(step=f"s{to}", when=back if to <= index else None) for to in targets
                ),
                mode="inclusive" if inclusive else "exclusive",
            )
        )
    return found


def worked_off(graph: Graph, draw: st.DataObject) -> Rig:
    """A run in which open commands come back in any order, some before the next decision."""
    rig = Rig(playbook(*steps_of(graph)))
    rig.request()
    rig.settle()
    for _ in range(COMPLETIONS_MAX):
        waiting = rig.open()
        if not waiting:
            break
        rig.finish(draw.draw(st.sampled_from(waiting)))
        if not rig.open() or draw.draw(st.booleans()):
            rig.settle()
    rig.settle()
    return rig


def wrong_with_tokens(rig: Rig) -> list[str]:
    """Tokens that were lost, and entries that no token paid for."""
    assert rig.state is not None
    wrong = []
    owed: dict[str, list[str]] = {}
    running: set[str] = set()
    first = True
    for event in (event for recorded in rig.log for event in recorded.record.events):
        payload = event.payload
        if event.event_type is EventType.STEP_ENTER:
            name = payload["step"]
            paid = owed.pop(name, [])
            if sorted(payload["from"]) != sorted(paid) or not (paid or first):
                wrong.append(f"{name} entered for {payload['from']}, owed {paid}")
            if name in running:
                wrong.append(f"{name} entered while it ran")
            running.add(name)
            first = False
        elif event.event_type is EventType.STEP_EXIT:
            running.discard(payload["step"])
            for arc in payload["arcs"]:
                # A step that runs absorbs the token.
                if arc["step"] not in running:
                    owed.setdefault(arc["step"], []).append(payload["step"])
    return wrong + [f"{name} never ran for {sources}" for name, sources in owed.items()]


@given(graphs(cycles=True), st.data())
@settings(max_examples=150, deadline=None)
def test_no_token_is_lost_or_used_twice_and_nothing_deadlocks(
    graph: Graph, data: st.DataObject
) -> None:
    rig = worked_off(graph, data)
    assert rig.state is not None
    assert rig.state.status == "COMPLETED"
    assert wrong_with_tokens(rig) == []


@given(graphs(cycles=False), st.data())
@settings(max_examples=100, deadline=None)
def test_without_cycles_every_step_runs_once_at_most(graph: Graph, data: st.DataObject) -> None:
    assert not graph.has_cycle
    rig = worked_off(graph, data)
    assert rig.state is not None
    assert rig.state.status == "COMPLETED"
    assert {name: s.visits for name, s in rig.state.steps.items() if s.visits > 1} == {}
    assert wrong_with_tokens(rig) == []
