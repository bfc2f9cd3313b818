"""Catalog, business objects and children over HTTP: shapes, scope, limits, errors."""

from __future__ import annotations

import pytest

from noetl_ray.client import BusinessObject, Client, PlaybookText
from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.testing.gateway_kit import HELLO, GatewayKit
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.subjects import command_subject

pytestmark = pytest.mark.asyncio
SECOND = HELLO.replace("hi", "hello")


def client_of(kit, **more):
    return Client("http://127.0.0.1", http=kit.http(), **more)


async def test_versions_and_show_are_there_at_once():
    kit = GatewayKit()
    async with kit.http() as http:
        for text in (HELLO, SECOND, SECOND):
            await http.post("/api/catalog/register", json={"content": text})
        # Nothing is projected: these two are read from the log.
        found = (await http.get("/api/catalog/versions?path=kit/hello")).json()
        assert [each["version"] for each in found["versions"]] == [2, 1]
        assert found["next_before"] is None
        page = (await http.get("/api/catalog/versions?path=kit/hello&limit=1")).json()
        assert page["next_before"] == 2
        rest = (await http.get("/api/catalog/versions?path=kit/hello&before=2")).json()
        assert [each["version"] for each in rest["versions"]] == [1]
        shown = (await http.get("/api/catalog/show?path=kit/hello")).json()
        assert (shown["version"], shown["content"]) == (2, SECOND)
        assert shown["catalog_id"] == shown["digest"]
        assert shown["size_bytes"] == len(SECOND.encode())
        first = (await http.get("/api/catalog/show?path=kit/hello&version=1")).json()
        assert first["content"] == HELLO
        by_digest = f"/api/catalog/show?path=kit/hello&digest={first['digest']}"
        assert (await http.get(by_digest)).json()["version"] == 1


async def test_p12_a_version_pins_what_runs_whatever_is_registered_later():
    kit = GatewayKit()
    async with client_of(kit) as client:
        await client.register(HELLO)
        first = await client.submit("kit/hello")
        await client.register(SECOND)
        newest = await client.submit("kit/hello")
        again = await client.submit("kit/hello", version=1)
        assert [one.playbook["version"] for one in (first, newest, again)] == [1, 2, 1]
        assert first.playbook["digest"] == again.playbook["digest"]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("show?path=kit/helo", 404, "did you mean 'kit/hello'?"),
        ("versions?path=nothing/like/it", 404, "noetl-ray register FILE"),
        ("show?path=kit/hello&version=9", 404, "its newest version is 1"),
        ("show?path=kit/hello&version=x", 400, "'x' is not a number"),
        ("versions?path=kit/hello&limit=0", 422, "limit"),
        ("show", 422, "path"),
    ],
)
async def test_bad_questions(query, status, words):
    kit = GatewayKit()
    async with kit.http() as http:
        await http.post("/api/catalog/register", json={"content": HELLO})
        await kit.project()
        answer = await http.get(f"/api/catalog/{query}")
        assert answer.status_code == status
        assert words in answer.json()["error"]["message"]


async def test_execute_by_an_unknown_catalog_id_or_path():
    kit = GatewayKit()
    async with kit.http() as http:
        await http.post("/api/catalog/register", json={"content": HELLO})
        await kit.project()
        answer = await http.post("/api/execute", json={"catalog_id": "0" * 64})
        assert answer.status_code == 404
        assert "no playbook with digest" in answer.json()["error"]["message"]
        answer = await http.post("/api/execute", json={"path": "kit/hallo"})
        assert answer.status_code == 404
        assert "did you mean 'kit/hello'?" in answer.json()["error"]["message"]


async def test_another_tenant_has_another_catalog():
    kit = GatewayKit()
    async with client_of(kit) as client, client_of(kit, tenant="other") as other:
        await client.register(HELLO)
        assert isinstance(await client.playbook("kit/hello"), PlaybookText)
        with pytest.raises(NotFoundError):
            await other.playbook("kit/hello")
        with pytest.raises(NotFoundError):
            await other.playbook_versions("kit/hello")
        await kit.project()
        assert [each.path for each in await client.catalog()] == ["kit/hello"]
        assert await other.catalog() == []


async def say(kit, number, **payload):
    event = sample_event(
        9000 + number,
        event_type=EventType.BUSINESS_OBJECT_RECORDED,
        aggregate_type=AggregateType.BUSINESS_OBJECT,
        command_id=f"7:s:{number}",
        idempotency_key=str(number),
        payload={"type": "order", "id": "1", "step": "s", **payload},
    )
    subject = command_subject(3, kit.scope, 7, event.command_id)
    await kit.log.append(subject, Record(events=(event,)), expected_version=0)
    await kit.project()


async def test_business_objects_and_their_history():
    kit = GatewayKit()
    await say(kit, 1, status="new", attributes={"password": "x", "n": 1})
    await say(kit, 2, status="paid")
    await say(kit, 3, type="bill", id="a/b", status="new")
    async with client_of(kit) as client, client_of(kit, tenant="other") as other:
        found = await client.business_objects()
        assert [(each.type, each.id, each.status) for each in found] == [
            ("bill", "a/b", "new"),
            ("order", "1", "paid"),
        ]
        assert await client.business_objects("order", status="new") == []
        history = await client.business_object_history("order", "1")
        assert [each.status for each in history] == ["paid", "new"]
        assert history[1].attributes == {"password": "***", "n": 1}
        assert isinstance(history[0], BusinessObject)
        assert (history[0].execution_id, history[0].event_id) == (7, 9002)
        older = await client.business_object_history("order", "1", before=history[0].version)
        assert [each.status for each in older] == ["new"]
        assert len(await client.business_object_history(execution_id=7)) == 3
        assert await other.business_objects() == []
        assert await other.business_object_history(execution_id=7) == []
        with pytest.raises(UsageError, match="type and id"):
            await client.business_object_history("order")


async def test_a_status_shows_parent_and_children():
    kit = GatewayKit()
    async with client_of(kit) as client:
        parent = (await client.submit(playbook=HELLO)).execution_id
        child = (await client.submit("kit/hello", parent_execution_id=parent)).execution_id
        for each in (parent, child):
            await kit.begin(each)
        await kit.end(child, 1)
        status = await client.status(parent)
        assert status.parent_execution_id is None
        (found,) = status.children
        assert found["execution_id"] == str(child)
        assert (found["path"], found["status"]) == ("kit/hello", "COMPLETED")
        assert (await client.status(child)).parent_execution_id == parent
        assert [each.execution_id for each in await client.executions(parent=parent)] == [child]
