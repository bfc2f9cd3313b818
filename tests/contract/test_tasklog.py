"""Both task logs keep what the task-log port promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from noetl_ray.testing.contract_tasklog import (
    TASKLOG_CHECKS,
    TaskLogCheck,
    read_batches,
    sample_line,
)
from noetl_ray.wal.connection import Connection, connect
from noetl_ray.wal.tasklog_jetstream import JetStreamTaskLog
from noetl_ray.wal.tasklog_memory import MemoryTaskLog
from tests.contract.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl_ray.embedded.nats import NatsProcess
    from noetl_ray.wal.tasklog import TaskLog

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


@pytest_asyncio.fixture(params=["memory", "jetstream"])
async def log(
    request: pytest.FixtureRequest, nats_connection: Connection
) -> AsyncIterator[TaskLog]:
    made: MemoryTaskLog | JetStreamTaskLog
    if request.param == "memory":
        made = MemoryTaskLog()
    else:
        made = await JetStreamTaskLog.open(nats_connection)
    yield made
    await made.close()


@pytest.mark.parametrize("check", TASKLOG_CHECKS, ids=lambda check: check.__name__)
async def test_contract(log: TaskLog, check: TaskLogCheck) -> None:
    await check(log)


async def test_an_unreachable_server_costs_lines_and_nothing_else(
    nats_server: NatsProcess, nats_connection: Connection
) -> None:
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, nats_server.token)
        log = await JetStreamTaskLog.open(connection)
        await log.write(0, [sample_line("before")])
        before = await read_batches(log, 0, 1)
        proxy.cut()
        async with asyncio.timeout(5):
            while connection.is_connected:
                await asyncio.sleep(0.005)
        await log.write(0, [sample_line("lost")])
        assert await log.read_after(before[0].position, max_batches=1, timeout_s=0.01) == []
        assert await connection.wait_up(5)
        await log.write(0, [sample_line("after")])
        after = await read_batches(log, before[0].position, 1)
        assert [line.text for line in after[0].lines] == ["after"]
        await log.close()
        await connection.close()


async def test_the_stream_is_bounded(nats_connection: Connection) -> None:
    log = await JetStreamTaskLog.open(nats_connection)
    config = (await nats_connection.jsm().stream_info("noetl_logs")).config
    assert config.max_bytes == 1024**3
    assert config.max_age == 7 * 24 * 3600
    assert str(config.discard) == "old"
    await log.close()
