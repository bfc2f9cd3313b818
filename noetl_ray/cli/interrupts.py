"""Ctrl-C as a request instead of an exception: counted here, acted on where it is safe.

Owns the signal handler of a command that must not be cut in two: between sending a submit and
knowing its id an exception would leave an execution that nobody cancels.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

T = TypeVar("T")


class Presses:
    """How often Ctrl-C was pressed since the command began."""

    def __init__(self) -> None:
        self.count = 0
        self._woken = asyncio.Event()
        self._borne: asyncio.Task[Any] | None = None

    def press(self) -> None:
        """One more; the second ends what :meth:`bear` waits for."""
        self.count += 1
        self._woken.set()
        if self.count >= 2 and self._borne is not None:
            self._borne.cancel()

    async def bear(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish short work although Ctrl-C was pressed once.

        Raises:
            KeyboardInterrupt: it was pressed twice.
        """
        task = asyncio.ensure_future(work)
        self._borne = task
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._borne = None

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until the next press."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()


@contextlib.contextmanager
def counted() -> Iterator[Presses]:
    """Count Ctrl-C instead of raising, within a running loop."""
    presses = Presses()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, presses.press)
    try:
        yield presses
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """No Ctrl-C in here: stopping half a set would leave processes behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
