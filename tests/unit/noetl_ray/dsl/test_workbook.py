"""The workbook: a step that names an item has that item's tool, with what the step says on top."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.model import Task
from noetl_ray.dsl.parse import check_playbook, parse_playbook

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"
BOOK = (
    "workbook:\n"
    "  - name: greet\n"
    "    tool: {kind: python, input: {name: null, mark: '!'}, code: 'result = name', timeout: 3,\n"
    "           spec: {policy: {rules: [{else: {do: continue}}]}}}\n"
    "    assert: {anything: goes}\n"
    "  - name: unused\n"
    "    tool: {kind: no_such_kind, code: '{{ broken'}\n"
)


def tasks(tool: str, book: str = BOOK) -> tuple[Task, ...]:
    text = f"{HEAD}{book}workflow:\n  - step: start\n    tool: {tool}\n"
    return parse_playbook(text).steps["start"].tasks


def found(book: str, tool: str) -> list[str]:
    """Findings; the workbook starts in line 4 and is one line, the tool stands in 7:11."""
    text = f"{HEAD}workbook: {book}\nworkflow:\n  - step: start\n    tool: {tool}\n"
    return [
        f"{p.severity} {p.line}:{p.column} {p.path}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(text)
    ]


def test_the_items_tool_runs_with_the_steps_input() -> None:
    (task,) = tasks("{kind: workbook, name: greet, input: {name: Ada}}")
    assert (task.label, task.kind) == ("start_task", "python")
    assert task.input == {"name": "Ada", "mark": "!"}
    assert task.config == {"code": "result = name", "timeout": 3}
    assert task.timeout == 3
    assert [rule.do for rule in task.rules] == ["continue"]
    assert task.at.line == 13


def test_a_placeholder_nobody_fills_stays_null() -> None:
    (task,) = tasks("{kind: workbook, name: greet}")
    assert task.input == {"name": None, "mark": "!"}


def test_what_the_step_says_wins() -> None:
    (task,) = tasks(
        "{kind: workbook, name: greet, timeout: 9, set: {ctx.a: 1}, side_effects: false, "
        "output: {store: {kind: kv}}, spec: {policy: {rules: [{else: {do: fail}}]}}}"
    )
    assert (task.timeout, task.config["timeout"]) == (9, 9)
    assert task.set == {"ctx.a": 1}
    assert task.side_effects is False
    assert task.output == {"store": {"kind": "kv"}}
    assert [rule.do for rule in task.rules] == ["fail"]


def test_items_in_a_pipeline() -> None:
    made = tasks(
        "[{name: greet, kind: workbook}, {again: {kind: workbook, name: greet, args: {name: B}}}]"
    )
    assert [(task.label, task.kind) for task in made] == [("greet", "python"), ("again", "python")]
    assert [task.input["name"] for task in made] == [None, "B"]


@pytest.mark.parametrize(
    "book",
    [
        "workbook: [{name: a, tool: {kind: noop, result: 1}}]\n",
        "workbook: {tasks: [{name: a, tool: {kind: noop, result: 1}}]}\n",
        "workbook: {tasks: {a: {tool: {kind: noop, result: 1}}}}\n",
        "workbook: {a: {kind: noop, result: 1}}\n",
    ],
)
def test_the_shapes_of_a_workbook(book: str) -> None:
    (task,) = tasks("{kind: workbook, name: a}", book)
    assert (task.kind, task.config["result"]) == ("noop", 1)


ITEM = "workbook[0]"
TOOL = "workflow[0].tool"


@pytest.mark.parametrize(
    ("book", "tool", "expected"),
    [
        ("null", "{kind: noop}", []),
        ("[]", "{kind: noop}", []),
        ("[{name: a}]", "{kind: noop}", []),
        ("5", "{kind: noop}", ["error 4:11 workbook: 'workbook' must be a list"]),
        (
            "[5, {tool: {kind: noop}}]",
            "{kind: noop}",
            [
                "error 4:12 workbook[0]: a workbook item must be a mapping with a 'name' "
                "and a 'tool'",
                "error 4:15 workbook[1]: a workbook item must be a mapping with a 'name' "
                "and a 'tool'",
            ],
        ),
        (
            "[{name: a}, {name: a}]",
            "{kind: noop}",
            [
                "error 4:30 workbook[1].name: the workbook item 'a' is defined twice "
                "(first in line 4)"
            ],
        ),
        (
            "[{name: greet, tool: {kind: noop}}]",
            "{kind: workbook, name: gret}",
            [f"error 7:34 {TOOL}.name: the workbook has no item 'gret' (did you mean 'greet'?)"],
        ),
        (
            "[{name: greet, tool: {kind: noop}}]",
            "{kind: workbook, name: zzz}",
            [f"error 7:34 {TOOL}.name: the workbook has no item 'zzz' (items are greet)"],
        ),
        (
            "[]",
            "{kind: workbook, name: zzz}",
            [f"error 7:34 {TOOL}.name: the workbook has no item 'zzz' (add it under workbook:)"],
        ),
        (
            "[{name: greet, tool: {kind: noop}}]",
            "{kind: workbook}",
            [
                f"error 7:11 {TOOL}: a workbook task needs 'name', the name of a workbook item "
                "(items are greet)"
            ],
        ),
        (
            "[{name: a}]",
            "[{x: {kind: workbook, name: a}}, {y: {kind: workbook, name: a}}]",
            [
                f"error 4:12 {ITEM}: the workbook item 'a' needs a 'tool' that is a mapping "
                "with a 'kind'"
            ],
        ),
        (
            "[{name: a, tool: {kind: workbook, name: a}}]",
            "{kind: workbook, name: a}",
            [
                f"error 4:35 {ITEM}.tool.kind: a workbook item cannot stand for "
                "another workbook item"
            ],
        ),
        (
            "[{name: a, tool: {kind: pyton, code: '{{ x'}}]",
            "[{x: {kind: workbook, name: a}}, {y: {kind: workbook, name: a}}]",
            [
                f"error 4:35 {ITEM}.tool.kind: unknown tool kind 'pyton' (did you mean 'python'?)",
                f"error 4:48 {ITEM}.tool.code: the template is broken: "
                "unexpected end of template, expected 'end of print statement'.",
            ],
        ),
        (
            "[{name: a, tool: {kind: noop}}]",
            "{kind: workbook, name: a, inptu: {}}",
            [
                f"warning 7:37 {TOOL}.inptu: a workbook task has no key 'inptu' "
                "(did you mean 'input'?)"
            ],
        ),
    ],
)
def test_what_is_wrong(book: str, tool: str, expected: list[str]) -> None:
    assert found(book, tool) == expected
