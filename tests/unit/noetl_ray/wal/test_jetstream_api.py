"""Reading the server's answers."""

from __future__ import annotations

import pytest

from noetl_ray.errors import LogUnavailableError
from noetl_ray.wal.jetstream_api import _fields, _from_status, _time_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("1970-01-01T00:00:01.123999999Z", 1_123),
        ("2026-01-02T03:04:05.678901234Z", 1_767_323_045_678),
    ],
)
def test_times_are_cut_to_milliseconds(text: str, expected: int) -> None:
    assert _time_ms(text) == expected


def test_header_fields() -> None:
    block = b"NATS/1.0\r\nNats-Msg-Id: 7\r\nNats-Subject: a.b\r\nNats-Sequence:12\r\n\r\n"
    assert _fields(block) == {
        b"Nats-Msg-Id": b"7",
        b"Nats-Subject": b"a.b",
        b"Nats-Sequence": b"12",
    }


def test_a_status_line_becomes_an_error() -> None:
    error = _from_status("get", b"NATS/1.0 503\r\n\r\n")
    assert isinstance(error, LogUnavailableError)
