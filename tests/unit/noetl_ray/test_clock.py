"""Times as text, and the system's clock as a port."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.clock import SystemClock, iso_utc, parse_iso_utc

YEAR_9999_MS = 253_402_300_799_999


@given(st.integers(0, YEAR_9999_MS))
def test_a_time_reads_back_to_the_millisecond(ms: int) -> None:
    text = iso_utc(ms)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert parse_iso_utc(text) == ms


@given(st.integers(0, YEAR_9999_MS), st.integers(0, YEAR_9999_MS))
def test_times_sort_as_text(one: int, two: int) -> None:
    assert (iso_utc(one) < iso_utc(two)) == (one < two)


def test_the_form_is_pinned() -> None:
    assert iso_utc(1_767_323_045_678) == "2026-01-02T03:04:05.678Z"
    assert parse_iso_utc("2026-01-02T04:04:05.678+01:00") == 1_767_323_045_678


@pytest.mark.asyncio
async def test_the_system_clock_goes_forward() -> None:
    clock = SystemClock()
    before, wall = clock.monotonic(), clock.now_ms()
    await clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.now_ms() >= wall > 1_700_000_000_000
