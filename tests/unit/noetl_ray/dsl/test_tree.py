from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_ray.dsl.template import Templates

TEMPLATES = Templates()


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ ctx.page }}", {("ctx", "page")}),
        ("{{ workload['api_url'] }}/x", {("workload", "api_url")}),
        ("{{ fetch.data.rows[0].id }}", {("fetch", "data", "rows")}),
        ("{{ fetch.rows[0].id }}", {("fetch", "rows")}),
        ("{{ a.b.c.d.e }}", {("a", "b", "c")}),
        ("{{ ctx[name] }}", {("ctx",), ("name",)}),
        ("{{ ctx.a[ctx.key].z }}", {("ctx", "a"), ("ctx", "key")}),
        ("{{ ctx }}", {("ctx",)}),
        ("{{ ctx.items() }}", {("ctx",), ("ctx", "items")}),
        ("{{ ctx.get('a') }}", {("ctx",), ("ctx", "get")}),
        ("{{ s.text.split(sep) }}", {("s", "text"), ("s", "text", "split"), ("sep",)}),
        ("{{ x | default(y.z) }}", {("x",), ("y", "z")}),
        ("{{ a if b else c }}", {("a",), ("b",), ("c",)}),
        ("{% for r in f.rows %}{{ r.id }}{% endfor %}", {("f", "rows"), ("r", "id")}),
        ("{% set x = y.z %}{{ x }}", {("y", "z"), ("x",)}),
        ("{{ {'k': v}[w] }}", {("v",), ("w",)}),
        ("{{ f(a, b=c.d) }}", {("f",), ("a",), ("c", "d")}),
        ("{{ a ~ b.c }}", {("a",), ("b", "c")}),
        ("{{ x is defined and y in z }}", {("x",), ("y",), ("z",)}),
        ("{{ (a or b).c }}", {("a",), ("b",)}),
        ("{{ rows[i:j] }}", {("rows",), ("i",), ("j",)}),
        (
            "import json\nx = {{ payload_kb }}\ny = {{ cfg.a | tojson }}",
            {("payload_kb",), ("cfg", "a")},
        ),
        ("no template", set()),
        (5, set()),
        ({"{{ key }}": ["{{ a }}", {"b": "{{ b.c }}"}]}, {("a",), ("b", "c")}),
    ],
)
def test_reads(template: Any, expected: set[tuple[str, ...]]) -> None:
    assert TEMPLATES.reads(template) == expected


def test_a_broken_template_reads_nothing() -> None:
    assert TEMPLATES.reads(["{{ a }}", "{{ ( }} {{ b }}", "{{ " + "(" * 5000]) == {("a",)}


_NAME = st.sampled_from(["a", "b", "c", "d"])
_EXPRESSION = st.recursive(
    _NAME,
    lambda inner: st.one_of(
        st.builds("{}.{}".format, inner, _NAME),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} ~ {})".format, inner, inner),
        st.builds("({} | default({}))".format, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
    ),
    max_leaves=8,
)


@given(_EXPRESSION, st.booleans())
@settings(max_examples=150, deadline=None)
def test_reads_never_misses_a_root(expression: str, whole: bool) -> None:
    class Asking(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            asked.add(name)
            raise KeyError(name)

    asked: set[str] = set()
    template = f"{{{{ {expression} }}}}" if whole else f"x{{{{ {expression} }}}}"
    TEMPLATES.value(template, Asking())
    assert asked <= {path[0] for path in TEMPLATES.reads(template)}
