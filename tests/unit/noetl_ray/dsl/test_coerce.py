from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.dsl.coerce import coerce_text, truth_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1.50", 1.5),
        (" 7 ", 7),
        ("007", "007"),
        ("1e5", "1e5"),
        ("+1", "+1"),
        ("1.", "1."),
        (".5", ".5"),
        ("1_000", "1_000"),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("true", True),
        ("False", False),
        ("NONE", None),
        ("null", None),
        ("yes", "yes"),
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("{'a': True, 'b': None}", {"a": True, "b": None}),
        ("[1, 'x']", [1, "x"]),
        ("(1, 2)", [1, 2]),
        ("[]", []),
        ("{}", {}),
        ("{1, 2}", "{1, 2}"),
        ("{1: 2}", "{1: 2}"),
        ("[b'x']", "[b'x']"),
        ("[NaN]", "[NaN]"),
        ("[1, 2", "[1, 2"),
        ("{not data}", "{not data}"),
        ("[__import__('os')]", "[__import__('os')]"),
        ("['a\\d']", "['a\\d']"),
        ('"quoted"', '"quoted"'),
        ("", ""),
        ("  ", "  "),
        ("a b", "a b"),
        ("[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000),
    ],
)
def test_what_becomes_data(text: str, expected: Any) -> None:
    made = coerce_text(text)
    assert made == expected
    assert type(made) is type(expected)


@given(st.text())
def test_any_text_gives_something(text: str) -> None:
    coerce_text(text)
    truth_of(text)


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_whole_numbers_come_back(number: int) -> None:
    assert coerce_text(str(number)) == number
