"""One waiter is woken, or its time runs out."""

from __future__ import annotations

import asyncio

import pytest

from noetl_ray.errors import InternalError
from noetl_ray.wal.signal import Signal

pytestmark = pytest.mark.asyncio


async def test_a_notification_wakes_the_waiter() -> None:
    signal = Signal()
    signal.notify()
    waiting = asyncio.ensure_future(signal.wait(30))
    await asyncio.sleep(0)
    signal.notify()
    signal.notify()
    await asyncio.wait_for(waiting, 1)


async def test_time_runs_out_quietly() -> None:
    signal = Signal()
    await signal.wait(0.001)
    await signal.wait(-1)


async def test_a_second_waiter_is_a_bug() -> None:
    signal = Signal()
    waiting = asyncio.ensure_future(signal.wait(30))
    await asyncio.sleep(0)
    with pytest.raises(InternalError):
        await signal.wait(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await signal.wait(0.001)
