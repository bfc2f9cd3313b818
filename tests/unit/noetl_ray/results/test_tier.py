"""The tier decision: budget, shapes, and equal bytes everywhere."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.events.canonical import canonical_json, to_jsonable
from noetl_ray.results.codecs import MEDIA_FEATHER, MEDIA_JSON, decode_result
from noetl_ray.results.tier import decide_tier, is_larger_than

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "count": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
            "note": st.none() | st.text(),
            "ratio": st.none() | FLOATS,
            "flag": st.none() | st.booleans(),
        }
    ),
    min_size=1,
)


def table(rows):
    return [{"id": n, "name": f"row {n}", "half": n / 2, "odd": n % 2 == 1} for n in range(rows)]


def test_tier_1_at_the_budget_is_inline_and_over_it_is_not():
    value = {"text": "x" * 1_000}
    size = len(canonical_json(value))
    assert decide_tier(value, context_max_bytes=size).tier == "inline"
    over = decide_tier(value, context_max_bytes=size - 1)
    assert (over.tier, over.body, over.media_type, over.ext) == ("json", None, MEDIA_JSON, "json")


def test_tier_1_inline_writes_no_object():
    decision = decide_tier({"a": 1})
    assert (decision.tier, decision.body, decision.data) == ("inline", {"a": 1}, None)
    assert decision.extracted == {"a": 1}
    assert decision.truncated == {}


def test_tier_2_tables_become_feather():
    decision = decide_tier(table(10_000))
    assert decision.tier == "feather"
    assert (decision.media_type, decision.ext) == (MEDIA_FEATHER, "feather")
    assert decision.data.startswith(b"ARROW1")
    assert decision.rows == 10_000
    assert decision.size_bytes == len(decision.data)
    assert len(decision.schema_digest) == 64


def test_tier_3_other_shapes_become_canonical_json():
    value = {"text": "x" * 200_000}
    decision = decide_tier(value)
    assert decision.tier == "json"
    assert decision.data == canonical_json(value)
    assert decision.rows is None


def test_tier_4_bytes_equal_in_two_processes():
    code = (
        "from noetl_ray.results.tier import decide_tier\n"
        "rows = [{'id': n, 'name': None if n % 7 else f'row {n}', 'half': n / 2, 'none': None}"
        " for n in range(70_000)]\n"
        "value = {'status': 'ok', 'columns': ['id'], 'rows': rows, 'row_count': 70_000}\n"
        "print(decide_tier(value).sha256, decide_tier([value]).sha256)\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
    assert len(runs.pop().split()) == 2


@given(JSON)
def test_tier_4_every_value_comes_back_equal(value):
    decision = decide_tier(value, force_tier=True)
    assert decode_result(decision.media_type, decision.data) == value


@given(ROWS)
def test_tier_2_tables_come_back_equal_with_types_and_order(rows):
    decision = decide_tier(rows, force_tier=True)
    assert decision.tier == "feather"
    found = decode_result(decision.media_type, decision.data)
    assert found == rows
    columns = list(rows[0])
    assert all(list(row) == columns for row in found)
    assert [[type(row[name]) for name in columns] for row in found] == [
        [type(row[name]) for name in columns] for row in rows
    ]


def test_tier_2_mapping_round_rows_comes_back_equal():
    value = {"status": "ok", "columns": ["id"], "rows": table(50), "row_count": 50, "more": [1.5]}
    decision = decide_tier(value, force_tier=True)
    assert (decision.tier, decision.rows) == ("feather", 50)
    assert decode_result(decision.media_type, decision.data) == value


@pytest.mark.parametrize(
    "value",
    [
        [],
        [{}],
        {"rows": []},
        {"rows": {"a": 1}},
        [{"a": 1}, {"a": 1.5}],
        [{"a": 1}, {"a": True}],
        [{"a": 1 << 63}],
        [{"a": 1}, {"b": 1}],
        [{"a": [1]}],
        [{"a": 1}, [2]],
        [[1, 2], [3, 4]],
        {"rows": [{"a": 1}], "rest": "x" * 70_000},
        "text",
        None,
    ],
)
def test_tier_3_doubtful_tables_are_json(value):
    decision = decide_tier(value, force_tier=True)
    assert decision.tier == "json"
    assert decode_result(decision.media_type, decision.data) == value


def test_ser_3_objects_are_readable_without_our_classes():
    code = (
        "import sys, pyarrow as pa, pyarrow.feather as feather\n"
        "data = pa.BufferReader(sys.stdin.buffer.read())\n"
        "print(feather.read_table(data, use_threads=False).num_rows)\n"
        "assert 'noetl_ray' not in sys.modules"
    )
    data = decide_tier(table(9), force_tier=True).data
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, timeout=60, check=True
    )
    assert done.stdout.strip() == b"9"


def test_tier_2_fifty_megabytes():
    rows = [{"id": n, "text": f"{n:0200d}"} for n in range(230_000)]
    decision = decide_tier(rows)
    assert decision.size_bytes > 45_000_000
    assert decode_result(decision.media_type, decision.data) == rows


@given(JSON)
def test_size_guess_is_within_a_small_factor(value):
    size = len(canonical_json(value))
    assert is_larger_than(value, size * 8 + 64) is False
    assert is_larger_than(value, -1) is True


def test_size_guess_stops_early():
    assert is_larger_than([{"a": "x" * 100}] * 1_000_000, 262_144) is True


GIVEN = (
    "import datetime, decimal\n"
    "GIVEN = {'none': None, 'mixed': [1, 1.5, True], 'decimal': decimal.Decimal('1.10'),\n"
    " 'nested': {'a': [{'b': []}]}, 'unicode': 'Ünï ✓ \\ud800', 'empty': '', 'nan': float('nan'),\n"
    " 'big': 1 << 63, 'bigger': 1 << 70, 'least': -(1 << 63), 'bytes': b'ab',\n"
    " 'when': datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC),\n"
    " 'day': datetime.date(2026, 1, 2), 'set': {'b', 'a', 'c'}, 'zero': -0.0}\n"
)


def test_tier_4_every_kind_of_value_is_the_same_bytes_in_any_process():
    space: dict[str, Any] = {}
    exec(GIVEN, space)
    given = to_jsonable(space["GIVEN"])
    # One row of each kind, one table of one kind each, and all together.
    shapes = [[{"v": value, "n": n} for n in range(3)] for value in given.values()]
    shapes += [[given], {"rows": [given, given]}, [{"v": v} for v in given.values()], [], {}]
    for value in shapes:
        decision = decide_tier(value, force_tier=True)
        found = decode_result(decision.media_type, decision.data)
        assert found == value
        assert repr(found) == repr(value) or decision.tier == "json"
    code = (
        GIVEN
        + "from noetl_ray.events.canonical import to_jsonable\n"
        + "from noetl_ray.results.tier import decide_tier\n"
        + "given = to_jsonable(GIVEN)\n"
        + "shapes = [[{'v': value, 'n': n} for n in range(3)] for value in given.values()]\n"
        + "shapes += [[given], {'rows': [given, given]}]\n"
        + "print([decide_tier(value, force_tier=True).sha256 for value in shapes])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    ours = [decide_tier(value, force_tier=True).sha256 for value in shapes[: len(given) + 2]]
    assert done.stdout.strip() == str(ours)
