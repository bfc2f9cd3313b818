"""What the fast lane needs of the driver is there, and a first connect ends in bounded time."""

from __future__ import annotations

import inspect
import time

import pytest
from nats.aio.client import Client

from noetl_ray.errors import LogUnavailableError
from noetl_ray.wal.connection import connect


def test_the_driver_still_has_what_the_fast_lane_uses() -> None:
    client = Client()
    assert client._pending == []
    assert client._pending_data_size == 0
    assert client._transport is None
    assert list(inspect.signature(Client._process_msg).parameters) == [
        "self",
        "sid",
        "subject",
        "reply",
        "data",
        "headers",
    ]
    for name in ("_process_err", "_process_op_err", "_remove_sub"):
        assert callable(getattr(Client, name))


@pytest.mark.asyncio
async def test_nobody_at_the_address() -> None:
    before = time.monotonic()
    with pytest.raises(LogUnavailableError, match=r"nats://127\.0\.0\.1:1 .*event_store\.url"):
        await connect("nats://127.0.0.1:1", timeout_s=0.2)
    assert time.monotonic() - before < 30
