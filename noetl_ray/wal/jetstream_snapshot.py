"""Whole streams to files and back, by the server's own snapshots.

Positions, times and message ids stay what they were, which publishing anew could not do. Owns the
exchange of chunks with the server; what is in a file is the server's own. Refuses to restore over
a stream that exists, and a snapshot that ends early never counts as one.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.errors import ConflictError, LogError, LogUnavailableError, NotFoundError
from noetl_ray.wal.jetstream_api import StreamApi
from noetl_ray.wal.jetstream_mux import Mux

if TYPE_CHECKING:
    from pathlib import Path

    from noetl_ray.wal.connection import Connection

ANSWER_S = 120.0
"""How long the server may be silent: it looks through a whole stream before its first chunk."""
_CHUNK_BYTES = 128 * 1024
_END_OK = b"204"

_Chunk = tuple[bytes, bytes, bytes | None]


class StreamCopy(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a stream in a file."""

    name: str
    file: str
    bytes: int
    sha256: str
    config: dict[str, Any]
    state: dict[str, Any]
    """The server's counters at the moment of the snapshot."""

    @property
    def position(self) -> int:
        """The newest position in it."""
        return int(self.state["last_seq"])


class Snapshots:
    """Snapshots of the streams of one server."""

    def __init__(self, connection: Connection, mux: Mux) -> None:
        self._connection = connection
        self._mux = mux

    @classmethod
    async def open(cls, connection: Connection) -> Snapshots:
        """Bind to a connection, which stays the caller's."""
        return cls(connection, await Mux.open(connection, timeout_s=ANSWER_S))

    def close(self) -> None:
        """Let go of the inbox."""
        self._mux.close()

    async def exists(self, stream: str) -> bool:
        """Whether the server has a stream of this name."""
        try:
            await self._api(stream).call(f"STREAM.INFO.{stream}")
        except NotFoundError:
            return False
        return True

    async def save(self, stream: str, folder: Path) -> StreamCopy:
        """Write a stream into a file of a folder; writers need not stop.

        Raises:
            NotFoundError: there is no such stream.
            LogUnavailableError: the server stopped sending.
            LogError: the server found the stream damaged.
        """
        chunks: asyncio.Queue[_Chunk] = asyncio.Queue()
        inbox = self._connection.new_inbox()

        def take(_subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            chunks.put_nowait((reply, data, headers))

        number = await self._connection.attach(inbox, take)
        try:
            asked = {
                "deliver_subject": inbox,
                "no_consumers": True,
                "chunk_size": _CHUNK_BYTES,
                "jsck": True,
            }
            answer = await self._api(stream).call(f"STREAM.SNAPSHOT.{stream}", asked)
            path = folder / f"{stream}.snapshot"
            digest, size = hashlib.sha256(), 0
            with path.open("wb") as file:
                while data := await self._next(stream, chunks):
                    digest.update(data)
                    size += len(data)
                    await asyncio.to_thread(file.write, data)
        finally:
            self._connection.detach(number)
        return StreamCopy(
            name=stream,
            file=path.name,
            bytes=size,
            sha256=digest.hexdigest(),
            config=answer["config"],
            state=answer["state"],
        )

    async def load(self, copy: StreamCopy, folder: Path, *, replicas: int) -> None:
        """Make a stream from its file, with so many replicas.

        Raises:
            ConflictError: there is a stream of this name.
            LogError: the server refuses the file, or made something else of it.
        """
        if await self.exists(copy.name):
            raise ConflictError(in_the_way(copy.name))
        config = {**copy.config, "num_replicas": replicas}
        api = self._api(copy.name)
        asked = {"config": config, "state": copy.state}
        target = (await api.call(f"STREAM.RESTORE.{copy.name}", asked))["deliver_subject"].encode()
        with (folder / copy.file).open("rb") as file:
            while data := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                # An empty answer asks for more; anything else is the end of it.
                _refused(copy.name, await self._send(copy.name, target, data))
        made = _refused(copy.name, await self._send(copy.name, target, b""))
        counted = ("messages", "first_seq", "last_seq")
        state = made.get("state") or {}
        if any(state.get(each) != copy.state.get(each) for each in counted):
            msg = f"the stream {copy.name} came back as {state}, not as {copy.state}"
            raise LogError(msg)

    async def _next(self, stream: str, chunks: asyncio.Queue[_Chunk]) -> bytes:
        """The next chunk; empty at the end."""
        try:
            async with asyncio.timeout(ANSWER_S):
                reply, data, headers = await chunks.get()
        except TimeoutError:
            msg = f"the snapshot of {stream} stopped: NATS sent nothing for {ANSWER_S:g} s"
            raise LogUnavailableError(msg) from None
        if data:
            if reply:
                # The server sends on when it knows that we keep up.
                self._connection.send_frame(b"PUB %b 0\r\n\r\n" % reply)
            return data
        if headers is not None and not headers.startswith(b"NATS/1.0 " + _END_OK):
            reason = headers.decode(errors="replace").replace("\r\n", " ").strip()
            msg = f"the snapshot of {stream} ended early: {reason}"
            raise LogUnavailableError(msg)
        return b""

    async def _send(self, stream: str, target: bytes, data: bytes) -> bytes:
        reply = await self._mux.request(target, b"", data)
        if reply is None:
            msg = f"NATS gave no answer while the stream {stream} was restored"
            raise LogUnavailableError(msg)
        return reply[1]

    def _api(self, stream: str) -> StreamApi:
        return StreamApi(self._mux, stream)


def in_the_way(stream: str) -> str:
    """Why nothing is restored over a stream."""
    return (
        f"there is a stream {stream} already: restore into an empty server, "
        "or delete that stream first if nobody needs it"
    )


def _refused(stream: str, answer: bytes) -> dict[str, Any]:
    """The answer, when it is none of the server's complaints."""
    decoded: dict[str, Any] = msgspec.json.decode(answer) if answer else {}
    if decoded.get("error"):
        reason = decoded["error"].get("description", "no reason given")
        msg = f"NATS does not take the snapshot of {stream}: {reason}"
        raise LogError(msg)
    return decoded
