from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from noetl_ray.dsl.filters import to_json
from noetl_ray.dsl.template import Templates
from noetl_ray.errors import TemplateError

TEMPLATES = Templates()


class Proxy(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


NAMES: dict[str, Any] = {
    "none": None,
    "s": "Ab c",
    "xs": [3, 1, 2],
    "rows": [{"k": "x", "n": 1}, {"k": "y", "n": 2}, {"k": "x", "n": 3}],
    "m": {"b": 1, "a": 2},
    "quote": {"t": "it's <b>"},
    "proxy": Proxy(),
    "when": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    "cost": Decimal("1.10"),
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("none | default(4)", 4),
        ("nope.x | default('d')", "d"),
        ("nope | d", ""),
        ("'' | default('d')", ""),
        ("'' | default('d', true)", "d"),
        ("0 | default(default_value=5)", 0),
        ("nope | default(default_value=5)", 5),
        ("'12' | int", 12),
        ("'junk' | int", 0),
        ("'junk' | int(7)", 7),
        ("'3.9' | int", 3),
        ("none | int", 0),
        ("nope | int", 0),
        ("'ff' | int(0, 16)", 255),
        ("'1.5' | float", 1.5),
        ("nope | float", 0.0),
        ("s | lower", "ab c"),
        ("s | upper", "AB C"),
        ("s | title", "Ab C"),
        ("' x ' | trim", "x"),
        ("s | length", 4),
        ("nope | length", 0),
        ("s | replace('b', 'd')", "Ad c"),
        ("s | split", ["Ab", "c"]),
        ("'a,b' | split(',')", ["a", "b"]),
        ("xs | first", 3),
        ("xs | last", 2),
        ("xs | sort", [1, 2, 3]),
        ("xs | join('-')", "3-1-2"),
        ("rows | join(',', attribute='k')", "x,y,x"),
        ("xs | sum", 6),
        ("rows | sum(attribute='n')", 6),
        ("[[1], [2]] | sum(start=[])", [1, 2]),
        ("xs | max", 3),
        ("xs | reverse", [2, 1, 3]),
        ("xs | reverse | list", [2, 1, 3]),
        ("xs | select('gt', 1)", [3, 2]),
        ("rows | selectattr('k', 'equalto', 'x') | map(attribute='n')", [1, 3]),
        ("rows | map(attribute='k') | unique", ["x", "y"]),
        ("rows | groupby('k') | map('first')", ["x", "y"]),
        (
            "rows | groupby('k')",
            [["x", [NAMES["rows"][0], NAMES["rows"][2]]], ["y", [NAMES["rows"][1]]]],
        ),
        ("xs | batch(2)", [[3, 1], [2]]),
        ("m | dictsort", [["a", 2], ["b", 1]]),
        ("m | items", [["b", 1], ["a", 2]]),
        ("m | keys", ["b", "a"]),
        ("m | values", [1, 2]),
        ("nope | items", []),
        ("5 | string", "5"),
        ("'a' | b64encode", "YQ=="),
        ("'YQ==' | b64decode", "a"),
        ("m | b64encode | b64decode | fromjson", {"b": 1, "a": 2}),
        ("'[1, 2]' | fromjson", [1, 2]),
        ("m | fromjson", {"b": 1, "a": 2}),
        ("m | tojson", '{"b": 1, "a": 2}'),
        ("quote | tojson", '{"t": "it\'s <b>"}'),
        ("nope | tojson", "null"),
        (
            "[nope, when, cost, proxy] | tojson",
            '[null, "2026-01-02T03:04:00+00:00", "1.10", {"a": 1}]',
        ),
        ("'a b&' | urlencode", "a%20b%26"),
        ("{'a': 'b c'} | urlencode", "a=b+c"),
        ("'<a>' | e", "&lt;a&gt;"),
        ("'%02d-%s' | format(3, 'x')", "03-x"),
        ("'%(a)s' | format(a=1)", "1"),
        ("'a\nb' | indent(2)", "a\n  b"),
        ("2.567 | round(1)", 2.6),
        ("'ab' | center(4)", " ab "),
        ("-3 | abs", 3),
    ],
)
def test_filters(expression: str, expected: Any) -> None:
    made = TEMPLATES.value(f"{{{{ {expression} }}}}", NAMES)
    assert made == expected
    assert type(made) is type(expected)


def test_the_sql_idiom() -> None:
    text = TEMPLATES.text("""'{{ quote | tojson | replace("'", "''") }}'::jsonb""", NAMES)
    assert text == """'{"t": "it''s <b>"}'::jsonb"""


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'%%%' | b64decode | fromjson", "Expecting value"),
        ("'/w==' | b64decode", "b64decode: "),
        ("'{' | fromjson", "Expecting property name"),
        ("m | tojson(indent=99)", "tojson indent may be 0 to 16"),
        ("m | default(1, wrong=2)", "default() has no argument 'wrong'"),
        ("'%s' | format(1, a=2)", "format() takes values by position or by name, not both"),
        ("['a', 1] | sort", "not supported between"),
    ],
)
def test_messages(expression: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        TEMPLATES.value(f"{{{{ {expression} }}}}", NAMES)
    assert message in caught.value.message


def test_json_of_other_values() -> None:
    assert to_json([date(2026, 1, 2), timedelta(seconds=1), UUID(int=1), b"a", range(2)]) == (
        '["2026-01-02", "0:00:01", "00000000-0000-0000-0000-000000000001", "YQ==", [0, 1]]'
    )
    with pytest.raises(TypeError, match="tojson cannot write a object"):
        to_json(object())
