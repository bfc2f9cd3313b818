"""The journal before a broker that stands still, and in a process that is killed (BUF-2, BUF-3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.testing.contract_wal import read_all
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

TOKEN = "journal-tests-token"
PRODUCERS = 200
BOUND = 64
EVENTS = 4
ALL = "noetl.events.>"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsProcess]:
    running = start_nats(tmp_path, token=TOKEN, durability="process", detached=False)
    yield running
    with contextlib.suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGCONT)
    stop_nats(running)


async def open_bounded(server: NatsProcess, max_events: int) -> JetStreamLog:
    return await JetStreamLog.open(
        server.url,
        token=TOKEN,
        ack_timeout_ms=500,
        journal=Journal(SystemClock(), max_events=max_events),
    )


async def test_buf_2_a_stopped_server_holds_producers_at_the_bound(server: NatsProcess) -> None:
    """The gauge stands at the bound; on return every record is there once, in its order."""
    log = await open_bounded(server, BOUND)
    acked: dict[int, list[int]] = {n: [] for n in range(1, PRODUCERS + 1)}
    stopping = False

    async def produce(producer: int) -> None:
        number, version = 0, 0
        while not stopping or number < 3:
            number += 1
            first = producer * 1_000_000 + number * EVENTS
            record = sample_record(first, events=EVENTS, execution_id=producer)
            version = await log.append(sample_subject(producer), record, expected_version=version)
            acked[producer].append(first)

    producing = [asyncio.ensure_future(produce(n)) for n in acked]
    async with asyncio.timeout(60):
        while log.journal.gauge().held < PRODUCERS:
            await asyncio.sleep(0.01)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            while log.journal.gauge().oldest_s < 0.3:
                await asyncio.sleep(0.02)
        for _ in range(40):  # over several turns of resending
            gauge = log.journal.gauge()
            assert gauge.events == BOUND, "full, and never over"
            assert gauge.waiting == PRODUCERS - BOUND // EVENTS
            await asyncio.sleep(0.03)
        before = sum(len(each) for each in acked.values())
        assert gauge.oldest_s > 1
    finally:
        os.kill(server.pid, signal.SIGCONT)
    stopping = True
    await asyncio.wait_for(asyncio.gather(*producing), 60)
    assert sum(len(each) for each in acked.values()) > before
    assert log.journal.gauge().events == log.journal.gauge().waiting == 0
    found: dict[int, list[int]] = {n: [] for n in acked}
    for recorded in await read_all(log, ALL):
        first_event = recorded.record.events[0]
        found[first_event.execution_id].append(first_event.event_id)
    assert found == acked, "nothing lost, doubled or out of order"
    await log.close()


PRODUCER = """
import asyncio, sys
from noetl_ray.clock import SystemClock
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.journal import Journal

async def main(url, token, bound):
    journal = Journal(SystemClock(), max_events=bound)
    log = await JetStreamLog.open(url, token=token, journal=journal)

    async def produce(producer):
        number, version = 0, 0
        while True:
            number += 1
            print("sent", producer, number, flush=True)
            record = sample_record(producer * 1000000 + number, execution_id=producer)
            version = await log.append(sample_subject(producer), record, expected_version=version)
            print("acked", producer, number, flush=True)

    await asyncio.gather(*(produce(n) for n in range(1, 33)))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def test_buf_3_a_killed_process_loses_at_most_its_unacknowledged_tail(
    server: NatsProcess,
) -> None:
    """Killed while the broker stands still: all that was acknowledged is there, once."""
    bound = 8
    output = Path(server.config_path.parent) / "producer.out"
    with output.open("wb") as into:
        child = subprocess.Popen(
            [sys.executable, "-c", PRODUCER, server.url, TOKEN, str(bound)], stdout=into
        )
    try:
        async with asyncio.timeout(60):
            while output.read_bytes().count(b"acked") < 200:
                assert child.poll() is None
                await asyncio.sleep(0.02)
        os.kill(server.pid, signal.SIGSTOP)
        await asyncio.sleep(0.5)
    finally:
        child.kill()
        child.wait(10)
    os.kill(server.pid, signal.SIGCONT)
    told = [line.split() for line in output.read_text().splitlines()]
    acked = {int(n) * 1_000_000 + int(number) for what, n, number in told if what == "acked"}
    tried = {int(n) * 1_000_000 + int(number) for what, n, number in told if what == "sent"}
    log = await open_bounded(server, 1_024)
    stored = [one.record.events[0].event_id for one in await read_all(log, ALL)]
    assert len(stored) == len(set(stored))
    assert acked <= set(stored) <= tried
    assert len(set(stored) - acked) <= bound, "beyond what was acknowledged at most the tail"
    assert len(tried - acked) == 32, "each producer was at one record, most of them never sent"
    await log.close()
