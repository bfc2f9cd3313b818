from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from noetl_ray.dsl.language import KINDS
from noetl_ray.dsl.model import Arc, Playbook, Rule, Step, Task
from noetl_ray.dsl.parse import check_playbook, parse_playbook
from noetl_ray.dsl.source import line_count
from noetl_ray.errors import PlaybookError

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: team/demo}\n"


def playbook(steps: str, more: str = "") -> Playbook:
    return parse_playbook(f"{HEAD}{more}workflow:\n{steps}")


def step(body: str, name: str = "start") -> Step:
    """A step whose other keys are given, indented by four."""
    return playbook(f"  - step: {name}\n{body}\n").steps[name]


def bare(task: Task) -> dict[str, Any]:
    names = (
        "label",
        "kind",
        "config",
        "input",
        "set",
        "rules",
        "timeout",
        "side_effects",
        "output",
    )
    return {
        name: getattr(task, name) for name in names if getattr(task, name) not in (None, {}, (), "")
    }


def test_the_document() -> None:
    text = (
        "apiVersion: noetl.io/v10\nkind: Agent\nmetadata: {name: demo, description: What it does}\n"
        "tracing: {on: true}\nworkload: {n: 1, day: 2024-01-01, nested: {a: [1, x]}}\n"
        "executor: {profile: local, spec: {entry_step: second, final_step: end}}\n"
        "workflow: [{step: first}, {step: second, desc: Routes, next: first}]\n"
    )
    made = parse_playbook(text)
    assert (made.name, made.path, made.description) == ("demo", "demo", "What it does")
    assert made.workload == {"n": 1, "day": "2024-01-01", "nested": {"a": [1, "x"]}}
    assert made.entry == "second"
    assert list(made.steps) == ["first", "second"]
    assert made.steps["second"].desc == "Routes"
    assert made.digest == hashlib.sha256(text.encode()).hexdigest()
    assert made.source == text


def test_the_path_and_the_entry() -> None:
    assert playbook("  - step: a\n    next: start\n  - step: start").entry == "start"
    assert playbook("  - step: a\n    next: b\n  - step: b").entry == "a"
    assert playbook("  - step: a").path == "team/demo"
    assert playbook("  - step: a").workload == {}
    assert playbook("  - step: 1\n    next: 2\n  - step: 2").steps["1"].arcs[0].step == "2"


def test_a_step_without_tool() -> None:
    made = step("    desc: only routes")
    assert made.tasks == ()
    assert made.arcs == ()
    assert made.at.line == 5


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            "{kind: python, code: 'x = 1', input: {a: '{{ b }}'}}",
            [
                {
                    "label": "start_task",
                    "kind": "python",
                    "config": {"code": "x = 1"},
                    "input": {"a": "{{ b }}"},
                }
            ],
        ),
        (
            "[{name: one, kind: noop}, {name: two, kind: http, url: u, auth: c}]",
            [
                {"label": "one", "kind": "noop"},
                {"label": "two", "kind": "http", "config": {"url": "u", "auth": "c"}},
            ],
        ),
        (
            "[{kind: noop}, {kind: noop}]",
            [{"label": "task_0", "kind": "noop"}, {"label": "task_1", "kind": "noop"}],
        ),
        (
            "[{fetch: {kind: http, url: u}}, {save: {kind: postgres, command: SELECT 1}}]",
            [
                {"label": "fetch", "kind": "http", "config": {"url": "u"}},
                {"label": "save", "kind": "postgres", "config": {"command": "SELECT 1"}},
            ],
        ),
        ("[]", []),
        ("null", []),
    ],
)
def test_the_shapes_of_tool(tool: str, expected: list[dict[str, Any]]) -> None:
    assert [bare(task) for task in step(f"    tool: {tool}").tasks] == expected


def test_task_keys_and_hoisting() -> None:
    made = step(
        "    tool:\n"
        "      kind: http\n"
        "      url: own\n"
        "      args: {a: 1, b: 1}\n"
        "      input: {b: 2}\n"
        "      set: {x: '{{ output }}'}\n"
        "      set_ctx: {y: 1}\n"
        "      set_iter: {z: 2}\n"
        "      spec: {url: hoisted, method: POST, input: {b: 9, c: 3}, timeout: 5,\n"
        "             side_effects: false, result: {store: {kind: kv}}}\n"
    )
    assert bare(made.tasks[0]) == {
        "label": "start_task",
        "kind": "http",
        "config": {"url": "own", "method": "POST", "timeout": 5},
        "input": {"a": 1, "b": 2, "c": 3},
        "set": {"ctx.y": 1, "iter.z": 2, "x": "{{ output }}"},
        "timeout": 5,
        "side_effects": False,
        "output": {"store": {"kind": "kv"}},
    }


def test_a_kind_under_spec_only_is_no_task() -> None:
    with pytest.raises(PlaybookError, match="the tool has no 'kind'"):
        step("    tool: {spec: {kind: noop}}")


def test_step_keys() -> None:
    made = step(
        "    args: {a: 1}\n    input: {b: '{{ c }}'}\n    set: {ctx.a.b: 1, plain: 2}\n"
        "    when: '{{ ctx.go }}'\n    timeout: 30\n    output: {inline_max_bytes: 10}\n"
        "    tool: [{kind: noop}, {kind: noop, output: {scope: step}}]\n"
    )
    assert made.input == {"a": 1, "b": "{{ c }}"}
    assert made.set == {"ctx.a.b": 1, "plain": 2}
    assert made.when == "{{ ctx.go }}"
    assert made.timeout == 30
    assert [task.output for task in made.tasks] == [{"inline_max_bytes": 10}, {"scope": "step"}]
    assert step("    spec: {timeout: 4}").timeout == 4


def test_rules_and_the_four_spellings_of_else() -> None:
    first = (
        "{when: '{{ output.error.retryable }}', "
        "then: {do: retry, attempts: 3, backoff: linear, delay: 0.5}}"
    )
    spellings = (
        "{else: {then: {do: break, set: {ctx.x: 1}}}}",
        "{else: {do: break, set: {ctx.x: 1}}}",
        "{else: null, then: {do: break, set: {ctx.x: 1}}}",
        "{then: {do: break, set: {ctx.x: 1}}}",
    )
    for spelling in spellings:
        made = step(f"    tool: {{kind: noop, spec: {{policy: {{rules: [{first}, {spelling}]}}}}}}")
        assert made.tasks[0].rules == (
            Rule(
                when="{{ output.error.retryable }}",
                do="retry",
                attempts=3,
                backoff="linear",
                delay=0.5,
            ),
            Rule(when=None, do="break", set={"ctx.x": 1}),
        )


def test_a_rule_that_only_sets_continues_and_a_jump_names_a_task() -> None:
    made = step(
        "    tool:\n"
        "      - {name: a, kind: noop, spec: {policy: {rules: [{when: true, then: "
        "{set_iter: {p: 1}}}]}}}\n"
        "      - {name: b, kind: noop, spec: {policy: {rules: [{then: {do: jump, to: a}}]}}}\n"
        "      - {name: c, kind: noop, spec: {policy: {rules: [{when: false, do: jump, "
        "to: prev}]}}}\n"
    )
    assert made.tasks[0].rules == (Rule(when=True, do="continue", set={"iter.p": 1}),)
    assert made.tasks[1].rules == (Rule(when=None, do="jump", to="a"),)
    assert made.tasks[2].rules == (Rule(when=False, do="jump", to="prev"),)


def test_admit() -> None:
    rules = "[{when: '{{ ctx.ok }}', then: {allow: true}}, {else: {then: {allow: false}}}]"
    expected = (Rule(when="{{ ctx.ok }}", do="continue"), Rule(when=None, do="fail"))
    assert step(f"    spec: {{policy: {{admit: {{rules: {rules}}}}}}}").admit == expected
    assert step(f"    spec: {{policy: {{admit: {rules}}}}}").admit == expected
    assert step("    spec: {policy: {}}").admit == ()


@pytest.mark.parametrize(
    ("shape", "mode", "expected"),
    [
        ("b", "exclusive", [("b", None, {})]),
        ("[b, c]", "inclusive", [("b", None, {}), ("c", None, {})]),
        (
            "[{step: b, when: '{{ x }}', args: {k: 1}}, {step: c}]",
            "exclusive",
            [("b", "{{ x }}", {"k": 1}), ("c", None, {})],
        ),
        ("[{step: b, when: '{{ x }}'}, c]", "exclusive", [("b", "{{ x }}", {}), ("c", None, {})]),
        ("{step: b, cond: '{{ x }}'}", "exclusive", [("b", "{{ x }}", {})]),
        (
            "{arcs: [{step: b, cond: '{{ x }}', set: {ctx.k: 1}}, {step: c}]}",
            "exclusive",
            [("b", "{{ x }}", {"ctx.k": 1}), ("c", None, {})],
        ),
        (
            "{spec: {mode: inclusive, on_no_match: quiet}, arcs: [{step: b, args: {k: "
            "1}, set: {k: 2}}, c]}",
            "inclusive",
            [("b", None, {"k": 2}), ("c", None, {})],
        ),
        (
            "{mode: inclusive, arcs: [{step: b}, {step: c}]}",
            "inclusive",
            [("b", None, {}), ("c", None, {})],
        ),
        ("{spec: {mode: exclusive}, arcs: []}", "exclusive", []),
        (
            "{arcs: [{step: b, when: false}, {step: c, when: true}]}",
            "exclusive",
            [("b", False, {}), ("c", True, {})],
        ),
        ("[]", "exclusive", []),
        ("null", "exclusive", []),
        ("end", "exclusive", [("end", None, {})]),
    ],
)
def test_the_shapes_of_next(shape: str, mode: str, expected: list[Any]) -> None:
    text = f"  - step: start\n    next: {shape}\n  - step: b\n  - step: c\n"
    made = playbook(text).steps["start"]
    assert made.mode == mode
    assert [(arc.step, arc.when, arc.set) for arc in made.arcs] == expected


def test_arc_args_are_kept_apart_too() -> None:
    made = step("    next: [{step: end, args: {k: 1}, set: {ctx.j: 2}}]").arcs[0]
    assert made == Arc(step="end", set={"k": 1, "ctx.j": 2}, args={"k": 1}, at=made.at)


def test_known_kinds_are_the_callers() -> None:
    text = f"{HEAD}workflow: [{{step: a, tool: {{kind: snowflake, query: SELECT 1}}}}]"
    assert parse_playbook(text, known_kinds={*KINDS, "snowflake"}).steps["a"].tasks[0].kind == (
        "snowflake"
    )
    with pytest.raises(PlaybookError, match="'snowflake' is not built in"):
        parse_playbook(text)


def test_the_error_shows_the_first_and_counts_the_rest() -> None:
    text = f"{HEAD}workflow:\n  - step: a\n    tool: {{kind: pyton}}\n    next: bb\n  - step: b\n"
    with pytest.raises(PlaybookError) as caught:
        parse_playbook(text, source="demo.yaml")
    assert caught.value.message == (
        "demo.yaml:6:18: unknown tool kind 'pyton' (did you mean 'python'?); 2 more problems"
    )
    assert caught.value.problems == [p.to_dict() for p in check_playbook(text, source="demo.yaml")]
    assert caught.value.problems[1] == {
        "severity": "warning",
        "line": 7,
        "column": 11,
        "path": "workflow[0].next",
        "message": "the arc from 'a' leads to 'bb', which does not exist",
        "hint": "did you mean 'b'?",
    }
    assert [p["severity"] for p in caught.value.problems] == ["error", "warning", "warning"]


def test_one_problem_has_no_tail_and_two_are_singular() -> None:
    with pytest.raises(PlaybookError) as caught:
        parse_playbook("")
    assert caught.value.message == "playbook:1:1: the playbook is empty"
    with pytest.raises(PlaybookError) as caught:
        parse_playbook(HEAD.replace("v2", "v3") + "workflow: []")
    assert caught.value.message.endswith("; 1 more problem")


_WORDS = st.sampled_from(
    [
        "apiVersion: "
        "noetl.io/v2", "kind: Playbook", "metadata: {name: x}", "workflow:", "- step: a",
        "step: a", "tool:", "kind: noop", "next: a", "next:", "arcs:", "- {step: b, when: '{{ x'}",
        "set: {ctx.a: 1}", "set: [1]", "spec: {policy: {rules: [{when: "
                                       "1}]}}", "input: x", "loop: {}",
        "spec:", "policy:", "admit: 5", "- 1", "- null", "? x", "<<: {a: 1}", "output: 3", "else:",
        "then: {do: jump}", "rules:", "executor: {spec: {entry_step: "
                                      "[1]}}", "workload: {a: '{% x'}",
    ]
)  # fmt: skip
_LINES = st.lists(st.builds(lambda depth, word: "  " * depth + word, st.integers(0, 6), _WORDS))


@given(
    st.one_of(st.text(), _LINES.map("\n".join), _LINES.map(lambda lines: HEAD + "\n".join(lines)))
)
@example("\x850")
@example("\ra: [")
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_playbook_or_problems_with_lines(text: str) -> None:
    problems = check_playbook(text)
    assert all(1 <= found.line <= line_count(text) for found in problems)
    if any(found.severity == "error" for found in problems):
        with pytest.raises(PlaybookError) as caught:
            parse_playbook(text)
        assert caught.value.problems == [found.to_dict() for found in problems]
    else:
        made = parse_playbook(text)
        assert made.entry in made.steps


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from(["", "a", "{{ x }}", "{{"])
)
_KEYS = st.sampled_from(
    [
        "step", "tool", "kind", "next", "arcs", "set", "spec", "policy", "rules", "when", "then",
        "else", "do", "to", "admit", "allow", "mode", "input", "args", "output", "name", "set_ctx",
        "attempts", "backoff", "timeout", "side_effects", "cond", "result", "loop", "a",
    ]
)  # fmt: skip
_ANY = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=5)),
    max_leaves=25,
)


@given(st.lists(_ANY, max_size=3), _ANY, _ANY)
@settings(max_examples=300, deadline=None)
def test_any_shape_gives_a_playbook_or_problems(steps: list[Any], workload: Any, spec: Any) -> None:
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "x"},
        "workload": workload,
        "executor": {"spec": spec},
        "workflow": [{"step": "start", "tool": step, "next": step, "spec": step} for step in steps]
        + steps,
    }
    for problem in check_playbook(json.dumps(document)):
        assert problem.line >= 1
        assert problem.message
