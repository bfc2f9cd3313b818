"""The JetStream log when network or server fail: nothing acked is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.errors import ConfigError, LogError, LogUnavailableError, VersionConflictError
from noetl_ray.testing.contract_wal import positions, read_all, take
from noetl_ray.testing.samples import sample_record, sample_record_of_bytes, sample_subject
from noetl_ray.wal.connection import Connection, connect
from noetl_ray.wal.jetstream import JetStreamLog
from tests.contract.fixtures_nats import delete_streams
from tests.contract.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

A, B = sample_subject(1), sample_subject(2)
TOKEN = "fault-tests-token"


class OwnServer:
    """A server a test may hurt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: NatsProcess = self._start(None)

    def kill(self) -> None:
        os.kill(self.running.pid, signal.SIGKILL)
        assert self.running.process is not None
        self.running.process.wait(10)

    def stop(self) -> None:
        """Stop it where it is, and wait until every thread stands."""
        os.kill(self.running.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.running.pid}/task")
        deadline = time.monotonic() + 5
        while any(") T " not in (one / "stat").read_text() for one in threads.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def restart(self) -> None:
        self.running = self._start(self.running.port)

    def _start(self, port: int | None) -> NatsProcess:
        return start_nats(self.folder, port=port, token=TOKEN, durability="process", detached=False)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[OwnServer]:
    server = OwnServer(tmp_path)
    yield server
    stop_nats(server.running)


@pytest.mark.parametrize("expected", [0, None])
@pytest.mark.parametrize("direction", ["lose_to_client", "lose_to_server"])
async def test_p5_lost_ack_is_settled_by_reading_the_tail(
    nats_connection: Connection, nats_server: NatsProcess, direction: str, expected: int | None
) -> None:
    """Whether the publish or its ack is lost, the record is stored once and the caller knows."""
    log = await JetStreamLog.open(nats_connection)
    async with Proxy(nats_server.port) as proxy:
        client = await connect(proxy.url, nats_server.token)
        behind = await JetStreamLog.open(client, ack_timeout_ms=150)
        setattr(proxy, direction, True)
        appending = asyncio.ensure_future(
            behind.append(A, sample_record(1), expected_version=expected)
        )
        await asyncio.sleep(0.3)
        assert not appending.done()
        assert proxy.lost_bytes > 0
        stored = await log.last(A)
        assert (stored is not None) == (direction == "lose_to_client")
        if expected is None:
            await log.append(A, sample_record(2), expected_version=None)
        proxy.heal()
        position = await asyncio.wait_for(appending, 10)
        found = await log.get(position)
        assert found is not None
        assert found.record == sample_record(1)
        assert len(await read_all(log, A)) == (1 if expected == 0 else 2)
        await behind.close()
        await client.close()
    await log.close()


async def test_p5_lost_ack_below_a_successor_still_counts_as_stored(
    nats_connection: Connection, nats_server: NatsProcess
) -> None:
    log = await JetStreamLog.open(nats_connection)
    async with Proxy(nats_server.port) as proxy:
        client = await connect(proxy.url, nats_server.token)
        behind = await JetStreamLog.open(client, ack_timeout_ms=150)
        proxy.lose_to_client = True
        appending = asyncio.ensure_future(behind.append(A, sample_record(1), expected_version=0))
        await asyncio.sleep(0.1)
        assert await log.append(A, sample_record(2), expected_version=1) == 2
        proxy.heal()
        assert await asyncio.wait_for(appending, 10) == 1
        await behind.close()
        await client.close()
    await log.close()


async def test_p3_a_lost_publish_that_another_overtook_is_a_conflict(
    nats_connection: Connection, nats_server: NatsProcess
) -> None:
    log = await JetStreamLog.open(nats_connection)
    async with Proxy(nats_server.port) as proxy:
        client = await connect(proxy.url, nats_server.token)
        behind = await JetStreamLog.open(client, ack_timeout_ms=150)
        proxy.lose_to_server = True
        appending = asyncio.ensure_future(behind.append(A, sample_record(1), expected_version=0))
        await asyncio.sleep(0.1)
        assert await log.append(A, sample_record(2), expected_version=0) == 1
        proxy.heal()
        with pytest.raises(VersionConflictError):
            await asyncio.wait_for(appending, 10)
        await behind.close()
        await client.close()
    assert positions(await read_all(log, A)) == [1]
    await log.close()


async def test_p5_a_stopped_server_delays_an_append_and_doubles_nothing(
    own_server: OwnServer,
) -> None:
    """Unanswered publishes pile up in the stopped server; only one of them may count."""
    connection = await connect(own_server.running.url, TOKEN)
    log = await JetStreamLog.open(connection, ack_timeout_ms=100)
    own_server.stop()
    try:
        appends = [
            asyncio.ensure_future(log.append(A, sample_record(1), expected_version=0)),
            asyncio.ensure_future(log.append(B, sample_record(2), expected_version=None)),
        ]
        await asyncio.sleep(0.6)
        assert not any(append.done() for append in appends)
    finally:
        os.kill(own_server.running.pid, signal.SIGCONT)
    assert sorted(await asyncio.wait_for(asyncio.gather(*appends), 10)) == [1, 2]
    await asyncio.sleep(0.05)
    assert len(await read_all(log, "noetl.>")) == 2
    await log.close()
    await connection.close()


async def test_an_unreachable_server_is_reported_within_the_bound(own_server: OwnServer) -> None:
    connection = await connect(own_server.running.url, TOKEN)
    log = await JetStreamLog.open(connection, ack_timeout_ms=200, settle_s=0.5)
    own_server.kill()
    before = time.monotonic()
    with pytest.raises(LogUnavailableError) as caught:
        await log.append(A, sample_record(1), expected_version=0)
    assert time.monotonic() - before < 30
    assert caught.value.retryable
    with pytest.raises(LogUnavailableError):
        await log.last(A)
    await log.close()
    await connection.close()


async def test_a_stream_that_is_gone_is_unavailable(nats_connection: Connection) -> None:
    """No responders: not stored, so it is tried again until the bound."""
    log = await JetStreamLog.open(nats_connection, settle_s=0.3)
    await nats_connection.jsm().delete_stream("noetl_events")
    with pytest.raises(LogUnavailableError):
        await log.append(A, sample_record(1), expected_version=0)
    await log.close()


async def test_p1_kill_9_and_restart_lose_and_double_nothing(own_server: OwnServer) -> None:
    """Writers and a subscription live through two kills of the server without a gap."""
    connection = await connect(own_server.running.url, TOKEN)
    log = await JetStreamLog.open(connection, ack_timeout_ms=1_000)
    subscription = await log.subscribe(["noetl.events.>"])
    acked: list[tuple[int, int]] = []
    delivered: list[tuple[int, int]] = []
    writing = True

    async def write(writer: int) -> None:
        version, number = 0, 0
        while writing:
            number += 1
            event_id = writer * 1_000_000 + number
            version = await log.append(
                sample_subject(writer), sample_record(event_id), expected_version=version
            )
            acked.append((version, event_id))

    async def follow() -> None:
        while not all(task.done() for task in writers) or len(delivered) < len(acked):
            for item in await subscription.next_batch(100, 0.1):
                delivered.append((item.position, item.record.events[0].event_id))

    writers = [asyncio.ensure_future(write(writer)) for writer in range(1, 9)]
    follower = asyncio.ensure_future(follow())
    for _ in range(2):
        await asyncio.sleep(0.25)
        own_server.kill()
        await asyncio.sleep(0.1)
        await asyncio.to_thread(own_server.restart)
    await asyncio.sleep(0.25)
    writing = False
    await asyncio.wait_for(asyncio.gather(*writers, follower), 30)
    assert len(acked) > 100
    assert sorted(acked) == delivered
    stored = await read_all(log, "noetl.>")
    assert [(item.position, item.record.events[0].event_id) for item in stored] == delivered
    await subscription.close()
    await log.close()
    await connection.close()


async def test_p9_a_subscription_survives_cut_connections(
    nats_connection: Connection, nats_server: NatsProcess
) -> None:
    log = await JetStreamLog.open(nats_connection)
    async with Proxy(nats_server.port) as proxy:
        client = await connect(proxy.url, nats_server.token)
        behind = await JetStreamLog.open(client)
        subscription = await behind.subscribe(["noetl.>"])
        seen: list[int] = []
        for turn in range(5):
            for number in range(40):
                event_id = 100 * turn + number + 1
                await log.append(A, sample_record(event_id), expected_version=None)
                if number == 20:
                    proxy.cut()
            seen += positions(await take(subscription, 40, batch=9))
        assert seen == list(range(1, 201))
        await subscription.close()
        await behind.close()
        await client.close()
    await log.close()


async def test_a_slow_reader_bounds_what_waits_for_it(nats_connection: Connection) -> None:
    """Flow control: the server holds back until the reader has taken what it was sent."""
    log = await JetStreamLog.open(nats_connection)
    subscription = await log.subscribe(["noetl.>"])
    total, size = 1_200, 60_000
    for start in range(0, total, 40):
        await asyncio.gather(
            *(
                log.append(A, sample_record_of_bytes(number + 1, size), expected_version=None)
                for number in range(start, start + 40)
            )
        )
    await asyncio.sleep(0.2)
    assert len(subscription._consumer._queue) < total / 2
    got = positions(await take(subscription, total))
    assert got == list(range(1, total + 1))
    await subscription.close()
    await log.close()


async def test_a_stream_that_lost_what_it_delivered_is_noticed(
    nats_connection: Connection, nats_server: NatsProcess
) -> None:
    log = await JetStreamLog.open(nats_connection)
    subscription = await log.subscribe(["noetl.>"])
    for number in range(3):
        await log.append(A, sample_record(number + 1), expected_version=None)
    await take(subscription, 3)
    await delete_streams(nats_connection, nats_server)
    again = await JetStreamLog.open(nats_connection)
    subscription._consumer._break()
    with pytest.raises(LogError, match="acknowledged records are lost"):
        await subscription.next_batch(1, 2.0)
    await subscription.close()
    await again.close()
    await log.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_age": 3600}, "max_age"),
        ({"max_bytes": 1_000_000}, "max_bytes"),
        ({"storage": "memory"}, "storage"),
        ({"discard": "old"}, "discard"),
        ({"subjects": ["noetl.events.>"]}, "noetl.system"),
        ({"allow_direct": False}, "allow_direct"),
    ],
)
async def test_p7_a_stream_that_would_lose_records_is_refused(
    nats_connection: Connection, change: dict[str, object], named: str
) -> None:
    settings: dict[str, object] = {
        "name": "noetl_events",
        "subjects": ["noetl.events.>", "noetl.system.>"],
        "storage": "file",
        "discard": "new",
        "allow_direct": True,
    }
    await nats_connection.jetstream().add_stream(**(settings | change))
    with pytest.raises(ConfigError, match=named) as caught:
        await JetStreamLog.open(nats_connection)
    assert caught.value.key == "event_store.stream"


async def test_the_duplicate_window_follows_the_settings(nats_connection: Connection) -> None:
    await (await JetStreamLog.open(nats_connection, duplicate_window_s=120)).close()
    log = await JetStreamLog.open(nats_connection, duplicate_window_s=60)
    info = await nats_connection.jsm().stream_info("noetl_events")
    assert info.config.duplicate_window == 60
    await log.close()
    with pytest.raises(ConfigError):
        await JetStreamLog.open(nats_connection, duplicate_window_s=10)


async def test_replicas_that_cannot_be_had_are_a_config_error(nats_connection: Connection) -> None:
    """One server cannot keep three copies; the start says so instead of promising them."""
    with pytest.raises(ConfigError):
        await JetStreamLog.open(nats_connection, durability="replicated")
