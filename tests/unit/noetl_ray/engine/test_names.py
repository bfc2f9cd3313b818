"""What templates can name, and in which order (language page, section 2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.dsl.template import Templates
from noetl_ray.engine.names import (
    EventName,
    Names,
    StepValue,
    extracted_value,
    has_template,
    step_value,
)
from noetl_ray.errors import NotInlineError

TEMPLATES = Templates()


def names(**given: Any) -> Names:
    locals_ = given.pop("locals_", None)
    fields: dict[str, Any] = {"workload": {}, "ctx": {}, "steps": {}, "env": {}} | given
    return Names(TEMPLATES, execution_id=42, locals_=locals_, **fields)


def shown(template: str, **given: Any) -> Any:
    return TEMPLATES.value(template, names(**given))


def test_the_first_hit_wins_in_the_order_of_the_page() -> None:
    given: dict[str, Any] = {"workload": {"x": "workload"}}
    assert shown("{{ x }}", **given) == "workload"
    given["ctx"] = {"x": "ctx"}
    assert shown("{{ x }}", **given) == "ctx"
    given["steps"] = {"x": "step"}
    assert shown("{{ x }}", **given) == "step"
    given["locals_"] = {"x": "local"}
    assert shown("{{ x }}", **given) == "local"


@pytest.mark.parametrize("name", ["execution_id", "catalog_id"])
def test_the_id_is_text_and_cannot_be_shadowed(name: str) -> None:
    assert shown(f"{{{{ {name} }}}}", workload={name: 1}, ctx={name: 2}, steps={name: 3}) == "42"
    assert shown("{{ workload.execution_id }}", workload={"execution_id": 1}) == 1


def test_job_holds_the_id_three_times() -> None:
    assert shown("{{ job }}") == {"uuid": "42", "execution_id": "42", "id": "42"}


def test_ctx_is_seeded_from_the_workload_and_the_workload_stays() -> None:
    given = {"workload": {"a": 1, "b": 1}, "ctx": {"a": 2}}
    assert shown("{{ ctx.a }} {{ ctx.b }} {{ workload.a }}", **given) == "2 1 1"
    assert sorted(names(**given)["ctx"]) == ["a", "b"]
    assert len(names(**given)["ctx"]) == 2


def test_workload_text_is_rendered_when_it_is_read_two_deep_at_most() -> None:
    workload = {
        "table": "t_{{ execution_id }}",
        "path": "{{ workload.table }}/x",
        "host": "{{ env.HOST | default('none') }}",
        "loop": "{{ workload.loop }}",
        "deep": {"list": ["{{ n }}"]},
        "n": 5,
    }
    assert shown("{{ workload.path }}", workload=workload) == "t_42/x"
    assert shown("{{ host }}", workload=workload, env={"HOST": "h"}) == "h"
    assert shown("{{ workload.deep.list }}", workload=workload) == [5]
    assert "loop" in shown("{{ workload.loop }}", workload=workload)


def test_text_that_came_from_results_is_never_rendered_again() -> None:
    assert shown("{{ a.t }}", steps={"a": {"t": "{{ execution_id }}"}}) == "{{ execution_id }}"
    assert shown("{{ ctx.t }}", ctx={"t": "{{ execution_id }}"}) == "{{ execution_id }}"


def test_every_name_is_listed_once_and_found() -> None:
    mapping = names(workload={"w": 1}, ctx={"c": 1, "w": 2}, steps={"s": 1}, locals_={"l": 1})
    listed = list(mapping)
    assert len(listed) == len(set(listed)) == len(mapping)
    assert {"w", "c", "s", "l", "ctx", "workload", "job", "steps", "env"} <= set(listed)
    assert all(name in mapping for name in listed)
    assert "nothing" not in mapping
    with pytest.raises(KeyError):
        mapping["nothing"]


def test_other_locals_leave_the_first_ones_alone() -> None:
    first = names(locals_={"x": 1}, ctx={"c": 3})
    second = first.with_locals({"x": 2})
    assert (first["x"], second["x"], second["c"]) == (1, 2, 3)


# Results as others see them


def test_step_values_answer_to_their_aliases_unless_the_key_is_their_own() -> None:
    value = step_value({"f": 1})
    assert value["data"]["f"] == value["result"]["f"] == value["context"]["f"] == 1
    assert "data" in value
    assert step_value({"data": 5})["data"] == 5
    assert step_value([1]) == [1]
    assert dict(StepValue(f=1)) == {"f": 1}
    with pytest.raises(KeyError):
        value["other"]


def test_an_inline_result_is_its_body_or_its_extracted_block() -> None:
    assert extracted_value({"tier": "inline", "extracted": {"a": 1}}, "s") == {"a": 1}
    block = {"tier": "inline", "extracted": {"a": [0]}, "body": {"a": [0, 1]}}
    assert extracted_value(block, "s") == {"a": [0, 1]}


def test_p27_a_cut_array_knows_its_length_and_refuses_the_rest() -> None:
    block = {
        "tier": "object",
        "extracted": {"rows": [{"id": 1, "tags": ["x"]}], "n": 3},
        "truncated": {"rows": 60, "rows.0.tags": 4},
    }
    value = extracted_value(block, "load")
    assert len(value["rows"]) == 60
    assert value["rows"][0]["id"] == 1
    assert len(value["rows"][0]["tags"]) == 4
    assert shown("{{ load.rows | length }}", steps={"load": value}) == 60
    for touch in (lambda: value["rows"][1], lambda: list(value["rows"]), lambda: value["rows"][-1]):
        with pytest.raises(NotInlineError, match=r"load\.rows has 60 elements"):
            touch()


def test_a_whole_result_that_is_a_cut_array() -> None:
    value = extracted_value({"tier": "object", "extracted": [1], "truncated": {"$": 9}}, "s")
    assert len(value) == 9
    assert value[0] == 1


def test_an_array_that_was_not_cut_is_walked_freely() -> None:
    block = {"tier": "json", "extracted": {"rows": [1, 2]}, "truncated": {"other": 5}}
    assert list(extracted_value(block, "p")["rows"]) == [1, 2]


@pytest.mark.parametrize(
    ("name", "equal", "other"),
    [
        ("call.done", ["call.done", "step.done", "step.exit"], ["call.error", "x"]),
        ("call.error", ["call.error", "step.failed"], ["call.done", "step.exit"]),
        ("loop.done", ["loop.done", "step.done"], ["call.done", "call.error"]),
    ],
)
def test_event_names_equal_their_synonyms(name: str, equal: list[str], other: list[str]) -> None:
    for text in equal:
        assert EventName(name) == text
    for text in other:
        assert EventName(name) != text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{ x }}", True),
        ("{% if x %}", True),
        ("x", False),
        ([{"a": "{{"}], True),
        ({"a": [1]}, False),
        (5, False),
    ],
)
def test_template_text_is_found_at_any_depth(value: Any, expected: bool) -> None:
    assert has_template(value) is expected


_SOME = st.dictionaries(
    st.sampled_from(["x", "y", "ctx", "workload", "job", "execution_id", "env", "steps", "items"]),
    st.integers(0, 9),
    max_size=5,
)


@given(_SOME, _SOME, _SOME, _SOME)
def test_any_name_means_its_first_hit_and_nothing_else_is_a_name(
    locals_: dict[str, Any], steps: dict[str, Any], ctx: dict[str, Any], workload: dict[str, Any]
) -> None:
    """Locals, then what the runtime keeps for itself, then steps, variables and the workload."""
    found = names(locals_=locals_, steps=steps, ctx=ctx, workload=workload)
    own = {"ctx", "workload", "job", "execution_id", "catalog_id", "env", "steps", "keychain"}
    for name in {*locals_, *steps, *ctx, *workload, *own, "nowhere"}:
        if name in own and name not in locals_:
            assert name in found
            assert found[name] not in range(10)
            continue
        hits = [place[name] for place in (locals_, steps, ctx, workload) if name in place]
        assert (name in found) == bool(hits)
        if hits:
            assert found[name] == hits[0]
            assert TEMPLATES.value(f"{{{{ {name} }}}}", found) == hits[0]
    assert {*found} == {*locals_, *steps, *ctx, *workload, *own}
