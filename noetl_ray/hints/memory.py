"""Hints within one process.

Owns a table of listeners. Handlers run as tasks of the running loop, never inside ``send``, so a
sender cannot be entered again by what it sends. Refuses nothing a network would not: with a fault
hook, hints are lost, late or doubled as the hook says.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from noetl_ray.wal.matching import is_exact, matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from noetl_ray.hints.port import Handler

_log = logging.getLogger(__name__)


class HintFaults(Protocol):
    """Where a simulator makes hints misbehave."""

    def deliveries(self, subject: str, data: bytes) -> Sequence[float]:
        """Delays in seconds, one per delivery: () loses the hint, (0, 0) doubles it."""
        ...


class HandlerTasks:
    """Runs handlers as tasks, keeps hold of them, and logs what they raise."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[None]] = set()
        self._closed = False

    def run(self, handler: Handler, subject: str, data: bytes, delay_s: float = 0.0) -> None:
        """Start a handler; a failing one harms nobody else."""
        loop = asyncio.get_running_loop()
        if delay_s > 0:
            loop.call_later(delay_s, self._call, handler, subject, data)
        else:
            loop.call_soon(self._call, handler, subject, data)

    def _call(self, handler: Handler, subject: str, data: bytes) -> None:
        if self._closed:
            return
        try:
            waiting = handler(subject, data)
        except Exception:
            _log.exception("the handler of hint %s failed", subject)
            return
        if waiting is not None:
            task = asyncio.ensure_future(waiting)
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, subject))

    def _ended(self, subject: str, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("the handler of hint %s failed", subject, exc_info=task.exception())

    async def close(self) -> None:
        """End what still runs, and what was to run later."""
        self._closed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class MemoryHints:
    """The hint port within one process; share one object among the roles that talk."""

    def __init__(self, faults: HintFaults | None = None) -> None:
        self._faults = faults
        self._exact: dict[str, list[Handler]] = {}
        self._wild: list[tuple[str, Handler]] = []
        self._tasks = HandlerTasks()

    async def send(self, subject: str, data: bytes) -> None:
        """Send; returns at once, promises nothing."""
        delays: Sequence[float] = (0.0,)
        if self._faults is not None:
            delays = self._faults.deliveries(subject, data)
        handlers = list(self._exact.get(subject, ()))
        handlers += [handler for pattern, handler in self._wild if matches(pattern, subject)]
        for handler in handlers:
            for delay_s in delays:
                self._tasks.run(handler, subject, data, delay_s)

    async def listen(self, subject: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        """Call ``handler(subject, data)`` for each hint; returns a stopper."""
        if is_exact(subject):
            self._exact.setdefault(subject, []).append(handler)
        else:
            self._wild.append((subject, handler))

        async def stop() -> None:
            if handler in self._exact.get(subject, ()):
                self._exact[subject].remove(handler)
            elif (subject, handler) in self._wild:
                self._wild.remove((subject, handler))

        return stop

    async def close(self) -> None:
        """Forget all listeners and end their running handlers."""
        self._exact.clear()
        self._wild.clear()
        await self._tasks.close()
