"""The HTTP API over memory adapters: what it takes, what it answers, in whose scope."""

from __future__ import annotations

import asyncio
import io

import msgspec
import pyarrow.feather as feather
import pytest

from noetl_ray.errors import LogUnavailableError
from noetl_ray.scope import Scope
from noetl_ray.testing.gateway_kit import HELLO, GatewayKit
from noetl_ray.wal.tasklog import LogLine

ROWS = [{"id": n, "name": f"n{n}"} for n in range(3)]


async def submitted(http, **body):
    answer = await http.post("/api/execute", json={"playbook": HELLO, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.asyncio
async def test_register_list_execute():
    kit = GatewayKit()
    async with kit.http() as http:
        first = (await http.post("/api/catalog/register", json={"content": HELLO})).json()
        again = (await http.post("/api/catalog/register", json={"content": HELLO})).json()
        assert (first["status"], again["status"]) == ("registered", "unchanged")
        assert first["version"] == again["version"] == 1
        await kit.project()
        listed = (await http.get("/api/catalog")).json()["playbooks"]
        assert [row["path"] for row in listed] == ["kit/hello"]
        for named in (
            {"path": "kit/hello"},
            {"catalog_id": first["catalog_id"]},
            {"path": "kit/hello", "version": "latest", "workload": {"a": 1}},
        ):
            answer = await http.post("/api/execute", json=named)
            body = answer.json()
            assert answer.status_code == 200, body
            assert body["execution_id"].isdigit()
            assert body["playbook"]["version"] == 1


@pytest.mark.asyncio
async def test_idempotency_key_from_body_or_header():
    kit = GatewayKit()
    async with kit.http() as http:
        first = await submitted(http, idempotency_key="k")
        answer = await http.post(
            "/api/execute", json={"path": "kit/hello"}, headers={"Idempotency-Key": "k"}
        )
        assert answer.json()["execution_id"] == first["execution_id"]
        assert answer.json()["duplicate"] is True
        other = {"path": "kit/hello", "payload": {"x": 1}, "idempotency_key": "k"}
        answer = await http.post("/api/execute", json=other)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


@pytest.mark.asyncio
async def test_one_execution_from_submit_to_result():
    kit = GatewayKit()
    async with kit.http() as http:
        execution_id = (await submitted(http, payload={"n": 5}))["execution_id"]
        base = f"/api/executions/{execution_id}"
        assert (await http.get(base)).status_code == 404
        await kit.begin(int(execution_id))
        status = (await http.get(f"{base}/status")).json()
        assert status["status"] == "RUNNING"
        assert (status["completed"], status["current_step"]) == (False, "start")
        assert status["variables"]["n"] == 5
        timed_out = (await http.get(f"{base}/wait?timeout=0.01")).json()
        assert (timed_out["timed_out"], timed_out["status"]) == (True, "RUNNING")
        waiting = asyncio.create_task(http.get(f"{base}/wait?timeout=5"))
        await asyncio.sleep(0)
        await kit.end(int(execution_id), ROWS)
        ended = (await waiting).json()
        assert (ended["timed_out"], ended["status"]) == (False, "COMPLETED")
        row = (await http.get(base)).json()
        assert row["execution_id"] == execution_id
        assert isinstance(row["last_event_id"], str)
        found = (await http.get(f"{base}/results/start")).json()
        assert found["result"] == ROWS
        arrow = await http.get(
            f"{base}/results/start", headers={"Accept": "application/vnd.apache.arrow.file"}
        )
        assert feather.read_table(io.BytesIO(arrow.content)).to_pylist() == ROWS
        assert (await http.get(f"{base}/results/none")).status_code == 404


@pytest.mark.asyncio
async def test_large_results_come_from_the_tier_and_secrets_stay_masked():
    kit = GatewayKit()
    async with kit.http() as http:
        execution_id = (await submitted(http, payload={"api_key": "hunter22"}))["execution_id"]
        value = [{"id": n, "text": "x" * 200, "password": "hunter22"} for n in range(2000)]
        await kit.run(int(execution_id), value)
        base = f"/api/executions/{execution_id}"
        for path in ("", "/status", "/events", "/results/start"):
            answer = await http.get(base + path)
            assert answer.status_code == 200
            assert "hunter22" not in answer.text
        arrow = await http.get(
            f"{base}/results/start", headers={"Accept": "application/vnd.apache.arrow.file"}
        )
        assert b"hunter22" not in arrow.content
        assert feather.read_table(io.BytesIO(arrow.content)).num_rows == 2000


@pytest.mark.asyncio
async def test_events_and_logs_page():
    kit = GatewayKit()
    async with kit.http() as http:
        execution_id = (await submitted(http))["execution_id"]
        await kit.run(int(execution_id), {"ok": True})
        line = LogLine(
            tenant_id="default",
            organization_id="default",
            execution_id=int(execution_id),
            step="start",
            task="t",
            attempt=1,
            stream="stdout",
            time_ms=0,
            text="hello",
        )
        await kit.project(lines=(line, msgspec.structs.replace(line, step="other")))
        base = f"/api/executions/{execution_id}"
        seen, after = [], 0
        while True:
            page = (await http.get(f"{base}/events?after={after}&limit=1")).json()
            if not page["events"]:
                break
            seen += [event["event_type"] for event in page["events"]]
            after = page["next_after"]
        assert seen[0] == "execution.requested"
        assert seen[-1] == "playbook.completed"
        whole = (await http.get(f"{base}/events")).json()["events"]
        assert len(whole) == len(seen)
        assert all(isinstance(event["event_id"], str) for event in whole)
        lines = (await http.get(f"{base}/logs?step=start")).json()
        assert [each["text"] for each in lines["lines"]] == ["hello"]
        rest = (await http.get(f"{base}/logs?after={lines['next_after']}")).json()
        assert [each["step"] for each in rest["lines"]] == ["other"]


@pytest.mark.asyncio
async def test_batch_and_wait_for_many():
    kit = GatewayKit()
    async with kit.http() as http:
        await http.post("/api/catalog/register", json={"content": HELLO})
        items = [{"path": "kit/hello"}] * 20 + [{"path": "kit/none"}]
        answers = (await http.post("/api/execute/batch", json={"items": items})).json()["items"]
        assert answers[-1]["error"]["code"] == "not_found"
        ids = [answer["execution_id"] for answer in answers[:-1]]
        assert len(set(ids)) == 20
        for execution_id in ids[:-1]:
            await kit.run(int(execution_id), {})
        body = {"ids": ids, "timeout": 0.03}
        found = (await http.post("/api/executions/wait", json=body)).json()
        assert found["pending"] == ids[-1:]
        assert [row["execution_id"] for row in found["executions"]] == ids[:-1]
        listed = (await http.get("/api/executions?status=completed&limit=5")).json()
        assert len(listed["executions"]) == 5
        older = await http.get(f"/api/executions?before={listed['next_before']}&limit=100")
        assert len(older.json()["executions"]) >= 14
        assert (await http.get("/api/executions?status=odd")).status_code == 400


@pytest.mark.asyncio
async def test_cancel_and_rerun():
    kit = GatewayKit()
    async with kit.http() as http:
        started = await submitted(http, idempotency_key="k", payload={"n": 1})
        execution_id = started["execution_id"]
        base = f"/api/executions/{execution_id}"
        await kit.project()
        answer = await http.post(f"{base}/cancel", json={"reason": "enough"})
        assert (answer.status_code, answer.json()["status"]) == (202, "cancel_requested")
        again = (await http.post(f"{base}/rerun")).json()
        assert again["rerun_of"] == execution_id
        assert again["execution_id"] != execution_id
        await kit.run(int(again["execution_id"]), {})
        ended = await http.post(f"/api/executions/{again['execution_id']}/cancel")
        assert ended.status_code == 409
        assert (await http.post("/api/executions/99/cancel")).status_code == 404


@pytest.mark.asyncio
async def test_scopes_never_meet():
    kit = GatewayKit()
    async with kit.http() as http, kit.http(headers={"x-noetl-tenant": "other"}) as foreign:
        execution_id = (await submitted(http))["execution_id"]
        await kit.run(int(execution_id), {"ok": True})
        base = f"/api/executions/{execution_id}"
        for path in ("", "/status", "/events", "/logs", "/results/start", "/wait?timeout=0"):
            assert (await foreign.get(base + path)).status_code == 404
        assert (await foreign.post(f"{base}/rerun")).status_code == 404
        assert (await foreign.get("/api/executions")).json()["executions"] == []
        assert (await foreign.post("/api/execute", json={"path": "kit/hello"})).status_code == 404
        bad = await http.get("/api/executions", headers={"x-noetl-tenant": "a/b"})
        assert bad.status_code == 400


@pytest.mark.asyncio
async def test_credentials_go_in_and_never_out():
    kit = GatewayKit()
    async with kit.http() as http:
        body = {"name": "pg_local", "type": "postgres", "data": {"db_password": "hunter22"}}
        added = await http.post("/api/credentials", json=body)
        assert added.status_code == 201
        listed = await http.get("/api/credentials")
        assert listed.json()["credentials"][0]["fields"] == ["db_password"]
        assert "hunter22" not in added.text + listed.text
        assert (await kit.credentials.get(Scope(), "pg_local")).data == body["data"]
        assert (await http.delete("/api/credentials/pg_local")).status_code == 200
        assert (await http.delete("/api/credentials/pg_local")).status_code == 404


@pytest.mark.asyncio
async def test_validate_lists_every_problem():
    kit = GatewayKit()
    async with kit.http() as http:
        good = (await http.post("/api/validate", json={"content": HELLO})).json()
        assert (good["valid"], good["steps"]) == (True, ["start"])
        bad = (await http.post("/api/validate", json={"content": "kind: Playbook"})).json()
        assert bad["valid"] is False
        assert bad["problems"]
        refused = await http.post("/api/catalog/register", json={"content": "kind: Playbook"})
        assert refused.status_code == 422
        assert refused.json()["error"]["problems"] == bad["problems"]


@pytest.mark.asyncio
async def test_health_metrics_workers_and_openapi():
    kit = GatewayKit()
    async with kit.http() as http:
        await submitted(http)
        health = (await http.get("/api/health")).json()
        assert (health["status"], health["log_position"]) == ("ok", 2)
        page = (await http.get("/metrics")).text
        assert 'noetl_gateway_executions_submitted_total{duplicate="false"} 1.0' in page
        assert 'route="/api/execute"' in page
        assert (await http.get("/api/workers")).json() == {"workers": []}
        assert "/api/execute" in (await http.get("/openapi.json")).json()["paths"]


@pytest.mark.asyncio
async def test_an_unreachable_log_is_503_with_a_hint(monkeypatch):
    kit = GatewayKit()

    async def away(*_, **__):
        msg = "no ack in time"
        raise LogUnavailableError(msg)

    async with kit.http() as http:
        await http.post("/api/catalog/register", json={"content": HELLO})
        monkeypatch.setattr(kit.log, "append", away)
        monkeypatch.setattr(kit.log, "last_position", away)
        answer = await http.post("/api/execute", json={"path": "kit/hello"})
        assert answer.status_code == 503
        assert answer.json()["error"]["hint"]
        assert (await http.get("/api/health")).status_code == 503
