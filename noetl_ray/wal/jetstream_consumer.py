"""An ordered delivery from a stream that repairs itself.

Owns one ephemeral push consumer at a time. Every message carries the consumer's own count; a hole
in it, a heartbeat that knows of more, silence, or a new connection lead to a new consumer that
starts after the last message queued here. So what comes out has no gap and no repetition. Flow
control bounds what waits here: the server goes on only after we took what it sent. Refuses a
stream that lost what it delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from noetl_ray.errors import LogError, LogUnavailableError
from noetl_ray.wal.jetstream_api import Message, StreamApi
from noetl_ray.wal.matching import reduce_filters
from noetl_ray.wal.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.wal.connection import Connection

HEARTBEAT_S = 2.0
SILENCE_MAX_S = 3 * HEARTBEAT_S
RETRY_S = 0.05

_log = logging.getLogger(__name__)


class OrderedConsumer:
    """Messages under some filters from a position on, in order."""

    def __init__(
        self,
        connection: Connection,
        api: StreamApi,
        filters: Sequence[str],
        from_position: int,
        *,
        only_last: bool = False,
    ) -> None:
        self._only_last = only_last
        self._connection = connection
        self._api = api
        self._filters = reduce_filters(filters)
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Message | bytes] = deque()
        self._signal = Signal()
        self._next = max(1, from_position)
        self._delivered_any = False
        self._count = 0
        self._heard = self._loop.time()
        self._broken = True
        self._closed = False
        self._name = ""
        self._subscription = 0
        self._stop_listening = connection.on_up(self._break)

    @classmethod
    async def open(
        cls,
        connection: Connection,
        api: StreamApi,
        filters: Sequence[str],
        from_position: int,
        *,
        only_last: bool = False,
    ) -> OrderedConsumer:
        """Create the first consumer; errors of the request itself show up here."""
        consumer = cls(connection, api, filters, from_position, only_last=only_last)
        try:
            await consumer._create()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """At least one message as soon as there is one, more if they are here; or none in time.

        Raises:
            LogError: the delivery was closed before, or the stream lost messages.
        """
        if self._closed:
            msg = "the subscription is closed"
            raise LogError(msg)
        deadline = self._loop.time() + timeout_s
        while True:
            batch = self._take(max_messages)
            if batch:
                return batch
            remaining = deadline - self._loop.time()
            if self._closed or remaining <= 0:
                return []
            if self._broken or self._loop.time() - self._heard > SILENCE_MAX_S:
                await self._repair(remaining)
                continue
            await self._signal.wait(min(remaining, SILENCE_MAX_S / 2))

    async def close(self) -> None:
        """Stop delivery; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._stop_listening()
        self._drop()
        self._queue.clear()
        self._signal.notify()

    def _take(self, max_messages: int) -> list[Message]:
        queue = self._queue
        batch: list[Message] = []
        while queue and len(batch) < max_messages:
            item = queue.popleft()
            if isinstance(item, bytes):
                self._answer(item)
            else:
                batch.append(item)
        while queue and isinstance(queue[0], bytes):
            self._answer(queue.popleft())  # type: ignore[arg-type]
        return batch

    async def _repair(self, remaining_s: float) -> None:
        """Make a new consumer, or use up a little of the time until it may work."""
        if not await self._connection.wait_up(remaining_s):
            return
        try:
            await self._create()
        except LogUnavailableError as error:
            _log.warning("the delivery cannot be resumed yet: %s", error)
            self._broken = True
            await asyncio.sleep(min(RETRY_S, remaining_s))

    async def _create(self) -> None:
        self._drop()
        if self._delivered_any:
            last = int((await self._api.state())["last_seq"])
            if last < self._next - 1:
                msg = (
                    f"stream {self._api.stream} ends at {last} but had delivered {self._next - 1}: "
                    "acknowledged records are lost"
                )
                raise LogError(msg)
        inbox = self._connection.new_inbox()
        self._name = inbox.rpartition(".")[2]
        self._count = 0
        self._broken = False
        self._heard = self._loop.time()
        # Bound to this inbox, so a late message of an earlier consumer finds no one.
        self._subscription = await self._connection.attach(inbox, self._on_message)
        try:
            await self._api.call(
                f"CONSUMER.CREATE.{self._api.stream}.{self._name}",
                {
                    "stream_name": self._api.stream,
                    "action": "create",
                    "config": {
                        "name": self._name,
                        "deliver_subject": inbox,
                        **self._start(),
                        "ack_policy": "none",
                        "max_deliver": -1,
                        "replay_policy": "instant",
                        "filter_subjects": self._filters,
                        "flow_control": True,
                        "idle_heartbeat": int(HEARTBEAT_S * 1e9),
                        "mem_storage": True,
                        "num_replicas": 1,
                    },
                },
            )
        except BaseException:
            self._broken = True
            self._drop()
            raise

    def _start(self) -> dict[str, object]:
        if self._only_last and not self._delivered_any:
            return {"deliver_policy": "last_per_subject"}
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": self._next}

    def _drop(self) -> None:
        """Let go of the current consumer; the server removes it when nobody listens, too."""
        if self._subscription:
            self._connection.detach(self._subscription)
            self._subscription = 0
            if self._connection.is_connected:
                target = f"$JS.API.CONSUMER.DELETE.{self._api.stream}.{self._name}"
                self._connection.send_frame(b"PUB %b 0\r\n\r\n" % target.encode())

    def _break(self) -> None:
        self._broken = True
        self._signal.notify()

    def _on_message(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if self._broken:
            return
        self._heard = self._loop.time()
        if headers is not None and headers.startswith(b"NATS/1.0 "):
            self._on_control(reply, headers)
            return
        # $JS.ACK.[domain.account.]stream.consumer.deliveries.position.count.time.pending[.token]
        parts = reply.split(b".")
        base = 5 if len(parts) == 9 else 7
        position, count = int(parts[base]), int(parts[base + 1])
        if count != self._count + 1:
            _log.info("delivery of %s has a hole before %d", self._api.stream, position)
            self._break()
            return
        self._count = count
        if position < self._next:
            return  # a start beyond the end is moved back by the server
        self._next = position + 1
        self._delivered_any = True
        time_ms = int(parts[base + 2]) // 1_000_000
        self._queue.append(Message(position, subject.decode(), time_ms, data))
        self._signal.notify()

    def _on_control(self, reply: bytes, headers: bytes) -> None:
        if reply:
            # Flow control: answered when everything before it has been taken.
            self._queue.append(reply)
            self._signal.notify()
            return
        known = _number_after(headers, b"Nats-Last-Consumer:")
        if known is not None and known != self._count:
            self._break()
            return
        stalled = headers.partition(b"Nats-Consumer-Stalled:")[2].partition(b"\r\n")[0].strip()
        if stalled and not self._queue:
            self._answer(stalled)

    def _answer(self, reply: bytes) -> None:
        if self._connection.is_connected:
            self._connection.send_frame(b"PUB %b 0\r\n\r\n" % reply)


def _number_after(headers: bytes, name: bytes) -> int | None:
    text = headers.partition(name)[2].partition(b"\r\n")[0].strip()
    with contextlib.suppress(ValueError):
        return int(text)
    return None
