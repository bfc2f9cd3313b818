"""A bounded pool of warm processes for user Python. It owns how many there are and which are kept.

A process is used by one call at a time; one that ended, was killed, or was left dirty is replaced.
What a call means (names, results, errors) is not known here: bytes go in, bytes come out.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from noetl_ray.tools.python_process import EXIT_WAIT_S, Log, ProcessEndedError, PythonProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_STARTS_MAX = 3


class PythonPool:
    """At most ``size`` calls at once; callers beyond that wait in the order they came."""

    def __init__(
        self,
        *,
        size: int,
        env: Mapping[str, str],
        calls_max: int = 2_000,
        memory_bytes: int = 0,
        cwd: str | None = None,
        guarded: bool = False,
    ) -> None:
        """Make an empty pool.

        Args:
            size: Processes at most, at least 1.
            env: The whole environment of the processes.
            calls_max: Calls after which a process is replaced, so that leaks of user code end.
            memory_bytes: What a call may use, with all it starts; 0 sets no limit.
            cwd: Where the processes are at home, and import from; None leaves them where we are.
            guarded: Whether a process must not be our direct child, because whoever ends us may
                kill those alone and leave what user code started.
        """
        if size < 1:
            msg = f"a pool of {size} Python processes cannot run anything"
            raise ValueError(msg)
        self._env = dict(env)
        self._calls_max = calls_max
        self._memory_bytes = memory_bytes
        self._cwd = cwd
        self._guarded = guarded
        self._size = size
        self._slots = asyncio.Semaphore(size)
        self._idle: list[PythonProcess] = []
        self._busy: set[PythonProcess] = set()
        self._dying: set[PythonProcess] = set()
        self._quiet = asyncio.Event()
        self._closed = False

    @property
    def processes(self) -> int:
        """How many processes live now."""
        return len(self._idle) + len(self._busy)

    def warm(self) -> None:
        """Start processes up to the size, without waiting for them."""
        while self.processes < self._size:
            self._idle.append(self._new())

    async def call(
        self,
        request: bytes,
        log: Log,
        timeout_s: float | None,
        keep: Callable[[bytearray], bool],
    ) -> bytearray:
        """Run one request.

        Args:
            request: What the process gets.
            log: Called with stream and line while it runs.
            timeout_s: From the start of the call in its process, waiting in line not counted.
            keep: Given the reply, says whether the process may serve again.

        Raises:
            TimeoutError: The time was over; the process group was killed.
            ProcessEndedError: The process went away by itself.
            MemoryExceededError: It used more than it may; the process group was killed.
        """
        async with self._slots:
            for _ in range(_STARTS_MAX - 1):
                try:
                    return await self._call_once(request, log, timeout_s, keep)
                except ProcessEndedError as end:
                    # One that died while idle is nobody's fault: ask another.
                    if end.started or self._closed:
                        raise
            return await self._call_once(request, log, timeout_s, keep)

    async def _call_once(
        self,
        request: bytes,
        log: Log,
        timeout_s: float | None,
        keep: Callable[[bytearray], bool],
    ) -> bytearray:
        process = self._take()
        self._busy.add(process)
        reusable = False
        try:
            async with asyncio.timeout(timeout_s):
                reply = await process.call(request, log)
            reusable = keep(reply) and process.calls < self._calls_max and not self._closed
            return reply
        finally:
            self._busy.discard(process)
            if self._closed and not self._busy:
                self._quiet.set()
            self._give_back(process, reusable)

    async def close(self) -> None:
        """Kill every process; running calls see ProcessEndedError."""
        self._closed = True
        while self._idle:
            self._discard(self._idle.pop())
        for process in self._busy:
            process.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_WAIT_S):
                if self._busy:
                    await self._quiet.wait()
                for process in list(self._dying):
                    await process.gone()

    def _take(self) -> PythonProcess:
        if self._closed:
            raise ProcessEndedError(None, False)
        while self._idle:
            process = self._idle.pop()
            if process.is_usable():
                return process
            self._discard(process)
        return self._new()

    def _new(self) -> PythonProcess:
        loop = asyncio.get_running_loop()
        return PythonProcess(
            self._env,
            loop,
            memory_bytes=self._memory_bytes,
            cwd=self._cwd,
            guarded=self._guarded,
        )

    def _give_back(self, process: PythonProcess, reusable: bool) -> None:
        if reusable:
            self._idle.append(process)
            return
        self._discard(process)
        if not self._closed:
            # The replacement boots while nobody waits for it.
            with contextlib.suppress(OSError):
                self._idle.append(self._new())

    def _discard(self, process: PythonProcess) -> None:
        self._dying = {other for other in self._dying if not other.is_gone}
        self._dying.add(process)
        process.kill()
