"""Cycles with no exit: found when there is none, and never when there is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_ray.dsl.flow import endless_cycles
from noetl_ray.dsl.parse import check_playbook, parse_playbook
from noetl_ray.dsl.template import Templates

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"
HINT = "(give an arc of it a 'when', or put an arc that leaves before the one that stays)"
TEMPLATES = Templates()


def found(steps: str) -> list[str]:
    return [
        f"{p.severity} {p.line}:{p.column} {p.path}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(f"{HEAD}workflow:\n{steps}")
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            "  - {step: start, next: start}\n",
            f"warning 5:5 workflow[0]: the cycle 'start' → 'start' has no exit {HINT}",
        ),
        (
            "  - {step: start, next: b}\n  - {step: a, next: b}\n  - {step: b, next: a}\n",
            f"warning 6:5 workflow[1]: the cycle 'a' → 'b' → 'a' has no exit {HINT}",
        ),
        (
            "  - {step: start, next: {arcs: [{step: a, when: '{{ x }}'}, {step: b}]}}\n"
            "  - {step: a, next: start}\n  - {step: b, next: start}\n",
            f"warning 5:5 workflow[0]: the cycle 'start' → 'a' → 'start' has no exit {HINT}",
        ),
        (
            "  - {step: start, next: [start, out]}\n  - {step: out}\n",
            f"warning 5:5 workflow[0]: the cycle 'start' → 'start' has no exit {HINT}",
        ),
        (
            "  - {step: start, next: {arcs: [{step: start, when: true}]}}\n",
            f"warning 5:5 workflow[0]: the cycle 'start' → 'start' has no exit {HINT}",
        ),
        (
            "  - {step: start, next: s1}\n"
            + "".join(f"  - {{step: s{n}, next: s{n + 1}}}\n" for n in range(1, 8))
            + "  - {step: s8, next: start}\n",
            "warning 5:5 workflow[0]: the cycle 'start' → 's1' → 's2' → 's3' → 's4' → … → 's8' → "
            f"'start' has no exit {HINT}",
        ),
    ],
)
def test_no_exit(steps: str, expected: str) -> None:
    assert found(steps) == [expected]


@pytest.mark.parametrize(
    "steps",
    [
        "  - {step: start, next: {arcs: [{step: start, when: '{{ ctx.more }}'}]}}\n",
        "  - {step: start, next: {arcs: [{step: end, when: '{{ x }}'}, {step: start}]}}\n",
        "  - {step: start, next: {arcs: [{step: a, when: '{{ x }}'}, {step: start}]}}\n"
        "  - {step: a}\n",
        "  - {step: start, next: a}\n  - {step: a, next: b}\n"
        "  - {step: b, next: [{step: a, when: '{{ x }}'}, {step: end}]}\n",
        "  - {step: start, next: {spec: {mode: inclusive}, "
        "arcs: [{step: start, when: '{{ x }}'}, {step: a}]}}\n  - {step: a}\n",
        "  - step: start\n    next: start\n"
        "    spec: {policy: {admit: {rules: [{when: '{{ x }}', then: {allow: false}}]}}}\n",
    ],
)
def test_an_exit(steps: str) -> None:
    assert found(steps) == []


def test_a_cycle_nobody_reaches_is_only_unreached() -> None:
    assert found("  - {step: start}\n  - {step: a, next: a}\n") == [
        "warning 6:5 workflow[1]: the step 'a' is never reached from 'start'"
    ]


_ARC = st.builds(
    lambda target, when: {"step": target, **({"when": when} if when is not None else {})},
    st.sampled_from("abcd"),
    st.sampled_from([None, "{{ x }}", "{{ y }}", True, False]),
)
_STEP = st.tuples(st.sampled_from(["exclusive", "inclusive"]), st.lists(_ARC, max_size=3))


def _targets(mode: str, arcs: list[dict[str, Any]], truths: dict[str, bool]) -> set[str]:
    """What a step takes when its conditions are as given."""
    taken = set()
    for arc in arcs:
        when = arc.get("when", True)
        if truths.get(when, when):
            taken.add(arc["step"])
            if mode == "exclusive":
                break
    return taken


@given(st.fixed_dictionaries(dict.fromkeys("abcd", _STEP)))
@settings(max_examples=200, deadline=None)
def test_endless_means_that_no_choice_of_conditions_ends(
    steps: dict[str, tuple[str, list[dict[str, Any]]]],
) -> None:
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "x"},
        "workflow": [
            {"step": name, "next": {"spec": {"mode": mode}, "arcs": arcs}}
            for name, (mode, arcs) in steps.items()
        ],
    }
    cycles = endless_cycles(parse_playbook(json.dumps(document)), TEMPLATES)
    worlds = [{"{{ x }}": x, "{{ y }}": y} for x in (True, False) for y in (True, False)]
    endless = set(steps)
    changed = True
    while changed:
        keeps = {
            name
            for name in endless
            if all(_targets(*steps[name], world) & endless for world in worlds)
        }
        changed, endless = keeps != endless, keeps
    on_cycles = {name for cycle in cycles for name in cycle}
    assert on_cycles <= endless
    assert bool(cycles) == bool(endless)
    for cycle in cycles:
        for here, there in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert any(there in _targets(*steps[here], world) for world in worlds)
