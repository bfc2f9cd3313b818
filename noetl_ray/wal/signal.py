"""A wake-up for one waiter: what a subscription sleeps on until a record comes or time is up.

Owns nothing but that. It costs one future and one timer per wait, no task, and takes time from
the running event loop, so it works under virtual time as well. Refuses a second waiter.
"""

from __future__ import annotations

import asyncio

from noetl_ray.errors import InternalError


class Signal:
    """One waiter, any number of notifiers."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake the waiter, if there is one."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, timeout_s: float) -> None:
        """Sleep until notified or until the time is up; says not which."""
        if self._waiter is not None:
            msg = "two tasks wait on one subscription"
            raise InternalError(msg)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiter = waiter
        timer = loop.call_later(max(0.0, timeout_s), self.notify)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
