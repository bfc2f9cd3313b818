"""The connection to a real server, and the generator numbers leased through it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING

import nats
import pytest

from noetl_ray.errors import LogUnavailableError
from noetl_ray.ids import GENERATORS_MAX
from noetl_ray.wal.connection import Connection, connect
from noetl_ray.wal.generators import BUCKET, lease_generator
from tests.contract.proxy import Proxy

if TYPE_CHECKING:
    from noetl_ray.embedded.nats import NatsProcess

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


async def test_a_wrong_token_is_said_to_be_one(nats_server: NatsProcess) -> None:
    for token in ("not-the-token", None):
        with pytest.raises(LogUnavailableError, match=r"event_store\.token") as caught:
            await connect(nats_server.url, token, timeout_s=1.0)
        assert "not-the-token" not in str(caught.value)


async def test_nobody_there_is_reported_in_bounded_time() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"nats://user:secret@127.0.0.1:{taken.getsockname()[1]}"
        before = time.monotonic()
        with pytest.raises(LogUnavailableError, match=r"127\.0\.0\.1.*event_store\.url") as caught:
            await connect(address, timeout_s=0.3)
    assert time.monotonic() - before < 30
    assert "secret" not in str(caught.value)


async def test_an_error_line_leads_to_a_new_connection(nats_connection: Connection) -> None:
    """The driver alone would close for good, for instance on a slow consumer."""
    downs: list[float] = []
    nats_connection.on_down(lambda: downs.append(time.monotonic()))
    await nats_connection._process_err("'Slow Consumer'")
    async with asyncio.timeout(5):
        while not downs:
            await asyncio.sleep(0.005)
    assert await nats_connection.wait_up(5)
    assert not nats_connection.is_closed
    await nats_connection.flush()


async def test_a_sink_that_fails_does_not_end_reading(nats_connection: Connection) -> None:
    got: list[bytes] = []

    def sink(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        got.append(data)
        if data == b"bad":
            msg = "on purpose"
            raise ValueError(msg)

    number = await nats_connection.attach("test.sink", sink)
    for data in (b"bad", b"good"):
        await nats_connection.publish("test.sink", data)
    await nats_connection.flush()
    assert got == [b"bad", b"good"]
    nats_connection.detach(number)
    nats_connection.detach(number)


async def test_frames_and_driver_commands_keep_their_order(nats_connection: Connection) -> None:
    got: list[bytes] = []
    await nats_connection.attach(
        "test.order", lambda subject, reply, data, headers: got.append(data)
    )
    for number in range(50):
        if number % 2:
            nats_connection.send_frame(b"PUB test.order 2\r\n%02d\r\n" % number)
        else:
            await nats_connection.publish("test.order", b"%02d" % number)
    await asyncio.sleep(0)
    await nats_connection.flush()
    assert got == [b"%02d" % number for number in range(50)]


async def test_two_processes_never_hold_one_generator(nats_connection: Connection) -> None:
    leases = await asyncio.gather(*(lease_generator(nats_connection, "same") for _ in range(8)))
    numbers = [lease.number for lease in leases]
    assert len(set(numbers)) == 8
    assert all(0 <= number < GENERATORS_MAX for number in numbers)
    await leases[0].close()
    await leases[0].close()
    again = await lease_generator(nats_connection, "same")
    assert again.number == numbers[0]
    for lease in (*leases[1:], again):
        assert not lease.lost
        await lease.close()


async def test_a_lease_is_renewed_and_runs_out_without(nats_connection: Connection) -> None:
    kept = await lease_generator(nats_connection, "kept", lease_s=1.0, renew_s=0.2)
    dead = await lease_generator(nats_connection, "dead", lease_s=1.0, renew_s=60)
    await asyncio.sleep(1.6)
    bucket = await nats_connection.jetstream().key_value(BUCKET)
    assert await bucket.keys() == [str(kept.number)]
    assert not kept.lost
    successor = await lease_generator(nats_connection, "dead", lease_s=1.0, renew_s=60)
    assert successor.number == dead.number
    for lease in (kept, dead, successor):
        await lease.close()


@pytest.mark.parametrize("how", ["key", "bucket"])
async def test_prin_1_a_number_is_kept_when_the_bucket_is_emptied(
    nats_connection: Connection, how: str
) -> None:
    lease = await lease_generator(nats_connection, "kept", lease_s=3.0, renew_s=0.2)
    stream = nats_connection.jetstream()
    if how == "bucket":
        await stream.delete_key_value(BUCKET)
    else:
        await (await stream.key_value(BUCKET)).purge(str(lease.number))
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(nats.errors.Error):
                entry = await (await stream.key_value(BUCKET)).get(str(lease.number))
                if entry.value == b"kept":
                    break
            await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    assert not lease.lost
    await lease.close()


async def test_a_lease_that_cannot_be_renewed_is_lost(
    nats_server: NatsProcess, nats_connection: Connection
) -> None:
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, nats_server.token)
        lease = await lease_generator(connection, "away", lease_s=1.0, renew_s=0.1)
        thief = await nats_connection.jetstream().key_value(BUCKET)
        await thief.put(str(lease.number), b"another")
        async with asyncio.timeout(5):
            while not lease.lost:
                await asyncio.sleep(0.01)
        await lease.close()
        assert (await thief.get(str(lease.number))).value == b"another"
        await connection.close()
