"""`spec.business_object`: what is read, and every finding with its exact words."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.parse import check_playbook, parse_playbook

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"
HINT = " (write business_object: {type: order, id: '{{ output.order_id }}'})"


def text(given: str) -> str:
    tool = f"{{kind: noop, spec: {{business_object: {given}}}}}"
    return f"{HEAD}workflow:\n  - step: start\n    tool: {tool}\n"


def found(given: str) -> list[str]:
    return [
        f"{p.severity} {p.path.partition('spec.')[2]}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(text(given))
    ]


def test_it_is_read_as_written_and_not_given_to_the_tool() -> None:
    given = "{type: order, id: '{{ output.id }}', attributes: {n: 1}}"
    (task,) = parse_playbook(text(given)).steps["start"].tasks
    assert task.business_object == {
        "type": "order",
        "id": "{{ output.id }}",
        "attributes": {"n": 1},
    }
    assert "business_object" not in task.config


def test_a_workbook_item_may_say_it_and_a_task_may_say_otherwise() -> None:
    book = (
        "workbook:\n  - name: save\n    tool: {kind: noop, spec: "
        "{business_object: {type: order, id: 1}}}\n"
    )
    steps = (
        "workflow:\n"
        "  - {step: start, tool: {kind: workbook, name: save}, next: other}\n"
        "  - {step: other, tool: {kind: workbook, name: save, spec: "
        "{business_object: {type: bill, id: 2}}}}\n"
    )
    playbook = parse_playbook(HEAD + book + steps)
    said = [playbook.steps[name].tasks[0].business_object for name in ("start", "other")]
    assert said == [{"type": "order", "id": 1}, {"type": "bill", "id": 2}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{type: order, id: 1, status: new, attributes: '{{ output }}'}", []),
        ("order", ["error business_object: 'business_object' must be a mapping"]),
        ("{id: 1}", ["error business_object: a business object needs 'type'" + HINT]),
        ("{type: order, id: []}", ["error business_object: a business object needs 'id'" + HINT]),
        (
            "{type: order, id: 1, state: new}",
            [
                "warning business_object.state: a business object has no key 'state' "
                "(did you mean 'status'?)"
            ],
        ),
        (
            "{type: order, id: 1, status: [a]}",
            ["error business_object.status: 'status' must be text or a template"],
        ),
        (
            "{type: order, id: 1, attributes: many}",
            [
                "error business_object.attributes: 'attributes' must be a mapping or a template "
                "that gives one"
            ],
        ),
        (
            "{type: order, id: '{{ output. }}'}",
            ["error business_object.id: the template is broken: expected name or number"],
        ),
    ],
)
def test_findings(given: str, expected: list[str]) -> None:
    assert found(given) == expected
