"""Canonical JSON: one form per value, whatever the order it was built in."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.events.canonical import canonical_json, digest, sha256_hex, to_jsonable

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXT, below, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_it_reads_back_and_encodes_to_itself(value) -> None:
    data = canonical_json(value)
    again = json.loads(data)
    assert canonical_json(again) == data
    assert again == value


@given(st.dictionaries(TEXT, JSON, max_size=8), st.randoms())
def test_the_order_of_keys_does_not_matter(value, chance: random.Random) -> None:
    items = list(value.items())
    chance.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)
    assert digest(dict(items)) == digest(value)


@given(JSON)
def test_it_is_one_line_of_utf8(value) -> None:
    assert b"\n" not in canonical_json(value)
    canonical_json(value).decode()


@given(JSON)
def test_a_digest_is_the_hash_of_the_bytes(value) -> None:
    assert digest(value) == hashlib.sha256(canonical_json(value)).hexdigest()
    assert digest(value) == sha256_hex(canonical_json(value))


def test_the_form_is_pinned() -> None:
    value = {"b": [1, 2.5, None, True], "a": "é\n", "c": {"z": 1, "y": decimal.Decimal("1.10")}}
    expected = '{"a":"é\\n","b":[1,2.5,null,true],"c":{"y":"1.10","z":1}}'
    assert canonical_json(value).decode() == expected


class Odd:
    def __str__(self) -> str:
        return "odd"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        (b"caf\xc3\xa9 \xff", "café \N{REPLACEMENT CHARACTER}"),
        (float("nan"), None),
        (float("-inf"), None),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        (decimal.Decimal("1.10"), "1.10"),
        (np.int64(3), 3),
        (np.float64(1.5), 1.5),
        (np.array([1, 2]), [1, 2]),
        (np.array([1.5, float("nan")]), [1.5, None]),
        (1 << 70, "1180591620717411303424"),
        ((1 << 64) - 1, (1 << 64) - 1),
        ("\udcff é", "? é"),
        ({"\udcff": 1}, {"?": 1}),
        (Odd(), "odd"),
        (True, True),
        ([float("inf"), {"a": (b"x",)}], [None, {"a": ["x"]}]),
    ],
)
def test_whatever_a_tool_returns_gets_a_json_form(value, expected) -> None:
    assert to_jsonable(value) == expected
    canonical_json(to_jsonable(value))


@given(JSON)
def test_plain_json_passes_unchanged(value) -> None:
    assert to_jsonable(value) == value


ODD_CELLS = [
    float("nan"),
    float("inf"),
    -0.0,
    1 << 63,
    1 << 70,
    -(1 << 63) - 1,
    "\udcff é",
    "é",
    b"x",
    True,
    None,
    (1,),
    [1],
    {"a": float("nan")},
    np.int64(3),
    decimal.Decimal("1.10"),
    datetime.date(2026, 1, 2),
]


@pytest.mark.parametrize("odd", ODD_CELLS, ids=repr)
@pytest.mark.parametrize("usual", ["text", "é", 7, 1.5, False, None, float("nan"), 1 << 70])
@pytest.mark.parametrize("at", [0, 50, 99])
def test_many_rows_are_treated_as_each_of_them(odd, usual, at) -> None:
    rows = [{"n": n, "cell": odd if n == at else usual} for n in range(100)]
    assert repr(to_jsonable(rows)) == repr([to_jsonable(row) for row in rows])


@pytest.mark.parametrize(
    "row",
    [{}, {"n": 1}, {"n": 1, "more": 2}, {"n": 1, "cell": 2, "d": 3}, {1: 1, "n": 2}, {"cell": 1}],
)
def test_a_row_of_other_keys_is_treated_as_one(row) -> None:
    for first in ({"n": 1, "cell": "a"}, {1: 2, "n": 3}, {"\udcff": 1, "n": 2}):
        rows = [first] * 70 + [row] + [first] * 70
        assert repr(to_jsonable(rows)) == repr([to_jsonable(one) for one in rows])


def test_rows_are_copied() -> None:
    rows = [{"n": n} for n in range(100)]
    found = to_jsonable(rows)
    found[0]["n"] = "changed"
    assert rows[0] == {"n": 0}


@pytest.mark.parametrize("at", [0, 1_023, 1_024, 2_047, 2_499])
def test_one_odd_row_among_very_many_is_treated_as_itself(at) -> None:
    rows = [{"n": n, "cell": float("nan") if n == at else n / 2} for n in range(2_500)]
    assert to_jsonable(rows) == [to_jsonable(row) for row in rows]
    assert to_jsonable(rows)[at]["cell"] is None
    rows[at] = ("other", {1: b"x"})
    assert to_jsonable(rows)[at] == ["other", {"1": "x"}]
    assert len(to_jsonable(rows)) == 2_500
