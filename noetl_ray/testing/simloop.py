"""An event loop with virtual time and a seeded scheduler.

On which processes can be killed at any await.

Of all callbacks that are ready the seed picks the next one; when none is, time jumps to the next
timer. A *process* is everything started under one name with :meth:`SimLoop.spawn`: its tasks and
what they start. :meth:`SimLoop.kill` stops a process the way ``kill -9`` does: no ``finally`` runs,
no goodbye is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import random
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

_process: contextvars.ContextVar[str] = contextvars.ContextVar("sim_process", default="")

BURIED_MAX = 50
"""Finished loops kept until one collection serves them all; a collection is slow."""
_buried: list[SimLoop] = []

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class SimStuckError(Exception):
    """Nothing is ready and no timer runs: whatever is awaited will never come."""


@dataclass(slots=True)
class _Doom:
    steps: int
    strike: Callable[[], None]


class SimLoop(asyncio.BaseEventLoop):
    """A deterministic loop: the same seed gives the same run."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.steps = 0
        self.on_step: Callable[[], None] | None = None
        self._now = 0.0
        self._dead: set[str] = set()
        self._frozen: dict[str, list[Any]] = {}
        self._doomed: dict[str, _Doom] = {}
        self._graveyard: list[Any] = []
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def spawn(self, process: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that belongs to a process."""
        context = contextvars.copy_context()
        context.run(_process.set, process)
        task = self.create_task(coroutine, context=context)
        self._graveyard.append(task)
        return task

    def kill(self, process: str) -> None:
        """Nothing of this process runs any more."""
        self._dead.add(process)

    def doom(self, process: str, steps: int, strike: Callable[[], None]) -> None:
        """Call ``strike`` once a process has run so many more steps: a crash at any await."""
        self._doomed[process] = _Doom(steps, strike)

    def freeze(self, process: str) -> None:
        """Stop a process the way a long pause does; it knows nothing of it afterwards."""
        self._frozen.setdefault(process, [])

    def thaw(self, process: str) -> None:
        """Let a frozen process go on where it was."""
        self._ready.extend(self._frozen.pop(process, []))  # type: ignore[attr-defined]

    def is_dead(self, process: str) -> bool:
        """Whether a process was killed."""
        return process in self._dead

    def within(
        self, process: str, function: Callable[..., Awaitable[None] | None]
    ) -> Callable[..., Coroutine[Any, Any, None]]:
        """Make calls of a handler happen in its own process, whoever makes them."""

        async def run(*args: Any) -> None:
            waiting = function(*args)
            if waiting is not None:
                await waiting

        async def call(*args: Any) -> None:
            if process not in self._dead:
                self.spawn(process, run(*args))

        return call

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        scheduled = self._scheduled  # type: ignore[attr-defined]
        if not ready:
            while scheduled and scheduled[0]._cancelled:
                heapq.heappop(scheduled)._scheduled = False
            if not scheduled:
                raise SimStuckError
            self._now = max(self._now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                ready.append(timer)
        if not ready:
            return
        if len(ready) == 1:
            handle = ready.popleft()
        else:
            index = int(self.rng.random() * len(ready))
            handle = ready[index]
            del ready[index]
        if handle._cancelled:
            return
        process = handle._context.get(_process, "")
        if process in self._dead:
            # Kept, not dropped: a collected coroutine would run its `finally` blocks.
            self._graveyard.append(handle)
            return
        if process in self._frozen:
            self._frozen[process].append(handle)
            return
        self.steps += 1
        handle._run()
        if process in self._doomed:
            self._draw_near(process)
        if self.on_step is not None:
            self.on_step()

    def _draw_near(self, process: str) -> None:
        doom = self._doomed[process]
        doom.steps -= 1
        if doom.steps <= 0:
            del self._doomed[process]
            doom.strike()

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _process_events(self, event_list: Any) -> None:
        """There is no selector to hear from."""


class SimClock:
    """The clock port on a simulated loop; ``skew_ms`` makes one process's wall clock wrong."""

    def __init__(self, loop: SimLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        """Virtual wall time."""
        return START_MS + int(self._loop.time() * 1000) + self._skew_ms

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)


def run_simulated(seed: int, main: Callable[[SimLoop], Coroutine[Any, Any, Any]]) -> Any:
    """Run one coroutine to its end on a fresh simulated loop."""
    loop = SimLoop(seed)
    previous = asyncio.get_event_loop_policy()
    collecting = gc.isenabled()
    # What is thrown away in between would run at moments no seed decides.
    gc.disable()
    try:
        asyncio.set_event_loop(loop)
        task = loop.spawn("", main(loop))
        return loop.run_until_complete(task)
    finally:
        _bury(loop)
        asyncio.set_event_loop(None)
        asyncio.set_event_loop_policy(previous)
        if collecting:
            gc.enable()


def _bury(loop: SimLoop) -> None:
    """Drop what was killed or left over; what its `finally` blocks do now is nobody's business."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            _close_all(loop)
    finally:
        sys.unraisablehook = hook


def _close_all(loop: SimLoop) -> None:
    loop.close()
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine = task.get_coro()
        if isinstance(coroutine, Coroutine):
            with contextlib.suppress(BaseException):
                coroutine.close()
    _buried.append(loop)
    if len(_buried) >= BURIED_MAX:
        for old in _buried:
            old._graveyard.clear()
        _buried.clear()
        gc.collect()
