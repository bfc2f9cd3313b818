"""Requests to the server over one inbox: the hot path of every append.

Owns the reply inbox, the table of open requests and their deadlines. An answer resolves a plain
future; deadlines are swept by one timer instead of one timer per request; a lost connection
answers all open requests at once. Refuses to raise for a missing answer: None says that none
came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl_ray.wal.connection import Connection

SWEEP_S = 0.1

Reply = tuple[bytes | None, bytes]
"""Raw headers and data of an answer."""


class Mux:
    """Open requests of one user of a connection."""

    def __init__(self, connection: Connection, *, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[asyncio.Future[Reply | None], float]] = {}
        self._counter = 0
        self._prefix = b""
        self._subscription = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._stop_listening = connection.on_down(self._fail_all)

    @classmethod
    async def open(cls, connection: Connection, *, timeout_s: float) -> Mux:
        """Subscribe the inbox."""
        mux = cls(connection, timeout_s=timeout_s)
        inbox = connection.new_inbox()
        mux._prefix = inbox.encode() + b"."
        mux._subscription = await connection.attach(f"{inbox}.*", mux._on_reply)
        return mux

    @property
    def connection(self) -> Connection:
        """The connection requests go over."""
        return self._connection

    def request(self, subject: bytes, headers: bytes, data: bytes) -> asyncio.Future[Reply | None]:
        """Send and return the future of the answer; its result is None when none came.

        Args:
            subject: Where to; must be free of blanks.
            headers: A whole header block from ``NATS/1.0`` to the empty line, or nothing.
            data: The body.
        """
        future: asyncio.Future[Reply | None] = self._loop.create_future()
        if not self._connection.is_connected:
            future.set_result(None)
            return future
        self._counter = number = self._counter + 1
        self._open[number] = (future, self._loop.time() + self._timeout_s)
        if headers:
            frame = b"HPUB %b %b%d %d %d\r\n%b%b\r\n" % (
                subject,
                self._prefix,
                number,
                len(headers),
                len(headers) + len(data),
                headers,
                data,
            )
        else:
            frame = b"PUB %b %b%d %d\r\n%b\r\n" % (subject, self._prefix, number, len(data), data)
        self._connection.send_frame(frame)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        return future

    def close(self) -> None:
        """Answer everything open with None and let the inbox go."""
        self._stop_listening()
        self._connection.detach(self._subscription)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._fail_all()

    def _on_reply(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        entry = self._open.pop(int(subject[len(self._prefix) :]), None)
        if entry is not None and not entry[0].done():
            entry[0].set_result((headers, data))

    def _sweep(self) -> None:
        # All requests have the same timeout, so the oldest is always first.
        now = self._loop.time()
        late = []
        for number, (_, deadline) in self._open.items():
            if deadline > now:
                break
            late.append(number)
        for number in late:
            future, _ = self._open.pop(number)
            if not future.done():
                future.set_result(None)
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep) if self._open else None

    def _fail_all(self) -> None:
        entries = list(self._open.values())
        self._open.clear()
        for future, _ in entries:
            if not future.done():
                future.set_result(None)
