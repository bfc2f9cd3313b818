from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import ip_address
from uuid import UUID

import asyncpg
import pytest

from noetl_ray.tools.postgres_values import converter_for, plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**62, 2**62),
        (Decimal("1.50"), 1.5),
        (Decimal("NaN"), None),
        (float("inf"), None),
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "2020-01-02T03:04:05+00:00"),
        (time(3, 4), "03:04:00"),
        (timedelta(days=1, seconds=5), "1 day, 0:00:05"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"ab", "YWI="),
        ([Decimal(1), [None]], [1.0, [None]]),
        (asyncpg.Range(1, 5), "[1,5)"),
        (asyncpg.Range(empty=True), "empty"),
        (asyncpg.Range(None, date(2020, 1, 1), upper_inc=True), "(,2020-01-01]"),
        (asyncpg.BitString("1011 1"), "10111"),
        (ip_address("10.0.0.1"), "10.0.0.1"),
        ({"a": Decimal(2)}, {"a": 2.0}),
    ],
)
def test_values_become_json(value, expected):
    assert plain(value) == expected


def test_columns_choose_their_converter_once():
    assert converter_for("int8") is None
    assert converter_for("text") is None
    assert converter_for("jsonb")('{"a": [1, null]}') == {"a": [1, None]}
    assert converter_for("jsonb[]")(['{"a": 1}', None, ["2"]]) == [{"a": 1}, None, [2]]
    assert converter_for("numeric")(Decimal("2.5")) == 2.5
