"""Templates made to break out or to run away: a grammar round what is known to be dangerous."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from noetl_ray.dsl.budget import Limits
from noetl_ray.dsl.filters import filter_table
from noetl_ray.dsl.template import Templates
from noetl_ray.errors import TemplateError

CANARY = "canary-5f1e"
"""In this module's globals, so that whoever reaches a function's insides can show it."""

SMALL = Limits(work=20_000, range_items=1000, text_chars=20_000, list_items=20_000, int_bits=4096)
TEMPLATES = Templates(SMALL)
INSIDE = re.compile(
    r"canary|<class|<function|<module|<built-in|<bound|object at|0x[0-9a-f]{6}|mappingproxy"
)
TOUCHED: list[str] = []


class Canary:
    """Something that is no data and tells when it is asked for anything."""

    secret = CANARY

    def __getattribute__(self, name: str) -> Any:
        if name != "__class__":
            TOUCHED.append(name)
        return object.__getattribute__(self, name)

    def tell(self) -> str:
        return CANARY


def now(zone: str = "UTC") -> str:
    """A function among the names, as the engine gives one."""
    return f"2026-01-01T00:00:00{zone}"


NAMES: dict[str, Any] = {
    "d": {"a": 1, "items": [1], "nested": {"b": [1, {"c": "x"}]}},
    "xs": [3, 1, 2],
    "s": "text {0.__class__} %s",
    "n": 5,
    "thing": Canary(),
    "things": [Canary()],
    "now": now,
    "none": None,
}
DUNDERS = [
    "__class__", "__mro__", "__subclasses__", "__globals__", "__init__", "__dict__", "__func__",
    "__self__", "__code__", "__builtins__", "__getattribute__", "__call__", "__reduce_ex__",
    "__doc__", "__module__", "__base__", "__closure__", "__defaults__", "__wrapped__", "__name__",
    "gi_frame", "f_globals", "cr_frame", "ag_code", "tb_frame", "mro", "func_globals", "im_func",
    "_TemplateReference__context", "environment", "run", "target", "_undefined_message",
    "format", "format_map", "encode", "secret", "tell", "real", "cycle", "changed", "iterable",
    "﹏﹏class__", "__ｃlass__", "__cla\u017fs__", "_\u2040_class__",
]  # fmt: skip
ROOTS = [
    *NAMES, "nope", "self", "loop", "caller", "varargs", "kwargs", "super", "cycler", "joiner",
    "namespace", "lipsum", "dict", "range", "config", "request", "context", "environment", "g",
    "''", "()", "[]", "{}", "1", "1.5", "none", "true", "'%s'", "ｓelf", "_value_",
]  # fmt: skip
TESTS = ["callable", "mapping", "sameas", "in", "eq", "defined", "filter", "iterable"]
FILTERS = sorted(
    [*filter_table(), "attr", "pprint", "xmlattr", "random", "safe", "tojson", " each"]
)

dunder = st.sampled_from(DUNDERS)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger expressions from smaller ones."""
    args = st.lists(inner, max_size=2).map(", ".join)
    filters = st.sampled_from(FILTERS)
    return st.one_of(
        st.tuples(inner, dunder).map("({0[0]}).{0[1]}".format),
        st.tuples(inner, dunder).map("({0[0]})['{0[1]}']".format),
        st.tuples(inner, inner).map("({0[0]})[{0[1]}]".format),
        st.tuples(inner, inner, inner).map("({0[0]})[{0[1]}:{0[2]}]".format),
        st.tuples(inner, args).map("({0[0]})({0[1]})".format),
        st.tuples(inner, dunder, inner).map("({0[0]})({0[1]}={0[2]})".format),
        st.tuples(inner, filters).map("({0[0]}) | {0[1]}".format),
        st.tuples(inner, filters, args).map("({0[0]}) | {0[1]}({0[2]})".format),
        st.tuples(inner, dunder).map("[{0[0]}] | map(attribute='{0[1]}') | list".format),
        st.tuples(inner, filters, dunder).map("[{0[0]}] | map('{0[1]}', '{0[2]}') | list".format),
        st.tuples(inner, dunder, filters).map(
            "[{0[0]}] | {0[2]}(attribute='{0[1]}.__globals__')".format
        ),
        st.tuples(dunder, inner).map("'{{0.{0[0]}}}'.format({0[1]})".format),
        st.tuples(dunder, inner).map("'%({0[0]})s' % {0[1]}".format),
        st.tuples(inner, inner).map("'%s %r' % ({0[0]}, {0[1]})".format),
        st.tuples(inner, st.sampled_from(["~", "+", "*", "**", "%", "//", "in", "=="]), inner).map(
            "({0[0]}) {0[1]} ({0[2]})".format
        ),
        st.tuples(inner, st.sampled_from(TESTS), inner).map("({0[0]}) is {0[1]}({0[2]})".format),
        st.tuples(inner, inner).map("{{{{{0[0]}: {0[1]}}}}}".format).map(lambda t: t[1:-1]),
        inner.map("[{0}]".format),
        st.tuples(inner, inner, inner).map("({0[0]} if {0[1]} else {0[2]})".format),
    )


EXPRESSIONS = st.recursive(st.sampled_from(ROOTS), _grown, max_leaves=6)
SHAPES = [
    "{{{{ {0} }}}}",
    "text {{{{ {0} }}}}",
    "{{% set x = {0} %}}{{{{ x }}}}{{{{ [x] }}}}",
    "{{% for i in {0} %}}{{{{ i }}}}{{{{ loop.{1} }}}}{{{{ loop }}}}{{% endfor %}}",
    "{{% for i in [1] %}}{{{{ {0} }}}}{{{{ (loop.{1})() }}}}{{% endfor %}}",
    "{{% if {0} %}}{{{{ self.{1} }}}}{{% endif %}}",
    "{{% with x = {0} %}}{{{{ x.{1} }}}}{{% endwith %}}",
    "{{% macro m(a) %}}{{{{ {0} }}}}{{% endmacro %}}{{{{ m.{1} }}}}",
    "{{% call {0} %}}{{{{ caller.{1} }}}}{{% endcall %}}",
    "{{% set ns = namespace(a={0}) %}}{{{{ ns.{1} }}}}",
    "{{% filter {1} %}}{{{{ {0} }}}}{{% endfilter %}}",
]


def is_plain(value: Any) -> bool:
    """Whether a value is data and nothing but data."""
    if isinstance(value, dict):
        return type(value) is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())
    if isinstance(value, list):
        return type(value) is list and all(is_plain(item) for item in value)
    # The object itself, handed back whole: who put it there may have it again.
    return value is None or type(value) in (str, int, float, bool) or type(value) is Canary


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(written(k) + written(v) for k, v in value.items())
    if isinstance(value, list):
        return "".join(written(item) for item in value)
    return "" if type(value) is Canary else str(value)


def check(template: str, templates: Templates = TEMPLATES) -> None:
    """Render in every way there is; nothing but data, and nothing of Python in it."""
    for render in (templates.value, templates.text, templates.truth):
        TOUCHED.clear()
        try:
            made = render(template, NAMES)
        except TemplateError as error:
            shown = error.message
        else:
            assert is_plain(made), (template, type(made))
            shown = written(made)
        # What the template itself says may come out again.
        leaked = set(INSIDE.findall(shown)) - set(INSIDE.findall(template))
        assert not leaked, (template, shown)
        assert not {"secret", "tell"} & set(TOUCHED), (template, TOUCHED)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SHAPES), EXPRESSIONS, dunder)
@example(SHAPES[0], "[range] ~ ''", "mro")
@example(SHAPES[0], "[d.get] | string", "mro")
@example(SHAPES[0], "{range: 1}", "mro")
@example(SHAPES[0], "(-1) ** 0.5", "mro")
@example(SHAPES[0], "xs.index(range)", "mro")
@example(SHAPES[0], "[now] | join", "mro")
@example(SHAPES[0], "'%r' % [now]", "mro")
@example(SHAPES[1], "[now]", "mro")
@example(SHAPES[0], "thing | title", "mro")
@example(SHAPES[0], "[range] | upper", "mro")
@example(SHAPES[0], "things | map('string') | list", "mro")
@example(SHAPES[0], "'a' if self else [self] ~ ''", "mro")
def test_no_template_reaches_python(shape: str, expression: str, word: str) -> None:
    check(shape.format(expression, word))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="{}%#()[]'\"|.,~*+-_ abcdnsx01<>=!\n\\", max_size=60))
def test_no_text_breaks_the_renderer(text: str) -> None:
    check("{{ " + text + " }}")
    check(text)


BIG = "('a' * 1000000)"
RUNAWAY = [
    "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
    "{% for i in range(10000) %}{% set x = range(10000) %}{% endfor %}",
    "{% for i in range(10000) %}{% set x = 7 | round(1000000, 'ceil') %}{% endfor %}",
    "{% for i in range(10000) %}{% set x = [1] | batch(1000000, 'x') %}{% endfor %}",
    "{% for i in range(10000) %}{% set x = [] | slice(100000) %}{% endfor %}",
    "{% set s = " + BIG + " %}{% for i in range(10000) %}{% set x = s[1:] %}{% endfor %}",
    "{% set s = " + BIG + " %}{% set t = " + BIG + " %}"
    "{% for i in range(10000) %}{% set x = s == t %}{% endfor %}",
    "{% set s = " + BIG + " %}{% set t = " + BIG + " %}"
    "{% for i in range(10000) %}{% set x = s is eq(t) %}{% endfor %}",
    "{% set s = " + BIG + " %}{{ range(10000) | map('string') | select('in', s) | list }}",
    "{{ ([" + BIG + "] * 10000) | sort }}",
    "{{ ([" + BIG + "] * 10000) | unique | list }}",
    "{{ ([" + BIG + "] * 10000) | map('upper') | list }}",
    BIG.join(["{{ ", ".strip('b' * 1000000 ~ 'a') }}"]),
    BIG.join(["{{ ", " | trim('b' * 1000000 ~ 'a') }}"]),
    "{{ '%((a))1000000000d' % {'(a)': 1} }}",
    "{{ '%(" + "k" * 300 + ")1000000000d' % {'" + "k" * 300 + "': 1} }}",
    "{{ ('%(a)s' * 100000) % {'a': " + BIG + "} }}",
    "{{ ('%(' * 500000) % {'a': 1} }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ ('f' * 1000000) | int(base=16) }}",
    "{{ 0x" + "f" * 5000 + " // 3 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 9 ** 9999999 }}",
    "{{ [[1] * 1000] * 100000 }}",
    "{{ 'x' * 10000000000 }}",
    "{{ 'x' | center(100000000) }}",
    "{{ 'x\n' * 500000 | indent(1000) }}",
    "{{ range(100000000) }}",
    "{{ ('a' * 1000) | replace('', 'b' * 100000) }}",
    "{{ ('a' * 1000000) | join('b' * 1000) }}",
    "{% set a = [1] %}" + "{% set a = [a, a, a, a] %}" * 40 + "{{ a }}",
    "{% set a = 'ab' %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}",
    "{% set a = [1] %}" + "{% set a = a + a %}" * 40 + "{{ a | length }}",
    "{% for i in range(10000) %}" * 3 + "{% endfor %}" * 3,
    "{% for i in range(10000) %}{% for j in range(50) %}"
    + "{% set x = 1 %}" * 2000 + "{% endfor %}{% endfor %}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 5000 + "1 }}",
    "{{ d" + ".a" * 5000 + " }}",
    "{{ 1" + " + 1" * 5000 + " }}",
    "{{ xs" + " | list" * 5000 + " }}",
    "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "{{ ('[' * 100000) | fromjson }}",
]  # fmt: skip
PEAK_BYTES = 128 << 20


@pytest.mark.parametrize("template", RUNAWAY, ids=[text[:60] for text in RUNAWAY])
def test_a_template_that_runs_away_is_stopped_before_it_costs(template: str) -> None:
    # Counting memory is slow, so there is less work to do; sizes are as they are.
    templates = Templates(Limits(work=100_000))
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            templates.text(template, NAMES)
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()


LOOPS = st.lists(
    st.sampled_from(
        [
            "{% set x = range(1000) %}", "{% set y = y ~ y %}", "{% set y = s * 1000 %}",
            "{% set x = xs | sort %}", "{% set x = y[1:] %}", "{% set x = y == s %}",
            "{% set x = (xs * 50) | unique | list %}", "{{ y }}", "{% set x = n * n %}",
            "{% set x = xs is eq(xs) %}", "{% set x = [y, y] | tojson %}",
            "{% set x = [] | batch(1000, 'z') | list %}", "{% set x = y | upper %}",
        ]
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(LOOPS, st.integers(1, 3))
def test_work_is_counted_alike_each_time(body: list[str], depth: int) -> None:
    template = (
        "{% set y = 'ab' %}"
        + "{% for i in range(200) %}" * depth
        + "".join(body)
        + "{% endfor %}" * depth
    )
    outcomes = set()
    for _ in range(2):
        try:
            outcomes.add(Templates(SMALL).text(template, NAMES))
        except TemplateError as error:
            outcomes.add(error.message)
    assert len(outcomes) == 1
    if depth == 3:
        assert re.search("units of work|longer than", outcomes.pop())
