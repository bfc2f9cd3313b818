from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.dsl.budget import Limits
from noetl_ray.dsl.template import Templates
from noetl_ray.errors import TemplateError

TEMPLATES = Templates()


class Thing:
    """Something a careless caller put among the names."""

    secret = "s3cret"

    def method(self) -> str:
        return self.secret


NAMES: dict[str, Any] = {
    "d": {"a": 1},
    "xs": [1, 2],
    "s": "text",
    "thing": Thing(),
    "f": lambda: 1,
    "n": 5,
    "cls": Thing,
}


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() if ''.__class__ else '' }}",
        "{{ d.__class__ }}",
        "{{ d['__class__'] }}",
        "{{ xs.__len__ }}",
        "{{ n.real }}",
        "{{ n.__class__ }}",
        "{{ thing.secret }}",
        "{{ thing.method }}",
        "{{ thing['secret'] }}",
        "{{ f.__globals__ }}",
        "{{ f.__code__ }}",
        "{{ cls.secret }}",
        "{{ cycler }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ joiner }}",
        "{{ lipsum }}",
        "{{ lipsum.__globals__ }}",
        "{{ namespace }}",
        "{{ dict }}",
        "{{ self }}",
        "{{ self.__init__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ range.__self__ }}",
        "{{ nope.__class__ }}",
        "{{ nope.__init__.__globals__ }}",
        "{{ d.items.run }}",
        "{{ d.items.target }}",
        "{{ s.format }}",
        "{{ s.format_map }}",
        "{{ s.encode }}",
        "{{ d.pop }}",
        "{{ d.update }}",
        "{{ d.setdefault }}",
        "{{ xs.append }}",
        "{{ xs.sort }}",
        "{{ config }}",
        "{{ request }}",
        "{{ caller }}",
        "{{ environment }}",
        "{{ context }}",
        "{{ _value_ }}",
        "{{ [d] | map(attribute='__class__') | first }}",
        "{{ [thing] | map(attribute='secret') | first }}",
        "{{ [thing] | sum(attribute='secret', start='') if false }}",
    ],
)
def test_there_is_no_way_to_python(template: str) -> None:
    assert TEMPLATES.value(template, NAMES) in ("", None)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''|attr('__class__') }}",
        "{{ [''] | map('attr', '__class__') | list }}",
        "{{ lipsum() }}",
        "{{ cycler(1) }}",
        "{{ namespace(a=1) }}",
        "{{ dict(a=1) }}",
        "{{ thing() }}",
        "{{ thing.method() }}",
        "{{ cls() }}",
        "{{ f.__call__() }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{a.__class__}'.format_map(d) }}",
        "{{ d.pop('a') }}",
        "{{ d.update({'a': 2}) }}",
        "{{ xs.append(3) }}",
        "{{ s.encode() }}",
        "{{ d.items.__func__() }}",
        "{{ nope() }}",
        "{{ s | random }}",
        "{{ s | pprint }}",
        "{{ s | safe }}",
        "{{ s | xmlattr }}",
        "{{ range(1, 2, 0) }}",
        "{{ '%(a)s' % thing }}",
        "{% set ns = namespace() %}{% set ns.x = 1 %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% call f() %}{% endcall %}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as x %}",
        "{% from 'x' import y %}",
        "{% block b %}{% endblock %}",
        "{% filter upper %}x{% endfilter %}",
        "{% set x %}x{% endset %}",
        "{% autoescape true %}x{% endautoescape %}",
        "{% for x in xs recursive %}{{ loop(xs) }}{% endfor %}",
        "{% for x in xs %}{{ loop() }}{% endfor %}",
        "{% for x in xs %}{{ loop.cycle(1, 2) }}{% endfor %}",
        "{% do xs.append(1) %}",
    ],
)
def test_what_is_refused(template: str) -> None:
    with pytest.raises(TemplateError):
        TEMPLATES.value(template, NAMES)
    assert NAMES["d"] == {"a": 1}
    assert NAMES["xs"] == [1, 2]


def test_loop_state_is_readable_and_nothing_behind_it() -> None:
    template = "{% for x in xs %}{{ loop.index0 }}{{ loop.last }}{{ loop._iterator }};{% endfor %}"
    assert TEMPLATES.value(template, NAMES) == "0False;1True;"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ range(10001) }}", "range() may give at most 10000 numbers"),
        ("{{ 'a' * 2000000 }}", "a text longer than 1048576 characters"),
        ("{{ 2000000 * 'a' }}", "a text longer than 1048576 characters"),
        ("{{ [1] * 2000000 }}", "a list longer than 1000000 elements"),
        ("{{ [[1] * 5000] * 5000 }}", "units of work"),
        ("{{ 10 ** 5000 }}", "a number of more than 4096 bits"),
        ("{{ (10 ** 1000) * (10 ** 1000) }}", "a number of more than 4096 bits"),
        ("{{ '%01000000d' % 1 }}", "a format width may be at most 1000"),
        ("{{ '%*d' % (100000000, 1) }}", "a format width may be at most 1000"),
        ("{{ '%.99999f' % 1 }}", "a format width may be at most 1000"),
        ("{{ '%9999d' | format(1) }}", "a format width may be at most 1000"),
        ("{{ ('a' * 1000000) ~ ('a' * 1000000) }}", "a text longer than 1048576"),
        ("{{ 'a' * 1000000 + 'a' * 1000000 }}", "a text longer than 1048576"),
        ("{{ ('a' * 10000) | replace('a', 'b' * 10000) }}", "a text longer than 1048576"),
        ("{{ ('a' * 10000).replace('a', 'b' * 10000) }}", "a text longer than 1048576"),
        ("{{ ('a' * 10000).replace('', 'b' * 10000) }}", "a text longer than 1048576"),
        ("{{ ('a' * 10000).join(range(1000)) }}", "a text longer than 1048576"),
        ("{{ range(1000) | join('a' * 10000) }}", "a text longer than 1048576"),
        ("{{ 'a' | center(100000000) }}", "a filter may be given numbers up to 1048576"),
        ("{{ [1] | batch(100000000, 'x') }}", "a filter may be given numbers up to 1048576"),
        ("{{ ('\n' * 100000) | indent(1000) }}", "a text longer than 1048576"),
        ("{{ (['a' * 1000000] * 100) | tojson }}", "a text longer than 1048576"),
        ("{{ (['a' * 1000000] * 100) | string }}", "a text longer than 1048576"),
        ("x{{ ['a' * 1000000] * 100 }}", "a text longer than 1048576"),
        ("{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}", "a text longer than 1048576"),
        (
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            "the template does more than 1000000 units of work",
        ),
        (
            "{% set big = range(9999) %}{% for i in big %}{% if i in big %}{% endif %}{% endfor %}",
            "the template does more than 1000000 units of work",
        ),
    ],
)
def test_limits(template: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        TEMPLATES.value(template, {})
    assert message in caught.value.message


@pytest.mark.parametrize("use", ["{{ x }}", "{{ x | tojson }}", "{{ x == y }}", "{{ x | length }}"])
def test_doubling_by_reference_is_counted(use: str) -> None:
    doubling = "{% set x = [x, x] %}{% set y = [y, y] %}" * 40
    with pytest.raises(TemplateError, match="units of work"):
        TEMPLATES.value("{% set x = [1] %}{% set y = [1] %}" + doubling + use, {})


def test_text_doubling_is_refused() -> None:
    with pytest.raises(TemplateError, match="longer than"):
        TEMPLATES.value("{% set s = 'ab' %}" + "{% set s = s ~ s %}" * 40 + "{{ s | length }}", {})


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    for template in (
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{{ " + "[" * 3000 + "]" * 3000 + " }}",
        "{{ " + "1+" * 20000 + "1 }}",
        "{{ x" + ".a" * 20000 + " }}",
        "{% if x %}" * 2000 + "{% endif %}" * 2000,
    ):
        with pytest.raises(TemplateError):
            TEMPLATES.value(template, {})


def test_limits_can_be_set() -> None:
    wide = Templates(Limits(text_chars=3_000_000, range_items=20))
    assert len(wide.value("{{ 'a' * 2000000 }}", {})) == 2_000_000
    with pytest.raises(TemplateError, match="at most 20 numbers"):
        wide.value("{{ range(21) }}", {})
