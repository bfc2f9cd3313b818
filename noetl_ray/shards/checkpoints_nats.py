"""Checkpoints on a JetStream stream of their own, one subject per shard.

Owns that stream. It is derived: deleting it costs one full fold at the next start. Messages of a
shard are dropped when a new base has replaced them.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import LogUnavailableError, VersionConflictError
from noetl_ray.shards.port import Stored
from noetl_ray.wal.jetstream_api import StreamApi
from noetl_ray.wal.jetstream_mux import Mux
from noetl_ray.wal.jetstream_read import read_messages
from noetl_ray.wal.jetstream_stream import REPLICAS, ensure_stream
from noetl_ray.wal.settle import Attempt, Outcome

if TYPE_CHECKING:
    from noetl_ray.config.settings import Durability
    from noetl_ray.wal.connection import Connection

ROOT = "noetl.checkpoints"
STREAM = "noetl_checkpoints"
TIMEOUT_S = 5.0
_SECOND_NS = 1_000_000_000


class NatsCheckpoints:
    """The checkpoint port over one stream; made by :meth:`open`."""

    def __init__(self, connection: Connection, mux: Mux, api: StreamApi) -> None:
        self._connection = connection
        self._mux = mux
        self._api = api

    @classmethod
    async def open(
        cls, connection: Connection, *, durability: Durability = "process", stream: str = STREAM
    ) -> NatsCheckpoints:
        """Make the stream if there is none; the connection stays the caller's."""
        mux = await Mux.open(connection, timeout_s=TIMEOUT_S)
        api = StreamApi(mux, stream, leader_reads=durability == "replicated")
        await ensure_stream(api, _config(stream, durability))
        return cls(connection, mux, api)

    async def read(self, shard: int) -> list[Stored]:
        """All messages of a shard, oldest first."""
        messages = read_messages(self._connection, self._api, _subject(shard))
        return [Stored(message.position, message.data) async for message in messages]

    async def add(self, shard: int, data: bytes, *, expected: int) -> int:
        """Add a message and return its version."""
        published = await self._api.publish(
            Attempt(
                subject=_subject(shard),
                data=data,
                message_id=secrets.randbits(62),
                expected=expected,
            )
        )
        match published.outcome:
            case Outcome.STORED:
                return published.position
            case Outcome.REFUSED:
                raise VersionConflictError(_subject(shard), expected, await self.end(shard))
            case _:
                msg = f"the checkpoint of shard {shard} got no answer"
                raise LogUnavailableError(msg)

    async def end(self, shard: int) -> int:
        """The version of the last message, 0 when there is none."""
        last = await self._api.last(_subject(shard))
        return 0 if last is None else last.position

    async def drop_before(self, shard: int, version: int) -> None:
        """Forget the messages before a version."""
        body = {"filter": _subject(shard), "seq": version}
        await self._api.call(f"STREAM.PURGE.{self._api.stream}", body)

    async def close(self) -> None:
        """Let go of the inbox."""
        self._mux.close()


def _subject(shard: int) -> str:
    return f"{ROOT}.{shard}"


def _config(stream: str, durability: Durability) -> dict[str, Any]:
    return {
        "name": stream,
        "description": "noetl-ray: folded states of shards, derived from the log",
        "subjects": [f"{ROOT}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "allow_direct": True,
        "num_replicas": REPLICAS if durability == "replicated" else 1,
        "duplicate_window": _SECOND_NS,
    }
