"""A real NATS server for contract tests, and connections to it that leave nothing behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.wal.connection import Connection, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TOKEN = "contract-tests-token"
KEPT = "kept"


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    """One server for all tests that do not hurt it."""
    running = start_nats(
        tmp_path_factory.mktemp("nats"), token=TOKEN, durability="process", detached=False
    )
    yield running
    stop_nats(running)


@pytest_asyncio.fixture
async def nats_connection(nats_server: NatsProcess) -> AsyncIterator[Connection]:
    """A connection of the test's own; every stream on the server is gone afterwards."""
    connection = await connect(nats_server.url, nats_server.token)
    await connection.jetstream().add_stream(name=KEPT, subjects=[KEPT])
    yield connection
    await delete_streams(connection, nats_server)
    await connection.close()


async def delete_streams(connection: Connection, server: NatsProcess) -> None:
    """Delete every stream but the kept one and wait until the files are gone.

    The server answers before it has removed them, and a stream made again under the same name
    in that moment comes up with the old messages; and it removes the folder of all streams with the
    last one, so that a new stream may find no place (both seen with 2.15.1).
    """
    manager = connection.jsm()
    for stream in await manager.streams_info():
        if stream.config.name != KEPT:
            await manager.delete_stream(stream.config.name)
    folder = server.config_path.parent / "jetstream" / "$G" / "streams"
    async with asyncio.timeout(10):
        while any(entry.name != KEPT for entry in folder.iterdir()):
            await asyncio.sleep(0.005)
