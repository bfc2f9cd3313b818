"""Limits shared by worker processes, over a real NATS server and a real API."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from noetl_ray.cli.demo import fixture_api
from noetl_ray.embedded.nats import NatsProcess
from noetl_ray.tools.limiter_nats import NatsLimits
from noetl_ray.wal.connection import Connection

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    with fixture_api() as url:
        yield url


async def started(server: NatsProcess, owner: str, **given: Any) -> asyncio.subprocess.Process:
    document = {"nats": server.url, "token": server.token, "owner": owner, **given}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.contract.limited_caller",
        json.dumps(document),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert (await process.stdout.readline()).strip() == b"ready"
    return process


async def ended(process: asyncio.subprocess.Process) -> dict[str, int]:
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    return dict(json.loads(output))


async def both(server: NatsProcess, **given: Any) -> dict[str, int]:
    processes = [await started(server, f"w{i}", **given) for i in range(2)]
    total: dict[str, int] = {}
    for process in processes:
        for key, count in (await ended(process)).items():
            total[key] = total.get(key, 0) + count
    return total


@pytest.mark.parametrize("by", ["host", "credential"])
async def test_two_processes_never_have_more_calls_under_way_than_allowed(
    nats_connection: Connection, nats_server: NatsProcess, api: str, by: str
) -> None:
    httpx.post(f"{api}/api/v1/concurrency/reset", trust_env=False)
    target = {"host": httpx.URL(api).host} if by == "host" else {"credential": "shop"}
    seen = await both(
        nats_server,
        url=f"{api}/api/v1/concurrency/probe",
        params={"delay_seconds": 0.05},
        auth="shop",
        calls=30,
        limits=[{**target, "max_in_flight": 3}],
    )
    assert seen == {"ok": 60}
    stats = httpx.get(f"{api}/api/v1/concurrency/stats", trust_env=False).json()
    assert stats["started"] == 60
    assert stats["max_active"] == 3


async def test_two_processes_stay_below_a_rate_that_is_enforced_elsewhere(
    nats_connection: Connection, nats_server: NatsProcess, api: str
) -> None:
    given: dict[str, Any] = {
        "url": f"{api}/api/v1/rate-limited",
        "params": {"requests_per_second": 20},
        "calls": 30,
    }
    free = await both(nats_server, limits=[], **given)
    assert free["rate_limit"] > 0, "without a limit the server refuses some"
    await asyncio.sleep(1.1)
    host = httpx.URL(api).host
    assert await both(nats_server, limits=[{"host": host, "per_second": 15}], **given) == {"ok": 60}


async def test_the_places_of_a_killed_process_come_back(
    nats_connection: Connection, nats_server: NatsProcess, api: str
) -> None:
    given: dict[str, Any] = {
        "url": f"{api}/api/v1/concurrency/probe",
        "limits": [{"host": httpx.URL(api).host, "max_in_flight": 2}],
    }
    httpx.post(f"{api}/api/v1/concurrency/reset", trust_env=False)
    dead = await started(nats_server, "dead", calls=2, params={"delay_seconds": 60}, **given)
    async with asyncio.timeout(30):
        while True:
            async with httpx.AsyncClient(trust_env=False) as client:
                stats = (await client.get(f"{api}/api/v1/concurrency/stats")).json()
            if stats["active"] == 2:
                break
            await asyncio.sleep(0.02)
    dead.kill()
    await dead.wait()
    alive = await started(nats_server, "alive", calls=2, params={}, **given)
    assert await ended(alive) == {"ok": 2}


async def test_a_record_is_changed_by_one_at_a_time(nats_connection: Connection) -> None:
    one, other = NatsLimits(nats_connection), NatsLimits(nats_connection)
    assert await one.read("host:a") == (None, 0)
    assert await one.write("host:a", b"1", 0)
    assert not await other.write("host:a", b"2", 0)
    data, version = await other.read("host:a")
    assert (data, version > 0) == (b"1", True)
    assert await other.write("host:a", b"2", version)
    assert not await one.write("host:a", b"3", version)
