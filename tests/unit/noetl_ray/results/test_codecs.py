"""Feather and JSON bytes: mapped without copies, broken ones told as ours."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.feather
import pytest

from noetl_ray.errors import StoreError, UsageError
from noetl_ray.results.codecs import (
    MEDIA_FEATHER,
    MEDIA_JSON,
    as_table,
    decode_result,
    encode_feather,
    table_from_path,
    table_of,
    table_shape,
)

ROWS = [{"b": 1, "a": "x"}, {"b": 2, "a": None}]


def test_tier_2_feather_is_mapped_without_copying(tmp_path):
    rows = [{"id": n, "name": "x" * 50} for n in range(20_000)]
    path = tmp_path / "1.feather"
    path.write_bytes(encode_feather(table_shape(rows)))
    before = pa.total_allocated_bytes()
    table = table_from_path(str(path))
    assert pa.total_allocated_bytes() - before < 50_000
    assert table.num_rows == 20_000
    mapped = pyarrow.feather.read_table(path, memory_map=True)
    assert mapped.equals(table)


def test_column_order_is_kept():
    assert as_table(MEDIA_FEATHER, encode_feather(table_shape(ROWS))).column_names == ["b", "a"]


def test_equal_schemas_have_equal_digests():
    other = [{"b": 7, "a": "zzz"}]
    assert table_shape(ROWS).schema_digest == table_shape(other).schema_digest
    assert table_shape(ROWS).schema_digest != table_shape([{"b": "7", "a": "z"}]).schema_digest


def test_json_list_of_mappings_is_a_table_too():
    assert as_table(MEDIA_JSON, b'[{"a":1},{"a":2}]').to_pylist() == [{"a": 1}, {"a": 2}]
    assert table_of({"rows": ROWS}).num_rows == 2


@pytest.mark.parametrize("value", [1, "x", {"a": 1}, [1], [{"a": 1}, {"a": "x"}]])
def test_what_is_no_table_is_refused(value):
    with pytest.raises(UsageError, match="not a table"):
        table_of(value)


def test_broken_bytes_are_our_error(tmp_path):
    for media_type in (MEDIA_JSON, MEDIA_FEATHER):
        with pytest.raises(StoreError):
            decode_result(media_type, b"\xff broken")
    path = tmp_path / "x"
    with pytest.raises(StoreError):
        table_from_path(str(path))
    path.write_bytes(b"nonsense")
    with pytest.raises(StoreError):
        table_from_path(str(path))


def test_foreign_media_types_are_refused():
    with pytest.raises(UsageError):
        decode_result("application/x-pickle", b"")


@pytest.mark.parametrize("at", [0, 1_023, 1_024, 2_499])
@pytest.mark.parametrize(
    "odd", [{"n": 1}, {"n": 1, "b": 2, "c": 3}, {"n": 1, "c": 2}, {"n": 1, "b": "x"}, [1, 2]]
)
def test_one_odd_row_among_very_many_makes_it_no_table(at, odd):
    rows = [{"n": n, "b": 2} for n in range(2_500)]
    assert table_shape(rows) is not None
    rows[at] = odd
    assert table_shape(rows) is None
