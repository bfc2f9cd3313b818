"""The JSON Schema: shipped as made, sound, as wide as the parser, and of use to an editor."""

from __future__ import annotations

import importlib.resources
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from noetl_ray.dsl.parse import check_playbook
from noetl_ray.dsl.problems import Findings
from noetl_ray.dsl.schema import main, playbook_schema, schema_text
from noetl_ray.dsl.source import read_source

ROOT = Path(__file__).resolve().parents[4]
VALIDATOR = Draft202012Validator(playbook_schema())
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def playbooks() -> dict[str, str]:
    found = {path.parent.name: path.read_text() for path in ROOT.glob("examples/*/*.yaml")}
    page = (ROOT / "docs" / "playbooks.md").read_text()
    blocks = [block for block in BLOCK.findall(page) if "apiVersion:" in block]
    return found | {f"docs {number}": block for number, block in enumerate(blocks)}


def data(text: str) -> Any:
    node = read_source(text, Findings())
    assert node is not None
    return node.data()


def flaws(document: Any) -> list[str]:
    return [error.json_path for error in VALIDATOR.iter_errors(document)]


def test_the_shipped_file_is_in_step() -> None:
    shipped = importlib.resources.files("noetl_ray.dsl").joinpath("playbook.schema.json")
    again = "run: python -m noetl_ray.dsl.schema --write"
    assert shipped.read_text(encoding="utf-8") == schema_text(), again


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(playbook_schema())
    refs = set(re.findall(r'"#/\$defs/(\w+)"', schema_text()))
    assert refs <= set(playbook_schema()["$defs"])


def test_it_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert json.loads(capsys.readouterr().out) == playbook_schema()


@pytest.mark.parametrize("name", playbooks())
def test_playbooks_we_show_are_valid(name: str) -> None:
    assert flaws(data(playbooks()[name])) == []


def with_step(**keys: Any) -> dict[str, Any]:
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "x"},
        "workflow": [{"step": "start", **keys}],
    }


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({}, "$"),
        ({**with_step(), "kind": "Plabook"}, "$.kind"),
        ({**with_step(), "workflow": []}, "$.workflow"),
        (with_step(tool={"kind": "pyton"}), "$.workflow[0].tool"),
        (with_step(tool={"code": "x"}), "$.workflow[0].tool"),
        (with_step(tool=[{"one": {"kind": "pyton"}}]), "$.workflow[0].tool"),
        (with_step(case=[1]), "$.workflow[0].case"),
        (with_step(set=[1]), "$.workflow[0].set"),
        (with_step(next={"spec": {"mode": "some"}}), "$.workflow[0].next"),
        (with_step(next=[{"stp": "end"}]), "$.workflow[0].next"),
        (with_step(loop={"iterator": "x"}), "$.workflow[0].loop"),
        (with_step(loop={"in": [1], "cursor": {"kind": "a", "claim": "b"}}), "$.workflow[0].loop"),
        (with_step(loop={"in": [1], "spec": {"max_in_flight": 0}}), "$.workflow[0].loop"),
        (
            with_step(
                tool={"kind": "noop", "spec": {"policy": {"rules": [{"then": {"do": "x"}}]}}}
            ),
            "$.workflow[0].tool",
        ),
    ],
)
def test_what_an_editor_underlines(document: dict[str, Any], path: str) -> None:
    assert path in flaws(document)
    assert any(p.severity == "error" for p in check_playbook(json.dumps(document)))


_VALUE = st.sampled_from([None, True, 0, 1, 2.5, "", "a", "{{ x }}", [], {}, ["a"], {"a": 1}])
_SCALAR = st.sampled_from([True, 0, 2.5, "", "a", "{{ x }}"])
_NAME = st.sampled_from(["start", "end", 5, True])
_MAP = st.sampled_from([None, {}, {"a": 1}, {"ctx.a": "{{ x }}"}])


def some(needed: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with what is needed and, of the rest, a part; each value now and then null."""
    return st.fixed_dictionaries(
        needed,
        optional={key: st.one_of(value, value, st.none()) for key, value in optional.items()},
    )


_SETS = {"set": _MAP, "set_ctx": _MAP, "set_iter": _MAP}
_ACTION = some(
    {},
    {
        "do": st.sampled_from(["continue", "retry", "fail", "break"]),
        "attempts": st.sampled_from([1, "{{ n }}"]),
        "backoff": st.sampled_from(["linear", "odd"]),
        **_SETS,
    },
)
_RULE = st.one_of(
    some({"then": _ACTION}, {"when": _SCALAR}),
    some({"else": st.one_of(_ACTION, st.builds(lambda a: {"then": a}, _ACTION))}, {}),
    st.builds(lambda a: {"else": None, "then": a}, _ACTION),
    _ACTION,
)
_SPEC = some({}, {"policy": some({}, {"rules": st.lists(_RULE, max_size=2)}), "timeout": _VALUE})
_TASK = some(
    {"kind": st.sampled_from(["noop", "python", "http", "postgres"])},
    {
        "input": _MAP, "args": _MAP, "output": _MAP, "spec": _SPEC, "side_effects": st.booleans(),
        "desc": _VALUE, "auth": _VALUE, "timeout": _VALUE, "code": _VALUE, "retry": st.none(),
        **_SETS,
    },
)  # fmt: skip
_TOOL = st.one_of(
    _TASK, st.lists(st.one_of(_TASK, st.builds(lambda t: {"x": t}, _TASK)), max_size=2)
)
_ARC = some({"step": _NAME}, {"when": _SCALAR, "cond": _SCALAR, "args": _MAP, **_SETS})
_NEXT = st.one_of(
    _NAME,
    st.lists(st.one_of(_NAME, _ARC), max_size=2),
    _ARC,
    some(
        {},
        {
            "arcs": st.lists(st.one_of(_ARC, _NAME), max_size=2),
            "mode": st.sampled_from(["exclusive", "inclusive"]),
            "spec": some({}, {"mode": st.just("inclusive"), "on_no_match": st.just("quiet")}),
        },
    ),
)
_LOOP = some(
    {},
    {
        "in": _VALUE,
        "iterator": st.just("row"),
        "spec": some({}, {"mode": st.just("parallel"), "policy": _VALUE}),
        "mode": st.just("parallel"),
    },
)
_STEP = some(
    {"step": st.just("start")},
    {
        "tool": _TOOL, "next": _NEXT, "loop": _LOOP, "input": _MAP, "output": _MAP, "when": _SCALAR,
        "timeout": _VALUE, "desc": _VALUE, "spec": some({}, {"policy": _MAP}), **_SETS,
    },
)  # fmt: skip


@given(_STEP, _MAP, _MAP, _MAP)
@settings(max_examples=150, deadline=None)
def test_what_the_parser_takes_the_schema_takes(
    step: dict[str, Any], workload: Any, executor: Any, workbook: Any
) -> None:
    document = {
        **with_step(),
        "workflow": [step],
        "workload": workload,
        "executor": executor,
        "workbook": workbook,
    }
    taken = not any(p.severity == "error" for p in check_playbook(json.dumps(document)))
    event(f"taken by the parser: {taken}")
    assert not taken or flaws(document) == []
