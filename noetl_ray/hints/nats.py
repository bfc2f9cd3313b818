"""Hints over core NATS, with a short cut for listeners of the same object.

Owns the listeners of one connection. A subject below an *exclusive* prefix has one listener by
design (a worker's offers): when that listener is here, the hint goes to it directly and not to
the server at all, so it costs microseconds and arrives once. Everything else goes through the
server, which serves listeners here and elsewhere alike. Refuses to buffer: while the server is
away hints are dropped.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from nats import errors as nats_errors

from noetl_ray.errors import UsageError
from noetl_ray.hints.memory import HandlerTasks
from noetl_ray.wal.jetstream_errors import from_nats
from noetl_ray.wal.matching import is_exact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl_ray.hints.port import Handler
    from noetl_ray.wal.connection import Connection

EXCLUSIVE_PREFIXES = ("noetl.commands.",)

_SENDABLE = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")
_log = logging.getLogger(__name__)


class NatsHints:
    """The hint port over one connection, which stays the caller's."""

    def __init__(
        self, connection: Connection, *, exclusive: tuple[str, ...] = EXCLUSIVE_PREFIXES
    ) -> None:
        self._connection = connection
        self._exclusive = exclusive
        self._local: dict[str, list[Handler]] = {}
        self._subscriptions: set[int] = set()
        self._tasks = HandlerTasks()

    async def send(self, subject: str, data: bytes) -> None:
        """Send; returns at once, promises nothing.

        Raises:
            UsageError: the subject has blanks, wildcards or empty tokens, or the data is too large.
        """
        local = self._local.get(subject)
        if local:
            for handler in local:
                self._tasks.run(handler, subject, data)
            return
        if _SENDABLE.fullmatch(subject) is None:
            msg = f"{subject!r} is no subject for a hint"
            raise UsageError(msg)
        connection = self._connection
        if not connection.is_connected:
            _log.debug("hint %s dropped: NATS is away", subject)
            return
        if len(data) > connection.max_payload:
            msg = f"a hint of {len(data)} bytes is over the server's {connection.max_payload}"
            raise UsageError(msg)
        connection.send_frame(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data))

    async def listen(self, subject: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        """Call ``handler(subject, data)`` for each hint; returns a stopper."""

        def sink(name: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            self._tasks.run(handler, name.decode(), data)

        try:
            number = await self._connection.attach(subject, sink)
            if self._connection.is_connected:
                # One round trip, so that a hint sent after this finds the listener.
                await self._connection.flush()
        except nats_errors.TimeoutError:
            _log.warning("NATS is slow to confirm the listener of %s", subject)
        except nats_errors.Error as error:
            raise from_nats(error) from None
        self._subscriptions.add(number)
        shortcut = is_exact(subject) and subject.startswith(self._exclusive)
        if shortcut:
            self._local.setdefault(subject, []).append(handler)

        async def stop() -> None:
            if number not in self._subscriptions:
                return
            self._subscriptions.discard(number)
            self._connection.detach(number)
            if shortcut:
                self._local[subject].remove(handler)
                if not self._local[subject]:
                    del self._local[subject]

        return stop

    async def close(self) -> None:
        """Forget all listeners and end their running handlers."""
        for number in self._subscriptions:
            self._connection.detach(number)
        self._subscriptions.clear()
        self._local.clear()
        await self._tasks.close()
