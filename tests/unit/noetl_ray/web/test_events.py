"""Events and commands over HTTP: outsiders write inboxes only, claims are fenced by the log."""

from __future__ import annotations

import pytest

from noetl_ray.client import Client
from noetl_ray.engine.fold import fold
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.scope import Scope
from noetl_ray.submit.outside import BATCH_MAX, DATA_BYTES_MAX
from noetl_ray.testing.gateway_kit import HELLO, GatewayKit
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.subjects import command_subject, worker_subject

pytestmark = pytest.mark.asyncio


async def begun(kit, http) -> str:
    answer = await http.post("/api/execute", json={"playbook": HELLO})
    execution_id = answer.json()["execution_id"]
    await kit.begin(int(execution_id))
    return execution_id


async def records(kit):
    return [each async for each in kit.log.read("noetl.>")]


async def test_p10_an_outside_event_goes_to_the_inbox_and_changes_no_decision():
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        body = {"execution_id": own, "name": "door.opened", "data": {"by": "Ada", "token": "s3cr"}}
        answer = await http.post("/api/events", json=body)
        assert answer.status_code == 202, answer.text
        assert answer.json()["status"] == "accepted"
        found = (await records(kit))[-1]
        assert found.subject.endswith(f".{own}.inbox")
        (event,) = found.record.events
        assert event.event_type is EventType.EXTERNAL_RECEIVED
        assert event.aggregate_type is AggregateType.INBOX
        assert event.payload == {"name": "door.opened", "data": {"by": "Ada", "token": "***"}}
        before = (await http.get(f"/api/executions/{own}")).json()
        await kit.project()
        after = (await http.get(f"/api/executions/{own}")).json()
        assert after["event_count"] == before["event_count"] + 1
        assert after["status"] == "RUNNING"
        listed = (await http.get(f"/api/events?execution_id={own}")).json()
        assert listed["events"][-1]["event_type"] == "external.received"
        assert listed["next_after"] == found.position


async def test_an_outside_event_delivered_twice_is_folded_once():
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        await http.post("/api/events", json={"execution_id": own, "name": "a"})
    state = None
    for recorded in await records(kit):
        if recorded.record.events[0].execution_id == int(own):
            state = fold(state, recorded)
            assert fold(state, recorded) is state or recorded.record.consumed
    assert not state.pending


async def test_a_key_tells_once_and_only_the_same():
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        body = {"execution_id": own, "name": "a", "data": {"n": 1}, "idempotency_key": "k"}
        first = (await http.post("/api/events", json=body)).json()
        again = (await http.post("/api/events", json=body)).json()
        assert (first["duplicate"], again["duplicate"]) == (False, True)
        assert again["event_id"] == first["event_id"]
        other = await http.post("/api/events", json={**body, "data": {"n": 2}})
        assert other.status_code == 409
        assert "used for other events" in other.json()["error"]["message"]
        told = [r for r in await records(kit) if ".inbox-" in r.subject]
        assert len(told) == 1


async def test_the_client_tells_and_looks():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client:
        own = (await client.submit(playbook=HELLO)).execution_id
        await kit.begin(own)
        first = await client.tell(own, "door.opened", {"by": "Ada"}, idempotency_key="k")
        assert await client.tell(own, "door.opened", {"by": "Ada"}, idempotency_key="k") == first
        (command,) = await client.commands(own)
        assert (command["step"], command["status"]) == ("start", "ISSUED")
        assert await client.commands(own, status="FAILED") == []


async def test_a_batch_is_one_record():
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        events = [{"name": f"n{n}", "data": {"n": n}} for n in range(BATCH_MAX)]
        answer = await http.post("/api/events/batch", json={"execution_id": own, "events": events})
        assert answer.status_code == 202, answer.text
        record = (await records(kit))[-1].record
        kinds = [event.event_type.value for event in record.events]
        assert (kinds[0], kinds[-1]) == ("batch.accepted", "batch.completed")
        assert kinds.count("external.received") == len(answer.json()["event_ids"]) == BATCH_MAX
        assert str(record.events[0].payload["batch_id"]) == answer.json()["batch_id"]
        links = [event.prev_event_id for event in record.events[1:]]
        assert links == [event.event_id for event in record.events[:-1]]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "1..250 events at once, not 0"),
        ([{"name": "a"}] * (BATCH_MAX + 1), "not 251"),
        ([{"name": "a"}, {"name": "call.done"}], "event 1: call.done is written by the runtime"),
        ([{"name": "9 lives"}], "must begin with a letter"),
        ([{"name": "a", "data": {"k": "x" * DATA_BYTES_MAX}}], "keep large data in a store"),
        ([{"name": "a", "data": {"k": "x" * 60_000}}] * 11, "event 9: at most"),
        ([{"data": {}}], "missing required field `name`"),
    ],
)
async def test_bad_events_are_refused_and_nothing_is_written(events, words):
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        before = len(await records(kit))
        answer = await http.post("/api/events/batch", json={"execution_id": own, "events": events})
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]
        assert len(await records(kit)) == before


async def test_who_has_ended_or_is_somebody_elses_is_told_nothing():
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        body = {"execution_id": own, "name": "a"}
        theirs = await http.post("/api/events", json=body, headers={"x-noetl-tenant": "other"})
        assert theirs.status_code == 404
        listed = await http.get(
            f"/api/events?execution_id={own}", headers={"x-noetl-tenant": "other"}
        )
        assert listed.status_code == 404
        await kit.end(int(own), 1)
        late = await http.post("/api/events", json=body)
        assert late.status_code == 409
        assert "has ended" in late.json()["error"]["message"]


async def join(kit, worker_id="w1", kind=EventType.WORKER_JOINED, number=1, **payload):
    event = sample_event(
        8000 + number,
        execution_id=0,
        event_type=kind,
        aggregate_type=AggregateType.WORKER,
        payload={"worker_id": worker_id, "incarnation": "i1", "slots": 1, **payload},
    )
    subject = worker_subject(worker_id)
    await kit.log.append(subject, Record(events=(event,)), expected_version=None)


async def claim(http, own, command, **more):
    body = {
        "execution_id": own,
        "position": command["issued_position"],
        "worker_id": "w1",
        "incarnation": "i1",
        **more,
    }
    return await http.post(f"/api/commands/{command['command_id']}/claim", json=body)


async def test_p16_a_claim_is_an_append_that_one_wins():
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        (listed,) = (await http.get(f"/api/commands?execution_id={own}")).json()["commands"]
        at = f"/api/commands/{listed['command_id']}?execution_id={own}"
        command = (await http.get(at)).json()
        assert command["step"] == "start"
        unknown = await claim(http, own, command)
        assert unknown.status_code == 409
        assert "has not joined" in unknown.json()["error"]["message"]
        await join(kit)
        assert (await claim(http, own, command, position=10_000)).status_code == 404
        taken = await claim(http, own, command)
        assert taken.status_code == 200, taken.text
        last = (await records(kit))[-1]
        scope = Scope()
        shard = kit.deps.submit.shard(scope, "default", int(own))
        assert last.subject == command_subject(shard, scope, int(own), command["command_id"])
        assert last.position == taken.json()["version"]
        assert last.record.events[0].event_type is EventType.COMMAND_CLAIMED
        second = await claim(http, own, command)
        assert second.status_code == 409
        assert "is held by w1" in second.json()["error"]["message"]
        await kit.project()
        row = (await http.get(at)).json()
        assert (row["status"], row["worker_id"]) == ("CLAIMED", "w1")
        only = await http.get(f"/api/commands?execution_id={own}&status=issued")
        assert only.json()["commands"] == []


async def test_a_claim_needs_a_live_worker_and_its_own_tenant():
    kit = GatewayKit()
    async with kit.http() as http:
        own = await begun(kit, http)
        (listed,) = (await http.get(f"/api/commands?execution_id={own}")).json()["commands"]
        at = f"/api/commands/{listed['command_id']}?execution_id={own}"
        command = (await http.get(at)).json()
        await join(kit)
        theirs = {"x-noetl-tenant": "other"}
        http.headers.update(theirs)
        assert (await http.get(at)).status_code == 404
        assert (await claim(http, own, command)).status_code == 404
        http.headers.update({"x-noetl-tenant": ""})
        await join(kit, kind=EventType.WORKER_LOST, number=2, reason="silent")
        assert (await claim(http, own, command)).status_code == 409
        assert (await http.get(f"/api/commands/none?execution_id={own}")).status_code == 404
        bad = await http.get(f"/api/commands?execution_id={own}&status=odd")
        assert bad.status_code == 400
