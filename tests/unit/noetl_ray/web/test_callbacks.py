"""Callbacks over HTTP: the token is all the permission, and an answer counts once."""

from __future__ import annotations

import httpx
import pytest

from noetl_ray.config.settings import GatewaySettings, Settings
from noetl_ray.submit.tokens import CallbackTarget
from noetl_ray.testing.gateway_kit import HELLO, GatewayKit

TOKEN = "t" * 20


async def begun(kit: GatewayKit, http: httpx.AsyncClient) -> tuple[int, str]:
    """An execution, and a token of one of its tasks that has not begun to wait."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    answer = await http.post("/api/execute", json={"playbook": HELLO}, headers=headers)
    execution_id = int(answer.json()["execution_id"])
    target = CallbackTarget(
        scope=kit.scope,
        project_id="default",
        execution_id=execution_id,
        command_id=f"{execution_id}-start-1",
        task="start_task",
        round=0,
    )
    return execution_id, f"/api/callbacks/{kit.tokens.make(target)}"


def guarded() -> GatewayKit:
    return GatewayKit(settings=Settings(gateway=GatewaySettings(token=TOKEN)))


@pytest.mark.asyncio
async def test_an_answer_counts_once_and_needs_no_bearer_token():
    kit = guarded()
    async with kit.http() as http:
        http.headers.pop("authorization", None)
        _, path = await begun(kit, http)
        first = await http.post(path, json={"amount": 3})
        assert (first.status_code, first.json()["status"]) == (202, "accepted")
        again = await http.post(path, json={"amount": 3})
        assert (again.status_code, again.json()["status"]) == (200, "duplicate")
        other = await http.post(path, json={"amount": 4})
        assert other.status_code == 409
        assert "with something else" in other.json()["error"]["message"]


@pytest.mark.asyncio
async def test_what_is_no_token_learns_nothing():
    kit = guarded()
    async with kit.http() as http:
        http.headers.pop("authorization", None)
        _, path = await begun(kit, http)
        for bad in (path[:-1], path + "x", "/api/callbacks/abc"):
            answer = await http.post(bad, json={})
            assert answer.status_code == 404
            assert answer.json()["error"]["message"] == "this is no callback of this deployment"
        assert (await http.get("/api/executions")).status_code == 401


@pytest.mark.asyncio
async def test_an_answer_is_json_and_of_bounded_size(monkeypatch):
    kit = guarded()
    monkeypatch.setattr("noetl_ray.submit.callbacks.ANSWER_BYTES_MAX", 100)
    async with kit.http() as http:
        _, path = await begun(kit, http)
        answer = await http.post(path, content=b"{")
        assert answer.status_code == 400
        assert "an answer is JSON" in answer.json()["error"]["message"]
        answer = await http.post(path, json={"text": "x" * 200})
        assert answer.status_code == 400
        assert "at most 100 bytes" in answer.json()["error"]["message"]
        assert (await http.post(path)).status_code == 202


@pytest.mark.asyncio
async def test_a_large_or_secret_answer_stays_out_of_the_log():
    kit = guarded()
    async with kit.http() as http:
        for body in ({"text": "y" * 20_000}, {"password": "hunter2"}):
            _, path = await begun(kit, http)
            assert (await http.post(path, json=body)).status_code == 202
    data = repr([r.record for r in kit.log._records if r is not None])
    assert "hunter2" not in data
    assert "yyyy" not in data


@pytest.mark.asyncio
async def test_after_the_end_an_answer_is_refused_in_words():
    kit = guarded()
    async with kit.http() as http:
        execution_id, path = await begun(kit, http)
        await kit.run(execution_id, {})
        answer = await http.post(path, json={})
        assert answer.status_code == 409
        assert "has ended" in answer.json()["error"]["message"]


@pytest.mark.asyncio
async def test_by_step_one_needs_permission_and_a_wait():
    kit = guarded()
    async with kit.http() as http:
        http.headers.pop("authorization", None)
        execution_id, _ = await begun(kit, http)
        path = f"/api/executions/{execution_id}/callbacks/start"
        assert (await http.post(path, json={})).status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = await http.post(path, json={}, headers=headers)
        assert answer.status_code == 404
        assert "waits for no answer" in answer.json()["error"]["message"]
