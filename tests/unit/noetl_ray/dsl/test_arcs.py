"""Arcs that can never be taken, and those that merely look so."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.dsl.arcs import constant
from noetl_ray.dsl.parse import check_playbook
from noetl_ray.dsl.template import Templates

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"


def found(arcs: str, *, tool: str = "{kind: noop}", mode: str = "exclusive") -> list[str]:
    """Findings about arcs in flow style; the list opens in 8:13, so the first arc is in 8:14."""
    text = (
        f"{HEAD}workflow:\n"
        f"  - step: start\n    tool: {tool}\n    next: {{spec: {{mode: {mode}}},\n"
        f"      arcs: {arcs}}}\n"
        "  - {step: a}\n  - {step: b}\n"
    )
    return [
        f"{p.severity} {p.line}:{p.column} {p.path}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(text)
        if "never reached" not in p.message
    ]


ARC = "workflow[0].next.arcs[1]"
LAST = "(put the arc without 'when' last)"


@pytest.mark.parametrize(
    "arcs",
    [
        "[{step: a, when: '{{ x }}'}, {step: b}]",
        "[{step: a, when: '{{ x }}'}, {step: a, when: '{{ y }}'}, {step: b}]",
        "[{step: a}, {step: b, when: \"{{ output.status == 'error' }}\"}]",
        "[{step: a}, {step: b, when: \"{{ event.name == 'call.error' }}\"}]",
        "[{step: a}, {step: b, when: '{{ outcome.error }}'}]",
    ],
)
def test_these_are_fine(arcs: str) -> None:
    assert found(arcs) == []


@pytest.mark.parametrize(
    ("arcs", "expected"),
    [
        (
            "[{step: a}, {step: b}]",
            f"warning 8:25 {ARC}: the arc to 'b' is never taken: one before it always matches "
            + LAST,
        ),
        (
            "[{step: a, when: true}, {step: b, when: '{{ output.error }}'}]",
            f"warning 8:37 {ARC}: the arc to 'b' is never taken: one before it always matches "
            + LAST,
        ),
        (
            "[{step: a, when: '{{ 1 < 2 }}'}, {step: b}]",
            f"warning 8:46 {ARC}: the arc to 'b' is never taken: one before it always matches "
            + LAST,
        ),
        (
            "[{step: a}, {step: b, when: '{{ ctx.x }}'}]",
            f"warning 8:25 {ARC}: the arc to 'b' is only taken when the step fails: "
            "one before it takes every success " + LAST,
        ),
        (
            "[{step: a, when: '{{ x }}'}, {step: b, when: ' {{ x }}'}]",
            f"warning 8:42 {ARC}: the arc to 'b' is never taken: "
            "one before it has the same condition",
        ),
        *(
            (
                f"[{{step: a, when: '{{{{ x }}}}'}}, {{step: b, when: {when}}}]",
                f"warning 8:42 {ARC}: the arc to 'b' is never taken: its condition is always false",
            )
            for when in ("false", "'no'", "0", "''", "'{{ false }}'", "'{{ 2 < 1 }}'")
        ),
        (
            "[{step: a}, {step: b, when: false}]",
            f"warning 8:25 {ARC}: the arc to 'b' is never taken: its condition is always false",
        ),
    ],
)
def test_arcs_that_never_match(arcs: str, expected: str) -> None:
    assert found(arcs) == [expected]


def test_a_step_without_a_tool_does_not_fail() -> None:
    arcs = "[{step: a}, {step: b, when: '{{ output.error }}'}]"
    assert found(arcs, tool="null") == [
        f"warning 8:25 {ARC}: the arc to 'b' is never taken: one before it always matches {LAST}"
    ]


def test_two_arcs_to_one_step() -> None:
    arcs = "[{step: a, when: '{{ x }}'}, {step: a, when: '{{ y }}'}, {step: b}]"
    assert found(arcs, mode="inclusive") == [
        f"warning 8:42 {ARC}: an arc before this one leads to 'a' too; it starts only once "
        "(write one arc and join the conditions with 'or')"
    ]
    ends = "[{step: end, when: '{{ x }}'}, {step: end, when: '{{ y }}'}]"
    assert found(ends, mode="inclusive") == []


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, True),
        (True, True),
        (0, False),
        ("yes", True),
        (" No ", False),
        ("{{ 1 in [1, 2] }}", True),
        ("{{ none }}", False),
        ("{{ 1 // 0 }}", False),
        ("{{ x }}", None),
        ("{{ now() }}", None),
        ("{{ broken", None),
    ],
)
def test_what_a_condition_always_is(when: Any, expected: bool | None) -> None:
    assert constant(Templates(), when) is expected
