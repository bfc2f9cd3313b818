"""A real NATS server for contract tests, and connections to it that leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.wal.connection import Connection, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TOKEN = "contract-tests-token"


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
    yield connection
    manager = connection.jsm()
    for stream in await manager.streams_info():
        await manager.delete_stream(stream.config.name)
    await connection.close()
