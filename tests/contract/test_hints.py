"""Both hint adapters keep what the hint port promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from noetl_ray.errors import UsageError
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.hints.nats import NatsHints
from noetl_ray.hints.port import Hints, offer_subject
from noetl_ray.testing.contract_hints import HINTS_CHECKS, Heard, HintsCheck
from noetl_ray.wal.connection import Connection, connect
from tests.contract.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl_ray.embedded.nats import NatsProcess

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


@pytest_asyncio.fixture(params=["memory", "nats-same", "nats-two"])
async def pair(
    request: pytest.FixtureRequest, nats_connection: Connection, nats_server: NatsProcess
) -> AsyncIterator[tuple[Hints, Hints]]:
    if request.param == "memory":
        memory = MemoryHints()
        yield memory, memory
        await memory.close()
        return
    sender = NatsHints(nats_connection)
    if request.param == "nats-same":
        yield sender, sender
        await sender.close()
        return
    other = await connect(nats_server.url, nats_server.token)
    listener = NatsHints(other)
    yield sender, listener
    await listener.close()
    await sender.close()
    await other.close()


@pytest.mark.parametrize("check", HINTS_CHECKS, ids=lambda check: check.__name__)
async def test_contract(pair: tuple[Hints, Hints], check: HintsCheck) -> None:
    await check(*pair)


async def test_an_offer_to_a_worker_of_the_same_object_skips_the_server(
    nats_connection: Connection,
) -> None:
    """It arrives once, and the server never sees it."""
    hints = NatsHints(nats_connection)
    heard = Heard()
    subject = offer_subject(1, "here")
    await hints.listen(subject, heard)
    before = nats_connection.stats["in_msgs"]
    for number in range(100):
        await hints.send(subject, b"%d" % number)
    await heard.wait_for(100)
    await nats_connection.flush()
    await asyncio.sleep(0.02)
    assert len(heard.got) == 100
    assert nats_connection.stats["in_msgs"] == before
    await hints.close()


async def test_hints_are_dropped_while_the_server_is_away_and_flow_again(
    nats_server: NatsProcess,
) -> None:
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, nats_server.token)
        hints = NatsHints(connection)
        heard = Heard()
        await hints.listen("noetl.hints.>", heard)
        await hints.send("noetl.hints.a", b"1")
        await heard.wait_for(1)
        proxy.cut()
        async with asyncio.timeout(5):
            while connection.is_connected:
                await asyncio.sleep(0.005)
        await hints.send("noetl.hints.a", b"lost")
        assert await connection.wait_up(5)
        await hints.send("noetl.hints.a", b"2")
        assert [data for _, data in await heard.wait_for(2)] == [b"1", b"2"]
        await hints.close()
        await connection.close()


async def test_a_subject_that_could_carry_commands_is_refused(nats_connection: Connection) -> None:
    hints = NatsHints(nats_connection)
    for bad in ("a b", "a\r\nPUB x 0\r\n", "", "a.*", "a..b"):
        with pytest.raises(UsageError):
            await hints.send(bad, b"x")
    with pytest.raises(UsageError):
        await hints.send("noetl.hints.large", b"x" * 10_000_000)
    assert nats_connection.is_connected
