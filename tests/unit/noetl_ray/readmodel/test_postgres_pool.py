"""Values on their way into Postgres and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.readmodel.postgres_pool import (
    changed_rows,
    clean,
    decode_jsonb,
    encode_jsonb,
    instant,
    iso,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def without_nul(value):
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    return value


@given(JSON)
def test_json_survives_but_for_nul(value):
    data = encode_jsonb(value)
    assert decode_jsonb(data) == without_nul(value)


def test_an_escaped_backslash_is_not_a_nul():
    assert decode_jsonb(encode_jsonb(r"\u0000")) == r"\u0000"


def test_text_loses_only_nul():
    assert clean("a\0b") == "a\ufffdb"
    assert clean("äöü") == "äöü"
    assert clean(None) is None


def test_times_keep_their_milliseconds():
    text = "2026-01-02T03:04:05.078Z"
    assert instant(text) == datetime(2026, 1, 2, 3, 4, 5, 78_000, tzinfo=UTC)
    assert iso(instant(text)) == text
    east = datetime(2026, 1, 2, 5, 4, 5, 78_000, tzinfo=timezone(timedelta(hours=2)))
    assert iso(east) == text
    assert iso(None) is None
    assert instant(None) is None


@pytest.mark.parametrize(("tag", "rows"), [("INSERT 0 12", 12), ("UPDATE 0", 0), ("COPY 7", 7)])
def test_command_tags_tell_the_rows(tag, rows):
    assert changed_rows(tag) == rows
