"""P24: a command carries the values its templates read, never the whole state."""

from __future__ import annotations

from typing import Any

from noetl_ray.dsl.model import Rule, Step, Task
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.context import StepReads, command_context
from noetl_ray.engine.state import ExecutionState, StepState
from tests.unit.noetl_ray.engine.rig import playbook

TEMPLATES = Templates()
BLOCK = {"status": "ok", "tier": "inline", "reference": None, "extracted": {"v": 1}}
STORED = {
    "status": "ok",
    "tier": "feather",
    "reference": {"uri": "noetl://t/p/results/1/l/v1.f0/0/1@1", "sha256": "0" * 64, "bytes": 9},
    "extracted": [{"v": 1}],
}


def carried(*tasks: Task, workload: dict[str, Any] | None = None, **step: Any) -> dict[str, Any]:
    """What a command of a step with these tasks takes along from a state that has a lot."""
    book = playbook(Step(name="s", tasks=tasks, **step))
    values = {"w": 1, "big": "x" * 100, "both": "w"} if workload is None else workload
    state = ExecutionState(
        execution_id=1,
        tenant_id="t",
        organization_id="o",
        ctx={"c": 2, "other": 3, "both": "c"},
        steps={
            "a": StepState(status="completed", visits=1, result=BLOCK),
            "b": StepState(status="completed", visits=1, result=BLOCK),
            "l": StepState(status="completed", visits=1, result=STORED),
            "r": StepState(status="running", visits=1),
        },
    )
    return command_context(state, values, StepReads(book, TEMPLATES).of("s", values))


def noop(**more: Any) -> Task:
    return Task(label="t", kind="noop", config=more.pop("config", {}), **more)


def test_nothing_read_nothing_carried() -> None:
    assert carried(noop()) == {"ctx": {}, "workload": {}, "steps": {}}


def test_a_name_is_taken_from_wherever_it_could_be_found() -> None:
    found = carried(noop(config={"result": "{{ both }} {{ w }} {{ a.v }} {{ r.v }}"}))
    assert found == {
        "ctx": {"both": "c"},
        "workload": {"both": "w", "w": 1},
        "steps": {"a": BLOCK},
    }


def test_ctx_falls_back_to_the_workload_and_workload_does_not_to_ctx() -> None:
    assert carried(noop(config={"result": "{{ ctx.w }}"}))["workload"] == {"w": 1}
    assert carried(noop(config={"result": "{{ workload.c }}"}))["ctx"] == {}


def test_a_whole_bag_is_carried_when_it_is_read_whole() -> None:
    assert carried(noop(config={"result": "{{ ctx }}"}))["ctx"] == {"c": 2, "other": 3, "both": "c"}
    assert set(carried(noop(config={"result": "{{ workload }}"}))["workload"]) == {
        "w",
        "big",
        "both",
    }
    assert set(carried(noop(config={"result": "{{ steps }}"}))["steps"]) == {"a", "b", "l"}
    assert set(carried(noop(config={"result": "{{ steps.b.v }}"}))["steps"]) == {"b"}


def test_every_place_a_template_can_stand_is_looked_at() -> None:
    rule = Rule(when="{{ ctx.c }}", do="retry", attempts="{{ w }}", delay="{{ ctx.other }}")
    found = carried(
        noop(rules=(rule,), set={"x": "{{ a }}"}, timeout="{{ big }}"), input={"i": "{{ b }}"}
    )
    assert set(found["ctx"]) == {"c", "other"}
    assert set(found["workload"]) == {"w", "big"}
    assert set(found["steps"]) == {"a", "b"}


def test_templates_inside_the_workload_are_followed() -> None:
    workload = {"one": "{{ workload.two }}", "two": "x{{ three }}", "three": 3, "four": 4}
    found = carried(noop(config={"result": "{{ workload.one }}"}), workload=workload)
    assert set(found["workload"]) == {"one", "two", "three"}


def test_python_that_asks_for_its_context_gets_everything() -> None:
    task = Task(label="t", kind="python", config={"code": "result = context['c']"})
    found = carried(task)
    assert found["ctx"] == {"c": 2, "other": 3, "both": "c"}
    assert set(found["workload"]) == {"w", "big", "both"}
    assert set(found["steps"]) == {"a", "b", "l"}
    quiet = Task(label="t", kind="python", config={"code": "result = 1"})
    assert carried(quiet) == {"ctx": {}, "workload": {}, "steps": {}}


def test_p24_the_arguments_of_main_are_carried_unless_the_input_has_them() -> None:
    code = "def main(w, c, a, mine):\n    return 1"
    task = Task(label="t", kind="python", config={"code": code}, input={"w": 1})
    found = carried(task)
    assert (found["ctx"], found["workload"], set(found["steps"])) == ({"c": 2}, {}, {"a"})


def test_p24_of_a_result_that_is_only_named_the_name_is_carried() -> None:
    named = carried(noop(input={"rows": "{{ l._ref }}", "size": "{{ steps.l._size_bytes }}"}))
    block = named["steps"]["l"]
    assert (block["tier"], block["reference"]) == ("inline", None)
    assert block["body"]["_ref"]["ref"] == STORED["reference"]["uri"]
    assert block["body"]["_size_bytes"] == 9
    assert carried(noop(input={"rows": "{{ l._ref }} {{ l }}"}))["steps"]["l"] == STORED
    assert carried(noop(input={"rows": "{{ a._ref }}"}))["steps"]["a"] == BLOCK
