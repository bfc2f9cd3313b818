"""Tables of owners and checkpoint stores keep what their ports promise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from noetl_ray.errors import StoreUnavailableError
from noetl_ray.shards.checkpoints_nats import STREAM, NatsCheckpoints
from noetl_ray.shards.memory import MemoryCheckpoints, MemoryOwners
from noetl_ray.shards.owners_nats import BUCKET, NatsOwners
from noetl_ray.testing.contract_shards import (
    CHECKPOINT_CHECKS,
    TABLE_CHECKS,
    StoreCheck,
    TableCheck,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl_ray.shards.port import CheckpointStore, OwnerTable
    from noetl_ray.wal.connection import Connection

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


@pytest_asyncio.fixture(params=["memory", "nats"])
async def store(
    request: pytest.FixtureRequest, nats_connection: Connection
) -> AsyncIterator[CheckpointStore]:
    if request.param == "memory":
        yield MemoryCheckpoints()
        return
    made = await NatsCheckpoints.open(nats_connection)
    yield made
    await made.close()


@pytest.fixture(params=["memory", "nats"])
def table(request: pytest.FixtureRequest, nats_connection: Connection) -> OwnerTable:
    return MemoryOwners() if request.param == "memory" else NatsOwners(nats_connection)


@pytest.mark.parametrize("check", CHECKPOINT_CHECKS, ids=lambda check: check.__name__)
async def test_checkpoints(store: CheckpointStore, check: StoreCheck) -> None:
    await check(store)


@pytest.mark.parametrize("check", TABLE_CHECKS, ids=lambda check: check.__name__)
async def test_tables(table: OwnerTable, check: TableCheck) -> None:
    await check(table)


@pytest.mark.timeout(30)
async def test_prin_1_a_table_that_was_removed_is_made_again(nats_connection: Connection) -> None:
    """Bucket deleted, key deleted: the next write begins anew."""
    table = NatsOwners(nats_connection)
    stream = nats_connection.jetstream()
    assert await table.write(b"one", 0)
    bucket = await stream.key_value(BUCKET)
    for key in await bucket.keys():
        await bucket.delete(key)
    data, version = await table.read()
    assert data is None
    assert await table.write(b"two", version)
    await stream.delete_key_value(BUCKET)
    done = False
    while not done:
        with contextlib.suppress(StoreUnavailableError):
            data, version = await table.read()
            assert data is None
            done = await table.write(b"three", version)
    assert (await table.read())[0] == b"three"


async def test_two_tables_of_different_kinds_are_apart(nats_connection: Connection) -> None:
    one = NatsOwners(nats_connection, kind="conductor")
    two = NatsOwners(nats_connection, kind="projector")
    assert await one.write(b"one", 0)
    assert (await two.read())[0] is None


async def test_prin_1_a_stream_that_was_removed_is_made_at_the_next_start(
    nats_connection: Connection,
) -> None:
    store = await NatsCheckpoints.open(nats_connection)
    await store.add(0, b"x", expected=0)
    await nats_connection.jsm().delete_stream(STREAM)
    await store.close()
    again = await NatsCheckpoints.open(nats_connection)
    assert await again.read(0) == []
    await again.close()
