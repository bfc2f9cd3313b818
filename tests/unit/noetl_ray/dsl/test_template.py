from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from timeit import repeat
from typing import Any

import pytest

from noetl_ray.dsl.template import DROP, Templates
from noetl_ray.errors import StoreUnavailableError, TemplateError

TEMPLATES = Templates()
NAMES: dict[str, Any] = {
    "ctx": {"page": 3, "items": [1, 2], "flag": True, "nothing": None, "text": "07"},
    "rows": [{"a": 1, "values": "v"}, {"a": 2, "values": "w"}],
    "plain": {"k": "v"},
    "output": {"_ref": "noetl://x", "data": {"n": 1}},
}


class Lazy(Mapping[str, Any]):
    """Names that say which of them were asked for, and cannot be listed."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values_by_name = values
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.asked.append(name)
        return self.values_by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values_by_name

    def __iter__(self) -> Iterator[str]:
        msg = "names must not be listed"
        raise AssertionError(msg)

    def __len__(self) -> int:
        msg = "names must not be counted"
        raise AssertionError(msg)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ ctx.page }}", 3),
        ("  {{ ctx.page + 1 }}\n", 4),
        ("{{- ctx.page -}}", 3),
        ("{{ ctx.flag }}", True),
        ("{{ ctx.nothing }}", None),
        ("{{ rows }}", NAMES["rows"]),
        ("{{ rows[1].a }}", 2),
        ("{{ rows[7].a.b }}", ""),
        ("{{ rows[:1] }}", [NAMES["rows"][0]]),
        ("{{ rows.0.a }}", 1),
        ("{{ ctx['page'] }}", 3),
        ("{{ nope.a.b['c'] }}", ""),
        ("{{ output._ref }}", "noetl://x"),
        ("page {{ ctx.page }}", "page 3"),
        ("{{ ctx.page }}{{ ctx.page }}", "33"),
        ("{{ ctx.page }} and {{ nope.x }}", "3 and "),
        ("{% if ctx.flag %}yes{% else %}no{% endif %}", "yes"),
        ("{% for r in rows %}{{ loop.index }}:{{ r.a }};{% endfor %}", "1:1;2:2;"),
        ("{{ nope.x if nope else ctx.page }}", 3),
        ("{{ 'x' if false }}", ""),
        ("plain text", "plain text"),
        ("{'a': 1}", "{'a': 1}"),
        ("{# only a note #}", ""),
        ("keeps its end\n{{ ctx.page }}\n", "keeps its end\n3\n"),
        ("{{ '}}' }}", "}}"),
        (7, 7),
        (None, None),
        (True, True),
    ],
)
def test_a_value_keeps_its_type_when_it_is_one_expression(template: Any, expected: Any) -> None:
    made = TEMPLATES.value(template, NAMES)
    assert made == expected
    assert type(made) is type(expected)


def test_mappings_and_lists_render_inside_and_keys_do_not() -> None:
    made = TEMPLATES.value({"{{ ctx.page }}": ["{{ ctx.page }}", {"x": "n{{ ctx.page }}"}]}, NAMES)
    assert made == {"{{ ctx.page }}": [3, {"x": "n3"}]}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ ctx.items }}", [1, 2]),
        ("{{ rows[0].values }}", "v"),
        ("{{ plain.items() }}", [["k", "v"]]),
        ("{{ plain.keys() | list }}", ["k"]),
        ("{{ plain.get('k') }}{{ plain.get('z', 'd') }}", "vd"),
        ("{{ plain.items }}", ""),
        ("{{ ctx['values'] }}", ""),
        ("{{ 'A,b'.lower().split(',') }}", ["a", "b"]),
        ("{{ '-'.join(['a', 1]) }}", "a-1"),
        ("{{ 'a.b'.replace('.', '!') }}", "a!b"),
        ("{{ 'abc'.startswith('ab') }}", True),
        ("{{ [1, 2].index(2) }}", 1),
    ],
)
def test_data_keys_come_before_methods(template: str, expected: Any) -> None:
    assert TEMPLATES.value(template, NAMES) == expected


def test_undefined_inside_a_new_container_becomes_null() -> None:
    assert TEMPLATES.value("{{ {'a': nope, 'b': [nope.x], 'c': (1, 2)} }}", NAMES) == {
        "a": None,
        "b": [None],
        "c": [1, 2],
    }
    assert TEMPLATES.value("{{ rows | map(attribute='zz') }}", NAMES) == [None, None]


def test_undefined_compares_as_false_but_does_not_compute() -> None:
    assert TEMPLATES.value("{{ nope > 3 or nope <= 3 or nope == 3 }}", NAMES) is False
    assert TEMPLATES.value("{{ 3 in nope }}", NAMES) is False
    with pytest.raises(TemplateError, match="'nope' is undefined"):
        TEMPLATES.value("{{ nope + 1 }}", NAMES)


def test_missing_can_be_dropped_from_its_mapping() -> None:
    template = {
        "a": "{{ nope }}",
        "b": "{{ ctx.page }}",
        "c": ["{{ nope }}", 1],
        "d": "x{{ nope }}",
    }
    assert TEMPLATES.value(template, NAMES, missing=DROP) == {"b": 3, "c": [1], "d": "x"}
    assert TEMPLATES.value("{{ nope }}", NAMES, missing=None) is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ ctx.page }}0", 30),
        ("0{{ ctx.page }}", "03"),
        ("{{ ctx.text }}", "07"),
        ("{{ rows[0] | tojson }} ", '{"a": 1, "values": "v"}'),
        ("{% if true %}true{% endif %}", True),
        ("[{{ ctx.page }}, 2]", [3, 2]),
        ("42", "42"),
    ],
)
def test_coercion_touches_only_mixed_text(template: str, expected: Any) -> None:
    made = TEMPLATES.value(template, NAMES, coerce=True)
    assert made == expected
    assert type(made) is type(expected)


def test_text_is_never_coerced_and_keeps_blanks() -> None:
    assert TEMPLATES.text("{{ ctx.page }}", NAMES) == "3"
    assert TEMPLATES.text(" {{ ctx.page }}\n", NAMES) == " 3\n"
    assert TEMPLATES.text("[{{ ctx.page }}]", NAMES) == "[3]"
    assert TEMPLATES.text("{{ nope }}", NAMES) == ""
    assert TEMPLATES.text("SELECT '100%' :: x $$a$$", NAMES) == "SELECT '100%' :: x $$a$$"
    assert TEMPLATES.text(5, NAMES) == "5"
    assert TEMPLATES.text(None, NAMES) == ""
    assert TEMPLATES.text("{{ plain }}", NAMES) == "{'k': 'v'}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (True, True), (False, False), (None, False), (0, False), (2, True), ([], False),
        ("", False), ("False", False), ("NO", False), ("none", False), ("null", False),
        (" 0 ", False), ("yes", True), ("anything", True),
        ("{{ ctx.page > 2 }}", True), ("{{ ctx.page > 3 }}", False), ("{{ nope.a }}", False),
        ("{{ ctx.nothing }}", False), ("{{ plain.items }}", False), ("{{ 'false' }}", False),
        ("{{ rows }}", True), ("{% if ctx.flag %}no{% endif %}", False),
        ("x{{ ctx.page }}", True), ("{{ output._ref is defined }}", True),
    ],
)  # fmt: skip
def test_truth(template: Any, expected: bool) -> None:
    assert TEMPLATES.truth(template, NAMES) is expected


def test_truth_of_what_cannot_be_rendered_is_an_error() -> None:
    with pytest.raises(TemplateError):
        TEMPLATES.truth("{{ 1 / 0 }}", NAMES)


def test_names_are_asked_for_one_by_one() -> None:
    names = Lazy({"ctx": {"page": 1}, "other": 2})
    assert TEMPLATES.value("{{ ctx.page }} {{ zz }}", names) == "1 "
    assert TEMPLATES.truth("{{ ctx.page == 1 }}", names) is True
    assert sorted(names.asked) == ["ctx", "ctx", "zz"]


def test_a_name_of_the_caller_comes_before_a_global() -> None:
    assert TEMPLATES.value("{{ range }}", {"range": 5}) == 5
    assert TEMPLATES.value("{{ range(3) }}", {}) == [0, 1, 2]
    assert TEMPLATES.value("{{ range }}", {}) == ""


def test_a_function_among_the_names_can_be_called() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    names = {"now": lambda: moment}
    assert TEMPLATES.value("{{ now() }}", names) is moment
    assert TEMPLATES.value("at {{ now() }}", names) == "at 2026-01-02 00:00:00+00:00"
    assert TEMPLATES.value("{{ now }}", names) == ""
    assert TEMPLATES.value("[{{ now }}]", names) == "[]"
    with pytest.raises(TemplateError, match="undefined"):
        TEMPLATES.value("{{ now() }}", {})


def test_errors_of_this_project_pass_through() -> None:
    class Away(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            msg = "tier away"
            raise StoreUnavailableError(msg)

        def __iter__(self) -> Iterator[str]:
            return iter(())

        def __len__(self) -> int:
            return 0

    for template in ("{{ step.rows }}", "x{{ step.rows }}"):
        with pytest.raises(StoreUnavailableError, match="tier away"):
            TEMPLATES.value(template, {"step": Away()})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ (( }}", "line 1: unexpected '}', expected ')'"),
        ("a\nb {{ }}", "line 2: Expected an expression, got 'end of print statement'"),
        ("\n\n{{ x ", "line 3: unexpected end of template, expected 'end of print statement'."),
        ("{{ x | lowr }}", "line 1: there is no filter named 'lowr', did you mean 'lower'?"),
        ("{{ x is defind }}", "line 1: there is no test named 'defind', did you mean 'defined'?"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' + 1 }}", 'can only concatenate str (not "int") to str'),
    ],
)
def test_messages(template: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        TEMPLATES.value(template, {})
    assert caught.value.message == message
    assert caught.value.template == template


def test_the_template_in_an_error_is_cut() -> None:
    with pytest.raises(TemplateError) as caught:
        TEMPLATES.value("{{ 1 / 0 }}" + "x" * 1000, {})
    assert len(caught.value.template) == 200


def test_flaw_gives_the_line() -> None:
    assert TEMPLATES.flaw("no template") is None
    assert TEMPLATES.flaw("{{ fine }}") is None
    assert TEMPLATES.flaw("a\n{% if %}") == (
        2,
        "Expected an expression, got 'end of statement block'",
    )
    assert TEMPLATES.flaw("{{ " + "(" * 5000) == (1, "the template is nested too deeply")


def test_the_cache_is_bounded() -> None:
    small = Templates(cache_size=8)
    for number in range(50):
        assert small.value(f"{{{{ {number} }}}}", {}) == number
    assert small._short.cache_info().currsize == 8


def test_a_cached_expression_is_fast() -> None:
    template = "{{ ctx.page + 1 > 3 and ctx.flag }}"
    TEMPLATES.truth(template, NAMES)
    seconds = min(repeat(lambda: TEMPLATES.truth(template, NAMES), number=500, repeat=5)) / 500
    assert seconds < 50e-6


def test_a_value_nested_past_reason_is_refused() -> None:
    value: Any = "{{ x }}"
    for _ in range(5000):
        value = [value]
    with pytest.raises(TemplateError, match="nested too deeply"):
        TEMPLATES.value(value, {})
