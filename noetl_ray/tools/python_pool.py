"""A bounded pool of warm processes for user Python. It owns starting, talking to and killing them.

Each process leads its own session, so killing its group takes along what user code started. A
process is used by one call at a time; one that ended, was killed, or was left dirty is replaced.
What a call means (names, results, errors) is not known here: bytes go in, bytes come out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

CHILD_SCRIPT = Path(__file__).with_name("python_child.py")
REPLY_BYTES_MAX = 1 << 30
LINE_BYTES_MAX = 1 << 16
_READ_BYTES = 1 << 16
_DRAIN_READS_MAX = 64
_EXIT_WAIT_S = 2.0
_REAP_TRIES_MAX = 100
_STARTS_MAX = 3
_HEADER = struct.Struct(">Q")

Log = Callable[[str, str], None]


class ProcessEndedError(Exception):
    """The process went away during a call; ``code`` is negative when a signal ended it.

    ``started`` tells whether user code had begun: if not, the call may be made again.
    """

    def __init__(self, code: int | None, started: bool) -> None:
        super().__init__(code, started)
        self.code = code
        self.started = started


class ReplyTooLargeError(Exception):
    """A reply announces more bytes than we are willing to hold."""


class _Lines:
    """Turns the bytes of one descriptor into lines for whoever listens now."""

    def __init__(self, stream: str, descriptor: int, child: PythonProcess) -> None:
        self.stream = stream
        self.descriptor = descriptor
        self._child = child
        self._rest = b""

    def read(self) -> bool:
        """Take what is there; False when nothing is (or nothing will ever be)."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._child.loop.remove_reader(self.descriptor)
            return False
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._emit(line)
        while len(rest) > LINE_BYTES_MAX:
            self._emit(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._rest = rest
        return True

    def flush(self) -> None:
        """Give everything written so far, a last line without its end included."""
        for _ in range(_DRAIN_READS_MAX):
            if not self.read():
                break
        if self._rest:
            rest, self._rest = self._rest, b""
            self._emit(rest)

    def _emit(self, line: bytes) -> None:
        log = self._child.log
        if log is not None:
            log(self.stream, line.rstrip(b"\r").decode("utf-8", "replace"))


class PythonProcess:
    """One warm process and the descriptors to it. Must be made on the running loop's thread."""

    def __init__(self, env: Mapping[str, str], loop: asyncio.AbstractEventLoop) -> None:
        """Start it; it is not awaited, the first request waits in the socket until it is up."""
        self.loop = loop
        self.log: Log | None = None
        self.calls = 0
        self._closed = False
        self._gone = asyncio.Event()
        ours, theirs = socket.socketpair()
        their_lifeline, self._lifeline = os.pipe()
        inherited = (theirs.fileno(), their_lifeline)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(CHILD_SCRIPT), *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                pass_fds=inherited,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(their_lifeline)
        ours.setblocking(False)
        self._socket = ours
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._lines = (
            _Lines("stdout", self._process.stdout.fileno(), self),
            _Lines("stderr", self._process.stderr.fileno(), self),
        )
        for lines in self._lines:
            os.set_blocking(lines.descriptor, False)
            loop.add_reader(lines.descriptor, lines.read)

    @property
    def pid(self) -> int:
        """The process id, which is also its group and session."""
        return self._process.pid

    def is_usable(self) -> bool:
        """False when it has ended, or has something to say that nobody asked for."""
        if self._closed:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def call(self, request: bytes, log: Log) -> bytearray:
        """Send a request, pass on what it prints, return the reply. Raises ProcessEndedError."""
        self.calls += 1
        for lines in self._lines:
            lines.flush()  # what a task before left in the pipe is not this one's
        self.log = log
        started = False
        try:
            await self.loop.sock_sendall(self._socket, _HEADER.pack(len(request)))
            await self.loop.sock_sendall(self._socket, request)
            await self._read(1)
            started = True
            (size,) = _HEADER.unpack(await self._read(_HEADER.size))
            if size > REPLY_BYTES_MAX:
                msg = f"the reply has {size} bytes, more than {REPLY_BYTES_MAX}"
                raise ReplyTooLargeError(msg)
            return await self._read(size)
        except (ConnectionError, EOFError):
            raise ProcessEndedError(await self._exit_code(), started) from None
        finally:
            for lines in self._lines:
                lines.flush()
            self.log = None

    async def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while len(view):
            count = await self.loop.sock_recv_into(self._socket, view)
            if count == 0:
                raise EOFError
            view = view[count:]
        return data

    async def _exit_code(self) -> int | None:
        """Wait a moment for its end, without reaping: the group's name must stay valid for kill."""
        deadline = self.loop.time() + _EXIT_WAIT_S
        while self.loop.time() < deadline:
            seen = self._seen_exit()
            if seen is not None:
                return seen
            await asyncio.sleep(0.002)
        return None

    def _seen_exit(self) -> int | None:
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status

    def end(self) -> None:
        """End the whole group now; a running call sees ProcessEndedError."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the group and let go of the descriptors, when no call runs; safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self.end()
        for lines in self._lines:
            self.loop.remove_reader(lines.descriptor)
        self._socket.close()
        os.close(self._lifeline)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()
        self._reap(0)

    def _reap(self, tries: int) -> None:
        # A killed process is gone within milliseconds; one stuck in the kernel is left to it.
        if self._process.poll() is not None or tries >= _REAP_TRIES_MAX:
            self._gone.set()
        else:
            self.loop.call_later(0.002 * (1 + tries), self._reap, tries + 1)

    @property
    def is_gone(self) -> bool:
        """Whether a killed process has been reaped."""
        return self._gone.is_set()

    async def gone(self) -> None:
        """Wait until the system has let go of a killed process."""
        await self._gone.wait()


class PythonPool:
    """At most ``size`` calls at once; callers beyond that wait in the order they came."""

    def __init__(self, *, size: int, env: Mapping[str, str], calls_max: int = 2_000) -> None:
        """Make an empty pool.

        Args:
            size: Processes at most, at least 1.
            env: The whole environment of the processes.
            calls_max: Calls after which a process is replaced, so that leaks of user code end.
        """
        if size < 1:
            msg = f"a pool of {size} Python processes cannot run anything"
            raise ValueError(msg)
        self._env = dict(env)
        self._calls_max = calls_max
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
        loop = asyncio.get_running_loop()
        while self.processes < self._size:
            self._idle.append(PythonProcess(self._env, loop))

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
            async with asyncio.timeout(_EXIT_WAIT_S):
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
        return PythonProcess(self._env, asyncio.get_running_loop())

    def _give_back(self, process: PythonProcess, reusable: bool) -> None:
        if reusable:
            self._idle.append(process)
            return
        self._discard(process)
        if not self._closed:
            # The replacement boots while nobody waits for it.
            with contextlib.suppress(OSError):
                self._idle.append(PythonProcess(self._env, asyncio.get_running_loop()))

    def _discard(self, process: PythonProcess) -> None:
        self._dying = {other for other in self._dying if not other.is_gone}
        self._dying.add(process)
        process.kill()
