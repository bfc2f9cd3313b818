"""The task log on a JetStream stream of its own, bounded by age and size.

Owns that stream and one delivery from it. Writing waits for no ack: a printed line is worth no
round trip. Refuses to fail a task because its chatter could not be kept.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from noetl_ray.errors import LogUnavailableError
from noetl_ray.wal.jetstream_api import StreamApi
from noetl_ray.wal.jetstream_consumer import OrderedConsumer
from noetl_ray.wal.jetstream_mux import Mux
from noetl_ray.wal.jetstream_stream import LOGS_ROOT, ensure_stream, logs_config
from noetl_ray.wal.tasklog import LogLine, PositionedLines
from noetl_ray.wal.tasklog_batches import decode_batch, encode_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.wal.connection import Connection

API_TIMEOUT_S = 5.0
UNSENT_BYTES_MAX = 8 * 1024 * 1024
"""Above this much unsent output, lines are dropped rather than kept in memory."""

_log = logging.getLogger(__name__)


class JetStreamTaskLog:
    """The task-log port over one stream; made by :meth:`open`."""

    def __init__(self, connection: Connection, mux: Mux, api: StreamApi) -> None:
        self._connection = connection
        self._mux = mux
        self._api = api
        self._consumer: OrderedConsumer | None = None
        self._position = -1
        self._dropped = 0

    @classmethod
    async def open(cls, connection: Connection, *, stream: str = "noetl_logs") -> JetStreamTaskLog:
        """Make the stream if there is none; the connection stays the caller's."""
        mux = await Mux.open(connection, timeout_s=API_TIMEOUT_S)
        api = StreamApi(mux, stream)
        await ensure_stream(api, logs_config(stream))
        return cls(connection, mux, api)

    async def write(self, shard: int, lines: Sequence[LogLine]) -> None:
        """Hand lines over; dropped, and counted in a warning, while the server is away."""
        connection = self._connection
        if not connection.is_connected or connection.pending_data_size > UNSENT_BYTES_MAX:
            if not self._dropped:
                _log.warning("NATS is away: printed lines are being dropped")
            self._dropped += len(lines)
            return
        if self._dropped:
            _log.warning("NATS is back: %d printed lines were dropped", self._dropped)
            self._dropped = 0
        subject = f"{LOGS_ROOT}.{shard}".encode()
        for data in encode_batches(lines):
            connection.send_frame(b"PUB %b %d\r\n%b\r\n" % (subject, len(data), data))

    async def read_after(
        self, position: int, *, max_batches: int, timeout_s: float
    ) -> list[PositionedLines]:
        """Batches after a position in order; empty when none came in time."""
        try:
            async with asyncio.timeout(timeout_s + API_TIMEOUT_S):
                consumer = await self._consumer_at(position)
                messages = await consumer.next_batch(max_batches, timeout_s)
        except (LogUnavailableError, TimeoutError) as error:
            _log.warning("printed lines cannot be read now: %s", error)
            await asyncio.sleep(min(timeout_s, 0.1))
            return []
        if messages:
            self._position = messages[-1].position
        return [
            PositionedLines(position=message.position, lines=decode_batch(message.data))
            for message in messages
        ]

    async def close(self) -> None:
        """Let go of the delivery and the inbox."""
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None
        self._mux.close()

    async def _consumer_at(self, position: int) -> OrderedConsumer:
        """The running delivery if it stands where the reader is, else a new one."""
        if self._consumer is not None and self._position == position:
            return self._consumer
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None
        self._consumer = await OrderedConsumer.open(
            self._connection, self._api, [f"{LOGS_ROOT}.>"], position + 1
        )
        self._position = position
        return self._consumer
