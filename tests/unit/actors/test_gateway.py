"""The gateway role listens, serves and lets go, without touching the process's signals."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest

from actors.callbacks import Callbacks
from actors.gateway import Gateway, open_gateway
from noetl_ray.client import Client
from noetl_ray.config.settings import Settings
from noetl_ray.errors import ConfigError, InternalError, StoreUnavailableError
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.testing.gateway_kit import HELLO, GatewayKit, with_gateway


@pytest.mark.asyncio
async def test_serves_on_a_free_port_and_stops():
    kit = GatewayKit()
    role = Gateway(kit.deps)
    assert role.url is None
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    await role.start()
    try:
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
        async with Client(role.url) as client:
            started = await client.submit(playbook=HELLO)
            await kit.run(started.execution_id, {"ok": True})
            assert (await client.wait(started.execution_id, timeout_s=5)).succeeded
            assert role.summary() == {"url": role.url, "requests": 2}
    finally:
        await role.stop()
    async with Client(role.url) as client:
        with pytest.raises(StoreUnavailableError, match="noetl-ray up"):
            await client.health()
    await role.stop()


@pytest.mark.asyncio
async def test_stop_does_not_wait_for_long_polls():
    kit = GatewayKit()
    role = Gateway(kit.deps)
    await role.start()
    async with Client(role.url) as client:
        started = await client.submit(playbook=HELLO)
        waiting = asyncio.create_task(client.wait(started.execution_id, timeout_s=60))
        while role._app.state.waiters.count == 0:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(3):
            await role.stop()
        with pytest.raises(StoreUnavailableError):
            await waiting


@pytest.mark.asyncio
async def test_a_taken_port_is_a_setting_to_mend():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        kit = GatewayKit(settings=with_gateway(Settings(), port=port))
        with pytest.raises(ConfigError, match=r"gateway\.port"):
            await Gateway(kit.deps).start()


async def forever(role):
    while True:
        await role.step()


@pytest.mark.asyncio
async def test_step_needs_a_start_and_notices_an_end(monkeypatch):
    monkeypatch.setattr("actors.gateway.STEP_S", 0.01)
    role = Gateway(GatewayKit().deps)
    with pytest.raises(InternalError):
        await role.step()
    await role.start()
    await role.step()
    role._server.should_exit = True
    with pytest.raises(InternalError, match="by itself"):
        await asyncio.wait_for(forever(role), 5)
    await role.stop()


@pytest.mark.asyncio
async def test_opens_over_what_a_host_shares():
    kit = GatewayKit()

    class Ports:
        log = kit.log
        hints = MemoryHints()
        objects = kit.objects
        placement = Placement()
        results = kit.results
        credentials = kit.credentials
        callbacks = Callbacks()
        ids = SnowflakeIds(3, kit.clock)
        clock = kit.clock

    role = open_gateway(Settings(), Ports(), kit.model, "producer")
    await role.start()
    try:
        async with Client(role.url) as client:
            assert (await client.submit(playbook=HELLO)).duplicate is False
    finally:
        await role.stop()
