"""Segments have one spelling and never become a path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.errors import UsageError
from noetl_ray.locator.segments import decode_number, decode_segment, encode_segment


@given(st.text(min_size=1, max_size=16))
def test_a_segment_reads_back_and_is_never_a_path(text):
    segment = encode_segment(text)
    assert decode_segment(segment) == text
    assert "/" not in segment
    assert segment not in {".", ".."}
    assert segment.isascii()


@pytest.mark.parametrize("text", ["", "x" * 201, "é" * 40, "\ud800"])
def test_what_cannot_be_spelled_is_refused(text):
    with pytest.raises(UsageError):
        encode_segment(text)


@pytest.mark.parametrize("segment", ["%2f", "%61", "a b", "..", ".", "%FF", "%", "a/b", ""])
def test_only_the_one_spelling_is_read(segment):
    with pytest.raises(UsageError):
        decode_segment(segment)


@pytest.mark.parametrize("text", ["", "01", "-1", "+1", "1.0", "٣", " 1"])
def test_only_plain_decimals_are_numbers(text):
    with pytest.raises(UsageError):
        decode_number(text, "row")
    assert decode_number("0", "row") == 0
