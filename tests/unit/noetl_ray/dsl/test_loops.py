"""Loops: read into the model whole, checked whole, refused by mode until the engine runs them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_ray.dsl import loops
from noetl_ray.dsl.model import Loop
from noetl_ray.dsl.parse import check_playbook, parse_playbook

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"
ALL = frozenset(loops.LOOP_MODES)


@pytest.fixture
def runnable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "RUNNABLE_LOOP_MODES", ALL)


def text(loop: str) -> str:
    return f"{HEAD}workflow:\n  - step: start\n    loop: {loop}\n    tool: {{kind: noop}}\n"


def read(loop: str) -> Loop:
    made = parse_playbook(text(loop)).steps["start"].loop
    assert made is not None
    return made


def found(loop: str) -> list[str]:
    """Findings; the loop's key stands in 6:5 and its value in 6:11."""
    return [
        f"{p.severity} {p.line}:{p.column} {p.path}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(text(loop))
    ]


def test_a_step_without_a_loop_has_none() -> None:
    for loop in ("null", "{}", "[]"):
        assert parse_playbook(text(loop)).steps["start"].loop is None


@pytest.mark.usefixtures("runnable")
@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("{in: [1, 2]}", Loop(items=[1, 2])),
        (
            "{in: '{{ rows }}', iterator: row, spec: {mode: parallel, max_in_flight: 4}}",
            Loop(items="{{ rows }}", iterator="row", mode="parallel", max_in_flight=4),
        ),
        (
            "{in: {a: 1}, mode: parallel, max_in_flight: '{{ workload.n }}'}",
            Loop(items={"a": 1}, mode="parallel", max_in_flight="{{ workload.n }}"),
        ),
        (
            "{in: x, mode: parallel, spec: {mode: sequential, policy: {exec: local}}}",
            Loop(items="x", mode="sequential"),
        ),
        (
            "{cursor: {kind: postgres, auth: pg, claim: 'SELECT {{ __frame_max_rows }}'}, "
            "iterator: row, spec: {mode: cursor, max_in_flight: 2, "
            "frame: {max_rows: 50, process: frame, lease_seconds: '{{ workload.lease }}'}}}",
            Loop(
                iterator="row",
                mode="cursor",
                max_in_flight=2,
                cursor={
                    "kind": "postgres",
                    "auth": "pg",
                    "claim": "SELECT {{ __frame_max_rows }}",
                },
                frame={
                    "max_rows": 50,
                    "process": "frame",
                    "lease_seconds": "{{ workload.lease }}",
                },
            ),
        ),
    ],
)
def test_what_is_read(loop: str, expected: Loop) -> None:
    made = read(loop)
    assert (made.at.line, made.at.column) == (6, 11)
    assert {**_plain(made), "at": None} == {**_plain(expected), "at": None}


def _plain(loop: Loop) -> dict[str, Any]:
    return {name: getattr(loop, name) for name in Loop.__slots__}


AT = "workflow[0].loop"
NOT_YET = f"error 6:5 {AT}: 'loop' is not supported yet by this version"


@pytest.mark.parametrize("mode", loops.LOOP_MODES)
def test_a_mode_the_engine_cannot_run_is_refused(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "cursor: {kind: postgres, claim: SELECT 1}" if mode == "cursor" else "in: [1]"
    more = ", reduce: {tool: {kind: noop}}" if mode == "fanout" else ""
    loop = f"{{{source}{more}, spec: {{mode: {mode}}}}}"
    monkeypatch.setattr(loops, "RUNNABLE_LOOP_MODES", frozenset())
    assert found(loop) == [NOT_YET]
    others = ALL - {mode}
    monkeypatch.setattr(loops, "RUNNABLE_LOOP_MODES", others)
    assert found(loop) == [
        f"error 6:5 {AT}: the loop mode '{mode}' is not supported yet by this version"
    ]


@pytest.mark.usefixtures("runnable")
@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("5", [f"error 6:11 {AT}: 'loop' must be a mapping"]),
        (
            "{iterator: x}",
            [
                f"error 6:11 {AT}: the loop has neither 'in' nor 'cursor' "
                '(write in: "{{ ... }}")'
            ],
        ),
        (
            "{spec: {mode: cursor}}",
            [
                f"error 6:11 {AT}: the loop has neither 'in' nor 'cursor' "
                "(write cursor: {kind: ...})"
            ],
        ),
        (
            "{in: [1], cursor: {kind: postgres, claim: x}, spec: {mode: cursor}}",
            [f"error 6:21 {AT}.cursor: a loop takes 'in' or 'cursor', not both"],
        ),
        (
            "{cursor: {kind: postgres, claim: x}}",
            [
                f"error 6:12 {AT}.cursor: a cursor needs the mode 'cursor' "
                "(write spec: {mode: cursor})"
            ],
        ),
        (
            "{in: [1], spec: {mode: cursor}}",
            [f"error 6:12 {AT}.in: the loop mode 'cursor' needs a 'cursor' instead of 'in'"],
        ),
        (
            "{in: [1], spec: {mode: paralel}}",
            [f"error 6:34 {AT}.spec.mode: unknown loop mode 'paralel' (did you mean 'parallel'?)"],
        ),
        (
            "{in: [1], mode: zzz}",
            [
                f"error 6:27 {AT}.mode: unknown loop mode 'zzz' "
                "(modes are sequential, parallel, cursor, fanout)"
            ],
        ),
        (
            "{in: [1], spec: {mode: fanout}}",
            [
                f"error 6:11 {AT}: the loop mode 'fanout' needs a 'reduce' "
                "(write reduce: {tool: {...}} beside 'in', or use the mode 'parallel')"
            ],
        ),
        (
            "{in: [1], spec: {partitions: 2}, reduce: {tool: {kind: noop}}}",
            [
                f"error 6:28 {AT}.spec.partitions: 'partitions' is for the mode 'fanout'",
                f"error 6:44 {AT}.reduce: a 'reduce' needs the mode 'fanout' "
                "(write spec: {mode: fanout})",
            ],
        ),
        (
            "{in: [1], spec: {mode: fanout, partitions: 2, frame: {size: 3}}, "
            "reduce: {tool: {kind: noop}}}",
            [
                f"error 6:42 {AT}.spec.partitions: 'partitions' and 'frame.max_rows' both say "
                "how large a partition is (write one of them)"
            ],
        ),
        (
            "{in: [1], spec: {mode: fanout, max_outstanding: 2}, "
            "reduce: {stream: false, initial: 0, tool: {kind: noop}}}",
            [
                f"error 6:42 {AT}.spec.max_outstanding: a reduce that waits for all partitions "
                "cannot hold them back (leave it out, or leave stream: false out)",
                f"error 6:87 {AT}.reduce.initial: 'initial' is what a stream begins with; "
                "stream: false has none",
            ],
        ),
        (
            "{in: [1], spec: {mode: fanout, partitions: 0}, reduce: {stream: 1}}",
            [
                f"error 6:54 {AT}.spec.partitions: 'partitions' must be a whole number above 0, "
                "or a template",
                f"error 6:66 {AT}.reduce: the reduce has no 'tool' (write tool: {{kind: ...}})",
                f"error 6:75 {AT}.reduce.stream: 'stream' must be true or false",
            ],
        ),
        (
            "{in: [1], spec: {frame: {row_barrier: 1}}}",
            [
                f"error 6:49 {AT}.spec.frame.row_barrier: 'row_barrier' must be true or false, "
                "or a template"
            ],
        ),
        *(
            (
                f"{{in: [1], spec: {{max_in_flight: {bad}}}}}",
                [
                    f"error 6:43 {AT}.spec.max_in_flight: 'max_in_flight' must be a whole number "
                    "above 0, or a template"
                ],
            )
            for bad in ("0", "-1", "2.5", "true", "many", "[1]")
        ),
        (
            "{in: [1], iterator: 'a b'}",
            [
                f"error 6:31 {AT}.iterator: 'iterator' must be a name of letters, digits "
                "and underscores"
            ],
        ),
        (
            "{in: [1], iterator: ctx}",
            [f"warning 6:31 {AT}.iterator: the iterator 'ctx' hides what 'ctx' means in templates"],
        ),
        (
            "{in: [1], iteratr: x, spec: {zzz: 1}}",
            [
                f"warning 6:21 {AT}.iteratr: a loop has no key 'iteratr' "
                "(did you mean 'iterator'?)",
                f"warning 6:40 {AT}.spec.zzz: a loop spec has no key 'zzz'",
            ],
        ),
        (
            "{cursor: {kind: postgrs}, spec: {mode: cursor}}",
            [
                f"error 6:20 {AT}.cursor: the cursor has no 'claim'",
                f"error 6:27 {AT}.cursor.kind: unknown cursor kind 'postgrs' "
                "(did you mean 'postgres'?)",
            ],
        ),
        (
            "{in: [1], spec: {mode: fanout}, reduce: {tool: {kind: noop}, frame: {process: row}}}",
            [
                f"error 6:80 {AT}.reduce.frame.process: 'process' is about rows; "
                "a reduce takes in partitions, one after the other (leave it out)",
            ],
        ),
        (
            "{in: [1], spec: {mode: fanout}, reduce: {tool: {kind: playbook, path: a}}}",
            [
                "error 6:58 workflow[0].tool: the task 'reduce_task' calls a playbook, which a "
                "fanout loop cannot do (get the items in one step and loop over them with `in` "
                "in the next)",
            ],
        ),
        (
            "{in: [1], spec: {mode: fanout}, reduce: {tool: {kind: callback, timeout: 5}}}",
            [
                "error 6:58 workflow[0].tool: the task 'reduce_task' waits for an answer, which a "
                "fanout loop cannot do (get the items in one step and loop over them with `in` "
                "in the next)",
            ],
        ),
        (
            '{in: [1], spec: {frame: {duration_ms: "{{ x }}"}}}',
            [
                f"error 6:49 {AT}.spec.frame.duration_ms: 'duration_ms' must be a whole number "
                "above 0 (write max_seconds for a template)",
            ],
        ),
        (
            "{cursor: {claim: x}, spec: {mode: cursor, frame: {process: all, max_rows: 0, a: 1}}}",
            [
                f"error 6:20 {AT}.cursor: the cursor has no 'kind'",
                f"error 6:70 {AT}.spec.frame.process: unknown process 'all' (use row or frame)",
                f"error 6:85 {AT}.spec.frame.max_rows: 'max_rows' must be a whole number above 0, "
                "or a template",
                f"warning 6:88 {AT}.spec.frame.a: a frame has no key 'a'",
            ],
        ),
        (
            "{in: '{{ x y }}', spec: {max_in_flight: '{{ n'}}",
            [
                f"error 6:16 {AT}.in: the template is broken: "
                "expected token 'end of print statement', got 'y'",
                f"error 6:51 {AT}.spec.max_in_flight: the template is broken: "
                "unexpected end of template, expected 'end of print statement'.",
            ],
        ),
    ],
)
def test_what_is_wrong(loop: str, expected: list[str]) -> None:
    assert found(loop) == expected


def test_the_rest_is_checked_while_loops_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "RUNNABLE_LOOP_MODES", frozenset())
    assert found("{iteratr: x}")[0] == NOT_YET
    assert len(found("{iteratr: x}")) == 3


_LOOP = st.fixed_dictionaries(
    {},
    optional={
        "in": st.sampled_from(["'{{ x }}'", "[1]", "{a: 1}", "null", "''"]),
        "cursor": st.sampled_from(["{kind: postgres, claim: x}", "{}", "5"]),
        "iterator": st.sampled_from(["row", "5", "[a]", "a b"]),
        "spec": st.sampled_from(["{mode: cursor}", "{mode: parallel}", "{max_in_flight: 0}", "1"]),
        "zzz": st.just("1"),
    },
)


@given(_LOOP)
@settings(deadline=None)
def test_a_loop_is_sound_only_with_one_source(parts: dict[str, str]) -> None:
    body = ", ".join(f"{key}: {value}" for key, value in parts.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "RUNNABLE_LOOP_MODES", ALL)
        problems = check_playbook(text(f"{{{body}}}"))
        if parts and not any(p.severity == "error" for p in problems):
            made = read(f"{{{body}}}")
            assert (made.items is None) == (made.cursor is not None)
            assert (made.mode == "cursor") == (made.cursor is not None)
            assert made.iterator.isidentifier()
