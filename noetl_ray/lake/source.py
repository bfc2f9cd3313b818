"""Ranges of the log as the lake reads them: straight from JetStream, by whoever needs them.

Owns the way from an address that travels as JSON to records between two positions. The records
stay bytes until somebody looks at them.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import LogUnavailableError
from noetl_ray.wal.jetstream import JetStreamLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from noetl_ray.config.settings import Settings
    from noetl_ray.wal.port import Recorded

BATCH = 1_024
IDLE_S = 1.0
STALL_S = 60.0
FILTERS = ("noetl.events.>", "noetl.system.>")

LogPlace = dict[str, Any]
"""``url``, ``token``, ``stream``, ``durability``: how to reach a log."""


def log_place(settings: Settings) -> LogPlace:
    """Where the log of these settings is."""
    store = settings.event_store
    return {
        "url": store.url,
        "token": store.token,
        "stream": store.stream,
        "durability": store.durability,
    }


async def open_log(place: LogPlace) -> JetStreamLog:
    """The log at a place; whoever opens it closes it."""
    return await JetStreamLog.open(
        place["url"],
        token=place["token"] or None,
        stream=place["stream"],
        durability=place["durability"],
    )


def last_position(place: LogPlace) -> int:
    """The newest position of the log."""

    async def ask() -> int:
        log = await open_log(place)
        try:
            return await log.last_position()
        finally:
            await log.close()

    return asyncio.run(ask())


def read_range(place: LogPlace, first: int, last: int, take: Callable[[Recorded], None]) -> int:
    """Hand over every record from ``first`` to ``last`` that the log holds, in order.

    Returns:
        How many there were.

    Raises:
        LogUnavailableError: the log stopped delivering.
    """

    async def run() -> int:
        log = await open_log(place)
        count = 0
        try:
            async for recorded in records_between(log, first, last):
                take(recorded)
                count += 1
        finally:
            await log.close()
        return count

    return asyncio.run(run())


async def records_between(log: JetStreamLog, first: int, last: int) -> AsyncIterator[Recorded]:
    """Every record from ``first`` to ``last`` that the log holds, in order."""
    if last < first:
        return
    subscription = await log.subscribe(FILTERS, from_position=first)
    heard = time.monotonic()
    seen = first - 1
    try:
        while seen < last:
            batch = await subscription.next_batch(BATCH, IDLE_S)
            for recorded in batch:
                if recorded.position > last:
                    return
                seen = recorded.position
                yield recorded
            if batch:
                heard = time.monotonic()
            elif await _ended(log, seen, last):
                # What was at the end of the range has been archived and removed.
                return
            elif time.monotonic() - heard > STALL_S:
                msg = f"the log delivered nothing after position {seen} for {STALL_S:g} s"
                raise LogUnavailableError(msg)
    finally:
        await subscription.close()


async def _ended(log: JetStreamLog, seen: int, last: int) -> bool:
    following = await log.first_after(">", seen)
    return following is None or following.position > last
