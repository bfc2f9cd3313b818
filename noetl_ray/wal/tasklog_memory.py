"""The task log in memory.

Owns a bounded list of batches and wakes the one reader that waits. Refuses to grow: the oldest
batches go first, as on the server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from noetl_ray.wal.signal import Signal
from noetl_ray.wal.tasklog import LogLine, PositionedLines
from noetl_ray.wal.tasklog_batches import decode_batch, encode_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCHES_MAX = 100_000


class MemoryTaskLog:
    """The task-log port over a list."""

    def __init__(self, *, batches_max: int = BATCHES_MAX) -> None:
        self._batches: deque[PositionedLines] = deque(maxlen=batches_max)
        self._last = 0
        self._signals: list[Signal] = []

    async def write(self, shard: int, lines: Sequence[LogLine]) -> None:
        """Hand lines over."""
        for data in encode_batches(lines):
            self._last += 1
            self._batches.append(PositionedLines(position=self._last, lines=decode_batch(data)))
        for signal in self._signals:
            signal.notify()

    async def read_after(
        self, position: int, *, max_batches: int, timeout_s: float
    ) -> list[PositionedLines]:
        """Batches after a position in order; empty when none came in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        signal = Signal()
        self._signals.append(signal)
        try:
            while self._last <= position:
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return []
                await signal.wait(remaining)
        finally:
            self._signals.remove(signal)
        first = self._last - len(self._batches) + 1
        start = max(0, position + 1 - first)
        stop = min(len(self._batches), start + max_batches)
        return [self._batches[index] for index in range(start, stop)]

    async def close(self) -> None:
        """Nothing to let go of."""
