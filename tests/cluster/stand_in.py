"""Roles that do nothing, for tests of the hosts themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any


class Idle:
    """Roles that turn and do nothing; a gateway among them takes whatever is posted to it."""

    def __init__(self, settings, roles) -> None:
        self._settings = settings
        self.roles = tuple(roles)
        self.gateway_url: str | None = None
        self.turns = 0

    async def run(self, stopping: asyncio.Event) -> None:
        server = None
        if "gateway" in self.roles:
            gateway = self._settings.gateway
            server = await asyncio.start_server(self._answer, gateway.host, gateway.port)
            self.gateway_url = f"http://{gateway.host}:{gateway.port}"
        while not stopping.is_set():
            self.turns += 1
            await asyncio.sleep(0.02)
        if server is not None:
            server.close()

    def summary(self) -> dict[str, Any]:
        return {"turns": self.turns}

    async def tell_gone(self, host: str, incarnation: str) -> None:
        """Nobody listens."""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        body = await reader.readexactly(length)
        with Path(self._settings.data_dir, "posted.jsonl").open("ab") as posted:
            posted.write(body + b"\n")
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()


async def open_idle(settings, roles, *, host_name, incarnation):
    """A host whose roles turn and do nothing."""
    assert settings.event_store.url, "hosts must be told where the log is"
    assert host_name
    assert incarnation
    return Idle(settings, roles)


async def open_broken(settings, roles, *, host_name, incarnation):
    """A host that cannot open its roles."""
    if "gateway" in roles:
        msg = "the moon is in the wrong quarter"
        raise RuntimeError(msg)
    return Idle(settings, roles)
