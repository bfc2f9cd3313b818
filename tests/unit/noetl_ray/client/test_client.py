"""The client against the real app: typed values out, our own errors back."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from noetl_ray.client import Client, Execution, ExecutionStatus, Request, Started
from noetl_ray.config.settings import Settings
from noetl_ray.errors import (
    ConflictError,
    InternalError,
    NotFoundError,
    PlaybookError,
    StoreUnavailableError,
    UsageError,
)
from noetl_ray.testing.gateway_kit import HELLO, GatewayKit, with_gateway
from noetl_ray.wal.tasklog import LogLine

ROWS = [{"id": n, "name": f"n{n}"} for n in range(3)]


def client_of(kit, **more):
    return Client("http://127.0.0.1", http=kit.http(), **more)


@pytest.mark.asyncio
async def test_a_whole_walk():
    kit = GatewayKit()
    async with client_of(kit) as client:
        registered = await client.register(HELLO)
        assert (registered.path, registered.version) == ("kit/hello", 1)
        started = await client.submit("kit/hello", workload={"n": 1})
        assert isinstance(started, Started)
        assert isinstance(started.execution_id, int)
        await kit.begin(started.execution_id)
        waiting = asyncio.create_task(client.wait(started.execution_id, timeout_s=5))
        await asyncio.sleep(0)
        await kit.end(started.execution_id, ROWS)
        ended = await waiting
        assert isinstance(ended, Execution)
        assert (ended.ended, ended.succeeded) == (True, True)
        assert ended.steps["start"].status == "completed"
        status = await client.status(started.execution_id)
        assert isinstance(status, ExecutionStatus)
        assert (status.completed, status.failed) == (True, False)
        assert status.completed_steps == ("start",)
        assert status.variables["n"] == 1
        assert await client.result(started.execution_id, "start") == ROWS
        table = await client.result_table(started.execution_id, "start")
        assert table.to_pylist() == ROWS
        assert [each.execution_id for each in await client.executions()] == [started.execution_id]
        again = await client.rerun(started.execution_id)
        assert again.execution_id != started.execution_id


@pytest.mark.asyncio
async def test_a_result_that_is_no_table():
    kit = GatewayKit()
    async with client_of(kit) as client:
        started = await client.submit(playbook=HELLO)
        await kit.run(started.execution_id, "just text")
        with pytest.raises(UsageError):
            await client.result_table(started.execution_id, "start")


@pytest.mark.asyncio
async def test_events_and_logs_are_followed_to_the_end(monkeypatch):
    monkeypatch.setattr("noetl_ray.client.client.POLL_S", 0.01)
    kit = GatewayKit()
    async with client_of(kit) as client:
        started = await client.submit(playbook=HELLO)
        await kit.begin(started.execution_id)

        async def collect():
            return [e.event_type async for e in client.events(started.execution_id, follow=True)]

        following = asyncio.create_task(collect())
        await asyncio.sleep(0.02)
        before = [e async for e in client.events(started.execution_id)]
        assert before[-1].event_type == "command.issued"
        line = LogLine(
            tenant_id="default", organization_id="default", execution_id=started.execution_id,
            step="start", task="t", attempt=1, stream="stdout", time_ms=0, text="hello",
        )  # fmt: skip
        await kit.project(lines=(line,))
        await kit.end(started.execution_id, {})
        seen = await asyncio.wait_for(following, 5)
        assert (seen[0], seen[-1]) == ("execution.requested", "playbook.completed")
        lines = [each async for each in client.logs(started.execution_id, follow=True)]
        assert [(each.step, each.text) for each in lines] == [("start", "hello")]


@pytest.mark.asyncio
async def test_many():
    kit = GatewayKit()
    async with client_of(kit) as client:
        await client.register(HELLO)
        items = [Request(path="kit/hello", idempotency_key=f"k{n}") for n in range(12)]
        found = await client.submit_many([*items, Request(path="kit/none")])
        assert isinstance(found[-1], NotFoundError)
        ids = [each.execution_id for each in found[:-1]]
        for execution_id in ids[1:]:
            await kit.run(execution_id, {})
        ended = await client.wait_many(ids, timeout_s=0.1)
        assert sorted(ended) == sorted(ids[1:])
        with pytest.raises(StoreUnavailableError, match="has not ended"):
            await client.wait(ids[0], timeout_s=0.01)
        repeated = await client.submit_many(items)
        assert [each.execution_id for each in repeated] == ids
        assert all(each.duplicate for each in repeated)


@pytest.mark.asyncio
async def test_errors_come_back_as_ours():
    kit = GatewayKit()
    async with client_of(kit) as client:
        with pytest.raises(PlaybookError) as caught:
            await client.register("kind: Playbook")
        assert caught.value.problems
        assert not (await client.validate("kind: Playbook")).valid
        assert (await client.validate(HELLO)).steps == ("start",)
        with pytest.raises(NotFoundError):
            await client.submit("kit/none")
        with pytest.raises(UsageError):
            await client.submit()
        await client.submit(playbook=HELLO, idempotency_key="k")
        with pytest.raises(ConflictError):
            await client.submit(playbook=HELLO, workload={"n": 1}, idempotency_key="k")
        for question in (client.status(7), client.result(7, "start"), client.cancel(7)):
            with pytest.raises(NotFoundError):
                await question


@pytest.mark.asyncio
async def test_cancel():
    kit = GatewayKit()
    async with client_of(kit) as client:
        started = await client.submit(playbook=HELLO)
        await client.cancel(started.execution_id, "enough")
        await kit.run(started.execution_id, {})
        with pytest.raises(ConflictError):
            await client.cancel(started.execution_id)


@pytest.mark.asyncio
async def test_pause_and_resume():
    kit = GatewayKit()
    async with client_of(kit) as client:
        started = await client.submit(playbook=HELLO)
        await client.pause(started.execution_id, "look")
        await client.resume(started.execution_id)
        await kit.run(started.execution_id, {})
        with pytest.raises(ConflictError, match="has ended"):
            await client.pause(started.execution_id)
        with pytest.raises(NotFoundError):
            await client.resume(started.execution_id + 1)


@pytest.mark.asyncio
async def test_credentials_and_health():
    kit = GatewayKit()
    async with client_of(kit) as client:
        await client.credential_add("pg/a", "postgres", {"password": "hunter22"})
        found = await client.credential_list()
        assert [(each.name, each.fields) for each in found] == [("pg/a", ("password",))]
        assert await client.credential_remove("pg/a") is True
        assert await client.credential_remove("pg/a") is False
        health = await client.health()
        assert (health.status, health.log_position) == ("ok", 0)
        assert await client.workers() == []


@pytest.mark.asyncio
async def test_token_and_scope_travel():
    kit = GatewayKit(settings=with_gateway(Settings(), host="0.0.0.0", token="s3cret"))
    with pytest.raises(UsageError, match="bearer token"):
        await client_of(kit).executions()
    async with client_of(kit, token="s3cret") as client:
        started = await client.submit(playbook=HELLO)
        await kit.project()
        assert (await client.execution(started.execution_id)).status == "PENDING"
    async with client_of(kit, token="s3cret", tenant="other") as other:
        with pytest.raises(NotFoundError):
            await other.execution(started.execution_id)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (httpx.ConnectError("refused"), StoreUnavailableError, "noetl-ray up"),
        (httpx.ReadTimeout("slow"), StoreUnavailableError, "no answer in time"),
        (httpx.UnsupportedProtocol("ftp"), UsageError, "not an address"),
        (httpx.Response(502, text="bad gateway"), StoreUnavailableError, "502"),
        (httpx.Response(418, text="teapot"), UsageError, "418"),
        (httpx.Response(200, text="<html>"), UsageError, "does not answer like"),
        (httpx.Response(500, json={"error": {"code": "internal", "message": "bug"}}),
         InternalError, "bug"),
        (httpx.Response(503, json={"error": {"code": "new", "message": "m", "hint": "h"}}),
         StoreUnavailableError, r"m \(h\)"),
    ],
)  # fmt: skip
async def test_what_goes_wrong_on_the_way(answer, expected, words):
    def handle(_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    http = httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://gateway")
    async with http, Client("http://gateway", http=http) as client:
        with pytest.raises(expected, match=words):
            await client.health()
