"""Time as an argument: the port every role takes its clock from.

Wall time is for people and event envelopes; monotonic time is for leases and timeouts. The
simulator hands in a virtual clock, so nothing else in the project may read the operating system's.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Where a role reads time and how it waits."""

    def now_ms(self) -> int:
        """Wall time, milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait without holding anything."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Wall time, milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait without holding anything."""
        await asyncio.sleep(seconds)


def iso_utc(ms: int) -> str:
    """Milliseconds since the Unix epoch as ``2026-01-02T03:04:05.678Z``."""
    whole, rest = divmod(ms, 1000)
    return f"{_whole_second(whole)}.{rest:03d}Z"


@lru_cache(maxsize=256)
def _whole_second(seconds: int) -> str:
    """Formatting a date costs more than sealing an event, and thousands share each second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_iso_utc(text: str) -> int:
    """The inverse of :func:`iso_utc`."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
