"""One NATS connection made right: it reconnects for ever, tells of it, and is cheap to use.

Owns every use of the driver's internals, so that a new driver version is proved in one place.
What it adds to the driver: messages of chosen subscriptions go straight to a plain function (no
queue, task or header parsing per message), frames made by us go out with the next turn of the
loop in one write, and an error line from the server leads to a reconnect instead of a connection
closed for good. Refuses to hide an address that cannot be reached: the first connect fails in
bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from nats import errors as nats_errors
from nats.aio.client import Client, Srv

from noetl_ray.errors import LogUnavailableError
from noetl_ray.wal.frames import FrameParser
from noetl_ray.wal.jetstream_errors import from_nats

CONNECT_TIMEOUT_S = 5.0
RECONNECT_WAIT_S = 0.1
PENDING_BYTES_MAX = 64 * 1024 * 1024
PING_INTERVAL_S = 10

Sink = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Takes subject, reply, data and raw headers of a message; must not block."""

_log = logging.getLogger(__name__)


class _RefusedError(Exception):
    """The server does not let us in."""


class Connection(Client):
    """The driver's client with a fast lane; made by :func:`connect`."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = FrameParser(self)
        self._sinks: dict[int, Sink] = {}
        self._up = asyncio.Event()
        self._down_listeners: list[Callable[[], None]] = []
        self._up_listeners: list[Callable[[], None]] = []
        self._write_due = False
        self._ended = False
        self._loop = asyncio.get_running_loop()

    def on_down(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function when the connection is lost; returns a stopper."""
        return _register(self._down_listeners, listener)

    def on_up(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function when the connection is back; returns a stopper."""
        return _register(self._up_listeners, listener)

    async def wait_up(self, timeout_s: float) -> bool:
        """Wait for a connection; False when there is none in time."""
        if self.is_connected:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._up.wait()
        return self.is_connected

    async def close(self) -> None:
        """Close for good; safe to call twice."""
        self._ended = True
        await super().close()

    async def attach(self, subject: str, sink: Sink) -> int:
        """Subscribe; each message is handed to ``sink`` as it is read. Survives reconnects."""
        subscription = await self.subscribe(subject)
        number: int = subscription._id
        self._sinks[number] = sink
        return number

    def detach(self, number: int) -> None:
        """End a subscription made by :meth:`attach`; safe to call twice."""
        if self._sinks.pop(number, None) is None:
            return
        self._remove_sub(number)
        if self.is_connected:
            self.send_frame(b"UNSUB %d\r\n" % number)

    def send_frame(self, frame: bytes) -> None:
        """Send one complete protocol frame with the next turn of the loop.

        The driver's publish validates, formats headers one by one and wakes a task that writes.
        Here all frames of one turn leave in one write, without a task. The frame joins the driver's
        own buffer, so the order with its commands is kept; while the connection is down it stays
        there.
        """
        self._pending.append(frame)
        self._pending_data_size += len(frame)
        if not self._write_due:
            self._write_due = True
            self._loop.call_soon(self._write_pending)

    def _write_pending(self) -> None:
        self._write_due = False
        transport = self._transport
        if transport is None or not self._pending or not self.is_connected:
            return
        frames = self._pending
        self._pending = []
        self._pending_data_size = 0
        transport.writelines(frames)

    def deliver(
        self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> bool:
        """Hand a message to the sink of its subscription; False when it has none."""
        sink = self._sinks.get(number)
        if sink is None:
            return False
        try:
            sink(subject, reply, data, headers)
        except Exception:
            # The driver's read loop ends for good on any error, so none may leave here.
            _log.exception("a message on %s could not be handled", subject.decode())
        return True

    async def _connect_to_server(self, s: Srv) -> None:
        # The driver forgets the socket of an attempt that failed half-way.
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        if not self._ended:
            await super()._connect_to_server(s)
        if self._ended:
            # close() cancels the reconnecting task, but wait_for of Python 3.11 may swallow that,
            # and the driver would go on for ever.
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]
            raise asyncio.CancelledError

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        # The driver's ping overtakes commands that wait to be written, and so flush() may return
        # before the server has seen a subscription.
        self._write_pending()
        await super()._send_ping(future)

    async def _process_err(self, err_msg: str) -> None:
        # The driver closes for good on most error lines ("Slow Consumer" among them). The server
        # ends such connections itself; a new one is what we want.
        _log.warning("NATS says: %s", err_msg)
        if "permissions violation" in err_msg.lower():
            return
        await self._process_op_err(nats_errors.Error(err_msg))

    async def _went_down(self) -> None:
        self._up.clear()
        if not self.is_closed:
            _log.warning("NATS connection lost; reconnecting")
        for listener in tuple(self._down_listeners):
            listener()

    async def _came_up(self) -> None:
        self._up.set()
        _log.info("NATS connection is back")
        for listener in tuple(self._up_listeners):
            listener()


async def connect(
    url: str, token: str | None = None, *, name: str = "noetl", timeout_s: float = CONNECT_TIMEOUT_S
) -> Connection:
    """Connect, and stay connected for ever after.

    Args:
        url: One ``nats://host:port``, or several with commas.
        token: What the server asks for, if it does.
        name: How the connection shows up in the server's monitoring.
        timeout_s: Bound on the first connect.

    Raises:
        LogUnavailableError: nobody answered at the address, or the token was refused.
    """
    client = Connection()
    seen: list[Exception] = []
    starting = True
    shown = ", ".join(_without_secret(part) for part in url.split(","))

    async def on_error(error: Exception) -> None:
        del seen[:-9]
        seen.append(error)
        level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
        _log.log(level, "NATS at %s: %s", shown, error)
        if starting and _is_refusal(error):
            raise _RefusedError  # leaves the driver's first connect, which would try for ever

    try:
        async with asyncio.timeout(timeout_s):
            await client.connect(
                servers=[part.strip() for part in url.split(",")],
                token=token or None,
                name=name,
                error_cb=on_error,
                disconnected_cb=client._went_down,
                reconnected_cb=client._came_up,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]
                connect_timeout=2,
                ping_interval=PING_INTERVAL_S,
                max_outstanding_pings=2,
                pending_size=PENDING_BYTES_MAX,
                flush_timeout=timeout_s,
            )
    except (TimeoutError, OSError, nats_errors.Error, _RefusedError) as error:
        starting = False
        # A refusal may be followed by the reset that ends the connection.
        refusals = [one for one in seen if _is_refusal(one)]
        cause = (refusals or seen or [error])[-1]
        with contextlib.suppress(Exception):
            await client.close()
        raise _unreachable(shown, cause, timeout_s) from None
    starting = False
    client._up.set()
    return client


def _unreachable(shown: str, cause: Exception, timeout_s: float) -> LogUnavailableError:
    if _is_refusal(cause):
        msg = f"NATS at {shown} refused the token; check event_store.token"
    else:
        reason = from_nats(cause).message if isinstance(cause, nats_errors.Error) else str(cause)
        msg = (
            f"NATS at {shown} cannot be reached within {timeout_s:g} s ({reason or 'no answer'}); "
            "check event_store.url, that the server runs, and that nothing blocks the port"
        )
    return LogUnavailableError(msg)


def _is_refusal(error: Exception) -> bool:
    return "authorization" in str(error).lower()


def _without_secret(url: str) -> str:
    parts = urlsplit(url.strip())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme else url.strip()


def _register(
    listeners: list[Callable[[], None]], listener: Callable[[], None]
) -> Callable[[], None]:
    listeners.append(listener)

    def stop() -> None:
        with contextlib.suppress(ValueError):
            listeners.remove(listener)

    return stop
