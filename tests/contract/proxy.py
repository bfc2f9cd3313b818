"""A TCP proxy that loses what passes through it when told to: a network that fails on demand."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Stands between clients and one server on loopback."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lose_to_server = False
        self.lose_to_client = False
        self.lost_bytes = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """End every connection at once, without a word."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def heal(self) -> None:
        """Stop losing. Streams that lost bytes are broken for good, so they are cut."""
        self.lose_to_server = self.lose_to_client = False
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there[1]}
        for source, sink, side in ((reader, there[1], "server"), (there[0], writer, "client")):
            task = asyncio.ensure_future(self._pump(source, sink, side))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, side: str
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if getattr(self, f"lose_to_{side}"):
                    self.lost_bytes += len(data)
                    continue
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
