"""Keychain values in commands: tasks get them, and no byte of log, store or print does."""

from __future__ import annotations

from typing import Any

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ToolError
from noetl_ray.events.types import EventType
from tests.unit.actors.rig import Rig, simulated

STORED = "client-secret-swordfish"
TOKEN = "token-marlin-77"
BODY = """
workload: {auth_url: "https://auth.example/token"}
keychain:
  - {name: app, kind: credential, credential: app_login}
  - name: api
    kind: oauth2
    endpoint: "{{ workload.auth_url }}"
    data: {client_secret: "{{ keychain.app.secret }}"}
  - {name: broken, kind: env, variable: NOT_ALLOWED}
workflow:
  - step: a
    tool:
      - {name: one, kind: http, url: u, headers: {x: "{{ keychain.api.access_token }}"}}
      - name: two
        kind: http
        url: u
        set: {ctx.kept: "{{ keychain.api.access_token }}", held: "{{ keychain.api.access_token }}"}
      - {name: three, kind: http, url: "{{ held }}"}
    next: b
  - step: b
    tool: {kind: http, url: u, auth: api}
"""


def answer(rig: Rig) -> Any:
    async def act(config: dict[str, Any], context: Any) -> Any:
        if "auth" in config:
            await context.credential(config["auth"])
        if context.task.startswith("keychain."):
            assert config["data"] == {"client_secret": STORED}
            return {"data": {"access_token": TOKEN, "expires_in": 3600}}
        context.log("stdout", f"saw {config.get('headers')}")
        return {"echo": config.get("headers", {}), "listed": [TOKEN, STORED]}

    rig.act = act
    return act


async def started(rig: Rig) -> None:
    await rig.credentials.put(
        rig.scope, Credential(name="app_login", type="app", data={"secret": STORED})
    )
    rig.cluster()


@simulated
async def test_tasks_get_values_and_nothing_else_does(rig: Rig) -> None:
    answer(rig)
    await started(rig)
    state = await rig.ended(await rig.submit(BODY))
    assert state.status == "COMPLETED"
    tasks = [call.task for call in rig.calls]
    assert tasks == ["keychain.api", "one", "two", "three", "b_task"], (
        "one request for the execution"
    )
    stored = [await rig.objects.get(one.key) async for one in rig.objects.list("noetl")]
    everything = rig.bytes() + b"".join(stored)
    for secret in (TOKEN, STORED):
        assert secret.encode() not in everything
    assert state.steps["b"].result["extracted"] == {"echo": {}, "listed": ["***", "***"]}
    assert TOKEN not in str(state.ctx)
    printed = str(await rig.tasklog.read_after(0, max_batches=100, timeout_s=1))
    assert "saw {'x': '***'}" in printed
    assert TOKEN not in printed


@simulated
async def test_auth_names_an_entry(rig: Rig) -> None:
    seen: list[Any] = []

    async def act(config: dict[str, Any], context: Any) -> Any:
        if context.task.startswith("keychain."):
            return {"data": {"access_token": TOKEN}}
        seen.append(await context.credential(str(config["auth"])))
        return {}

    rig.act = act
    await started(rig)
    body = BODY[: BODY.index("workflow:")] + (
        "workflow: [{step: b, tool: {kind: http, url: u, auth: \"{{ 'ap' ~ 'i' }}\"}}]"
    )
    await rig.ended(await rig.submit(body))
    assert [(one.name, one.type) for one in seen] == [("api", "bearer")]
    assert seen[0].data["access_token"] == TOKEN


@simulated
async def test_a_failing_entry_fails_only_the_task_that_needs_it(rig: Rig) -> None:
    body = (
        BODY[: BODY.index("workflow:")]
        + """
workflow:
  - step: a
    tool:
      - name: needs
        kind: http
        url: "{{ keychain.broken.value }}"
        spec: {policy: {rules: [{when: "{{ output.error.kind == 'auth' }}", then: {do: continue}}]}}
      - {name: plain, kind: http, url: u}
    next: b
  - step: b
    tool: {kind: http, url: "{{ keychain.broken.value }}"}
"""
    )
    await started(rig)
    state = await rig.ended(await rig.submit(body))
    assert [call.task for call in rig.calls] == ["plain"]
    assert state.status == "FAILED"
    (failed,) = rig.events(EventType.CALL_ERROR)
    error = failed.payload["error"]
    assert error["kind"] == "auth"
    assert error["keychain"] == "broken"
    assert "runtime.allowed_env" in error["message"]


@simulated
async def test_a_retry_after_a_refusal_gets_a_new_token(rig: Rig) -> None:
    given: list[str] = []

    def act(config: dict[str, Any], context: Any) -> Any:
        if context.task.startswith("keychain."):
            given.append(f"token-{len(given)}-abcdef")
            return {"data": {"access_token": given[-1]}}
        if config["headers"]["x"] == "token-0-abcdef":
            msg = f"refused {config['headers']['x']}"
            raise ToolError(msg, "auth")
        return {"ok": True}

    rig.act = act
    await started(rig)
    body = (
        BODY[: BODY.index("workflow:")]
        + """
workflow:
  - step: a
    tool:
      kind: http
      url: u
      headers: {x: "{{ keychain.api.access_token }}"}
      spec: {policy: {rules: [{when: "{{ output.error }}", then: {do: retry, attempts: 2}}]}}
"""
    )
    assert (await rig.ended(await rig.submit(body))).status == "COMPLETED"
    assert len(given) == 2
    (failed,) = rig.events(EventType.TASK_ATTEMPT_FAILED)
    assert failed.payload["error"]["message"] == "refused ***"
