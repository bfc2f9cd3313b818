"""The log of a host: opened from settings with the bound on its journal, whose gauge is told.

All roles of a host share one log and so one bound. The gauge goes out as a hint each second while
something is in the tail, and now and then when nothing is; nobody depends on one.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec

from noetl_ray.errors import NoetlError
from noetl_ray.hints.port import JOURNALS
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.journal import Gauge, Journal

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.config.settings import EventStoreSettings
    from noetl_ray.hints.port import Hints
    from noetl_ray.wal.connection import Connection

EVERY_S = 1.0
UNCHANGED_MAX = 5
"""How often the same is left unsaid; then it is said again, for gateways that came later."""


class ToldGauge(msgspec.Struct, frozen=True):
    """The gauge of one process."""

    source: str
    gauge: Gauge


async def open_log(store: EventStoreSettings, connection: Connection, clock: Clock) -> JetStreamLog:
    """The log as a host uses it."""
    return await JetStreamLog.open(
        connection,
        stream=store.stream,
        durability=store.durability,
        ack_timeout_ms=store.ack_timeout_ms,
        duplicate_window_s=store.duplicate_window_s,
        clock=clock,
        journal=Journal(clock, max_events=store.tail_max_events, max_bytes=store.tail_max_bytes),
    )


async def tell_journal(
    journal: Journal, hints: Hints, *, source: str, stopping: asyncio.Event
) -> None:
    """Send the gauge whenever it changed, until told to stop."""
    said: Gauge | None = None
    unchanged = UNCHANGED_MAX
    while not stopping.is_set():
        gauge = journal.gauge()
        unchanged += 1
        if gauge != said or unchanged > UNCHANGED_MAX:
            said, unchanged = gauge, 0
            with contextlib.suppress(NoetlError):
                await hints.send(JOURNALS, msgspec.json.encode(ToldGauge(source, gauge)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await stopping.wait()
