"""The extracted block keeps its budget and marks what it lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.events.canonical import canonical_json
from noetl_ray.results.extracted import EVERYTHING, extract, path_is_cut

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=200), inner),
    max_leaves=60,
)


@given(JSON, st.integers(64, 2_000))
def test_tier_5_never_over_the_budget(value, max_bytes):
    block, marks = extract(value, max_bytes)
    assert len(canonical_json(block)) <= max_bytes
    assert len(canonical_json(marks)) <= max(max_bytes // 2, 32)
    if len(canonical_json(value)) <= max_bytes:
        assert block == value
        assert marks == {}
    else:
        assert marks


def test_tier_5_keys_survive_arrays_keep_element_0_strings_become_a_marker():
    value = {
        "rows": [{"x": n, "text": "y" * 5_000} for n in range(1_000)],
        "count": 1_000,
        "nested": {"deep": {"ok": True}},
        "empty": [],
    }
    block, marks = extract(value)
    assert block == {
        "rows": [{"x": 0, "text": "<cut: 5000 characters>"}],
        "count": 1_000,
        "nested": {"deep": {"ok": True}},
        "empty": [],
    }
    assert marks == {"rows": 1_000, "rows.0.text": 5_000}


def test_tier_5_order_of_keys_does_not_matter():
    keys = [f"key {n}" for n in range(1_000)]
    forth = {key: key * 3 for key in keys}
    back = {key: key * 3 for key in reversed(keys)}
    assert extract(forth) == extract(back)
    assert list(extract(forth)[0]) == list(extract(back)[0])


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        ["x" * 100_000],
        {"k" * 5_000: 1},
        {f"k{n}": {f"k{m}": "x" * 90 for m in range(100)} for n in range(100)},
        [[[[[[[[["x" * 90] * 9] * 9] * 9] * 9]]]]],
        1 << 14_000,
        {"a.b": [1] * 5_000, "%": "x" * 5_000},
    ],
)
def test_tier_5_odd_values_stay_small_and_are_marked(value):
    block, marks = extract(value)
    assert len(canonical_json(block)) <= 4_096
    assert marks
    assert path_is_cut(block, marks, ())


def test_p27_dots_in_keys_are_escaped_in_marks():
    block, marks = extract({"a.b": [1] * 5_000, "a": {"b": 2}})
    assert marks == {"a%2Eb": 5_000}
    assert path_is_cut(block, marks, ("a.b", 7))
    assert not path_is_cut(block, marks, ("a", "b"))


def test_p27_only_what_was_cut_is_doubted():
    value = {"rows": [{"x": 1, "t": "y" * 5_000}, {"x": 2, "t": ""}], "ok": {"n": 1}}
    block, marks = extract(value)
    assert not path_is_cut(block, marks, ("ok",))
    assert not path_is_cut(block, marks, ("ok", "n"))
    assert not path_is_cut(block, marks, ("rows", 0, "x"))
    assert not path_is_cut(block, marks, ("absent",))
    assert path_is_cut(block, marks, ("rows",))
    assert path_is_cut(block, marks, ("rows", 1, "x"))
    assert path_is_cut(block, marks, ("rows", 0))
    assert path_is_cut(block, marks, ("rows", 0, "t"))
    assert path_is_cut(block, marks, ("rows", 0, "t", "length"))
    assert path_is_cut(block, marks, ())
    assert not path_is_cut(value, {}, ("rows", 1))


def test_p27_dropped_keys_are_doubted():
    value = {f"k{n:04}": "x" * 20 for n in range(2_000)}
    block, marks = extract(value)
    assert marks == {"$": 2_000}
    assert not path_is_cut(block, marks, ("k0000",))
    assert path_is_cut(block, marks, ("k1999",))


def test_p27_too_many_marks_doubt_everything():
    value = {f"k{n}": "x" * 300 for n in range(100)}
    block, marks = extract(value)
    assert list(marks) == [EVERYTHING]
    assert path_is_cut(block, marks, ("k1",))


def test_a_budget_too_small_to_keep_is_refused():
    with pytest.raises(ValueError, match="at least"):
        extract({}, 10)
