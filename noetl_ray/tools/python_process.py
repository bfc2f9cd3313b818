"""One process for user Python, seen from outside. It owns starting, talking to and killing it.

The process leads its own session, so killing its group takes along what user code started. It is
used by one call at a time. What a call means is not known here: bytes go in, bytes come out.
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

from noetl_ray.tools.python_memory import used_bytes

CHILD_SCRIPT = Path(__file__).with_name("python_child.py")
REPLY_BYTES_MAX = 1 << 30
LINE_BYTES_MAX = 1 << 16
_READ_BYTES = 1 << 16
_DRAIN_READS_MAX = 64
EXIT_WAIT_S = 2.0
_REAP_TRIES_MAX = 100
_MEMORY_LOOK_S = 0.1
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


class MemoryExceededError(Exception):
    """User code used more memory than it may; its process group was killed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.limit_bytes = limit_bytes


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

    def __init__(
        self,
        env: Mapping[str, str],
        loop: asyncio.AbstractEventLoop,
        *,
        memory_bytes: int = 0,
        cwd: str | None = None,
        guarded: bool = False,
    ) -> None:
        """Start it; it is not awaited, the first request waits in the socket until it is up."""
        self.loop = loop
        self._memory_bytes = memory_bytes
        self._exceeded = False
        self.log: Log | None = None
        self.calls = 0
        self._closed = False
        self._gone = asyncio.Event()
        ours, theirs = socket.socketpair()
        their_lifeline, self._lifeline = os.pipe()
        inherited = (theirs.fileno(), their_lifeline)
        how = ["guarded" if guarded else "plain", *([] if cwd is None else [cwd])]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(CHILD_SCRIPT), *map(str, inherited), *how],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=cwd,
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
        """Send a request, pass on what it prints, return the reply.

        Raises:
            ProcessEndedError: It went away by itself.
            MemoryExceededError: It was killed because it used too much.
        """
        self.calls += 1
        for lines in self._lines:
            lines.flush()  # what a task before left in the pipe is not this one's
        self.log = log
        started = False
        self._watch = self.loop.call_later(_MEMORY_LOOK_S, self._look_at_memory)
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
            if self._exceeded:
                raise MemoryExceededError(self._memory_bytes) from None
            raise ProcessEndedError(await self._exit_code(), started) from None
        finally:
            self._watch.cancel()
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

    def _look_at_memory(self) -> None:
        """A short call never pays for this; a long one is looked at ten times a second."""
        if not self._memory_bytes:
            return
        if used_bytes(self.pid) > self._memory_bytes:
            self._exceeded = True
            self.end()
            return
        self._watch = self.loop.call_later(_MEMORY_LOOK_S, self._look_at_memory)

    async def _exit_code(self) -> int | None:
        """Wait a moment for its end, without reaping: the group's name must stay valid for kill."""
        deadline = self.loop.time() + EXIT_WAIT_S
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
