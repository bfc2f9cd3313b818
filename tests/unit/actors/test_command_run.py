"""One command: bytes before the event, coordinates per visit, no secrets, failures as facts."""

from __future__ import annotations

from typing import Any

import pytest

from actors.completion import SET_BYTES_MAX, count_rows
from noetl_ray.errors import LogUnavailableError, StoreUnavailableError, ToolError
from noetl_ray.events.types import EventType
from tests.unit.actors.rig import ONE, Rig, simulated

DOWN = "down"
SECRET = "swordfish-42"


@simulated
async def test_persist_before_emit_a_large_result_is_durable_before_its_event(rig: Rig) -> None:
    seen: list[bool] = []

    async def look(subject: str, record: Any) -> None:
        for event in record.events:
            if event.event_type is EventType.CALL_DONE:
                reference = event.payload["result"]["reference"]
                seen.append(await rig.results.load(rig.scope, event.payload["result"]) is not None)
                assert reference["uri"].startswith("noetl://")

    rig.on_append = look
    rig.act = lambda _c, _t: {"rows": [{"i": i, "t": "x" * 50} for i in range(5_000)]}
    rig.cluster()
    state = await rig.ended(await rig.submit(ONE % 0))
    assert seen == [True]
    assert state.steps["a"].rows == 5_000
    assert b"x" * 50 not in rig.bytes().split(b'"call.done"')[1][5_000:]


@simulated
async def test_p17_coordinates_separate_visits_of_a_step(rig: Rig) -> None:
    body = """
workload: {n: 0}
workflow:
  - step: page
    tool: {kind: http, url: u}
    set: {ctx.n: "{{ ctx.n + 1 }}"}
    next: {arcs: [{step: page, when: "{{ ctx.n < 3 }}"}]}
"""
    rig.act = lambda _c, t: {"page": t.idempotency_key, "rows": ["y" * 100] * 2_000}
    rig.cluster()
    await rig.ended(await rig.submit(body))
    uris = [e.payload["result"]["reference"]["uri"] for e in rig.events(EventType.CALL_DONE)]
    assert [uri.split("/")[-3] for uri in uris] == ["v1.f0", "v2.f0", "v3.f0"]
    blocks = [e.payload["result"] for e in rig.events(EventType.CALL_DONE)]
    pages = [(await rig.results.load(rig.scope, block))["page"] for block in blocks]
    assert len(set(pages)) == 3


@simulated
async def test_p17_a_second_holder_writes_beside_the_first(rig: Rig) -> None:
    rig.act = lambda _c, _t: {"rows": ["y" * 100] * 2_000}
    rig.cluster()
    await rig.clock.sleep(1)
    execution_id = await rig.submit(ONE % 3)
    await rig.until(lambda: rig.calls)
    rig.loop.kill("w1")
    rig.start("w2", rig.worker("w2"))
    state = await rig.ended(execution_id)
    uri = state.steps["a"].result["reference"]["uri"]
    assert uri.endswith("/v1.f0/0/2@1")
    assert rig.calls[0].idempotency_key == rig.calls[1].idempotency_key


@simulated
async def test_retries_are_recorded_before_the_outcome(rig: Rig) -> None:
    body = """
workflow:
  - step: a
    tool:
      kind: http
      url: u
      spec:
        policy:
          rules: [{when: "{{ output.error }}", then: {do: retry, attempts: 3, delay: 0.5}}]
"""

    def act(_config: Any, context: Any) -> Any:
        if context.attempt < 3:
            msg = f"no {context.attempt}"
            raise ToolError(msg, "server_error", True, {"status_code": 503})
        return {"ok": True}

    rig.act = act
    rig.cluster()
    await rig.ended(await rig.submit(body))
    failed = rig.events(EventType.TASK_ATTEMPT_FAILED)
    assert [(e.payload["attempt"], e.payload["delay_s"]) for e in failed] == [(1, 0.5), (2, 0.5)]
    assert failed[0].payload["error"]["status_code"] == 503
    (record,) = [r.record for r in rig.records() if failed[0] in r.record.events]
    assert [e.event_type.value for e in record.events] == [
        "task.attempt.failed",
        "task.attempt.failed",
        "call.done",
        "command.completed",
    ]
    assert record.events[2].payload["runs"] == 3


@simulated
async def test_a_failure_is_a_call_error_with_the_payload_the_tool_had(rig: Rig) -> None:
    def act(_config: Any, _context: Any) -> Any:
        msg = "gone"
        raise ToolError(msg, "not_found", False, {"status_code": 404}, {"body": "nothing here"})

    rig.act = act
    rig.cluster()
    state = await rig.ended(await rig.submit(ONE % 0))
    assert state.status == "FAILED"
    (call,) = rig.events(EventType.CALL_ERROR)
    assert call.payload["error"]["kind"] == "not_found"
    assert call.payload["result"]["status"] == "error"
    assert call.payload["result"]["extracted"] == {"body": "nothing here"}
    (ended,) = rig.events(EventType.COMMAND_FAILED)
    assert ended.prev_event_id == call.event_id


@simulated
async def test_a_store_out_of_reach_is_no_failure_of_the_step(rig: Rig) -> None:
    async def down(operation: str, key: str) -> None:
        if rig.loop.time() < 30:
            raise StoreUnavailableError(DOWN)

    rig.act = lambda _c, _t: {"rows": ["y" * 100] * 2_000}
    rig.cluster()
    execution_id = await rig.submit(ONE % 2)
    await rig.until(lambda: rig.calls)
    rig.objects.fault = down
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert rig.finished == 1
    assert rig.loop.time() > 30


@simulated
async def test_the_work_is_done_so_the_completion_is_kept_trying(rig: Rig) -> None:
    async def down(subject: str, record: Any) -> None:
        if ".cmd-" in subject and rig.loop.time() < 120:
            raise LogUnavailableError(DOWN)

    rig.on_append = down
    rig.cluster()
    assert (await rig.ended(await rig.submit(ONE % 0), within_s=600)).status == "COMPLETED"
    assert rig.finished == 1


@simulated
async def test_variables_too_large_for_the_log_fail_the_step(rig: Rig) -> None:
    body = """
workflow:
  - step: a
    tool:
      kind: http
      url: u
      spec: {policy: {rules: [{then: {do: continue, set: {ctx.all: "{{ output.data }}"}}}]}}
"""
    rig.act = lambda _c, _t: {"rows": "y" * (SET_BYTES_MAX + 1)}
    rig.cluster()
    state = await rig.ended(await rig.submit(body))
    assert state.status == "FAILED"
    assert "leave large values in the step's result" in state.error["message"]
    assert rig.finished == 1


@pytest.mark.parametrize(
    "value",
    [{"n": 1 << 80}, {"t": "\udcff"}, {1: {2, 3}}, float("nan"), b"\xff", object],
    ids=["big", "surrogate", "keys", "nan", "bytes", "class"],
)
@simulated
async def test_whatever_a_tool_returns_is_recorded(rig: Rig, value: Any) -> None:
    rig.act = lambda _c, _t: value
    rig.cluster()
    assert (await rig.ended(await rig.submit(ONE % 0), within_s=5)).status == "COMPLETED"
    assert rig.finished == 1


# SEC-1 and P28: what is secret stays out of the log


async def _leak(rig: Rig, body: str, **submit: Any) -> Any:
    await rig.credential("vault", password=SECRET, host="db.example", user="reader")
    rig.cluster()
    return await rig.ended(await rig.submit(body, **submit))


@simulated
async def test_sec_1_a_credential_in_result_error_and_print_is_redacted(rig: Rig) -> None:
    body = """
workflow:
  - step: ok
    tool: {kind: http, url: u, value: {say: 1}}
    next: bad
  - step: bad
    tool:
      kind: http
      url: u
      spec:
        policy:
          rules:
            - when: "{{ output.error }}"
              then: {do: retry, attempts: 2, set: {ctx.why: "{{ output.error.message }}"}}
"""

    async def act(config: Any, context: Any) -> Any:
        found = await context.credential("vault")
        context.log("stdout", f"connecting with {found.data['password']} to {found.data['host']}")
        if context.step == "bad":
            msg = f"refused: password={SECRET}"
            raise ToolError(msg, "auth", False, {"dsn": f"pg://reader:{SECRET}@db.example"})
        return {"echo": f"Bearer {SECRET}", "host": found.data["host"], SECRET: 1}

    rig.act = act
    state = await _leak(rig, body)
    assert state.status == "FAILED"
    assert SECRET.encode() not in rig.bytes()
    assert state.error["message"] == "refused: password=***"
    assert state.steps["ok"].result["extracted"] == {
        "echo": "Bearer ***",
        "host": "db.example",
        "***": 1,
    }
    await rig.clock.sleep(1)
    lines = [line.text for b in rig.tasklog._batches for line in b.lines]
    assert lines[0] == "connecting with *** to db.example"


@simulated
async def test_p28_a_result_with_credential_keys_goes_whole_to_the_tier(rig: Rig) -> None:
    """Playbooks that log in still work: the next step's templates read the token."""
    body = """
workflow:
  - {step: login, tool: {kind: http, url: login}, next: use}
  - {step: use, tool: {kind: http, url: "use", header: "Bearer {{ login.access_token }}"}}
"""
    seen = []

    def act(config: Any, context: Any) -> Any:
        if context.step == "login":
            return {"access_token": SECRET, "expires": 3600}
        seen.append(config["header"])
        context.log("stdout", f"sending {config['header']}")
        msg = f"rejected {config['header']}"
        raise ToolError(msg, "auth")

    rig.act = act
    state = await _leak(rig, body)
    assert seen == [f"Bearer {SECRET}"]
    assert SECRET.encode() not in rig.bytes()
    assert state.steps["login"].result["extracted"] == {"access_token": "***", "expires": 3600}
    assert state.error["message"] == "rejected Bearer ***"
    await rig.clock.sleep(1)
    assert all(SECRET not in line.text for b in rig.tasklog._batches for line in b.lines)


@simulated
async def test_sec_1_a_secret_of_the_workload_is_read_and_not_told(rig: Rig) -> None:
    body = """
workflow:
  - step: a
    tool:
      kind: http
      url: "u?key={{ workload.api_key }}"
      spec:
        policy:
          rules:
            - then: {do: fail, set: {ctx.session_token: "{{ workload.api_key }}", ctx.n: 1}}
"""
    seen = []

    def act(config: Any, _context: Any) -> Any:
        seen.append(config["url"])
        msg = f"no answer from {config['url']}"
        raise ToolError(msg, "connection", True)

    rig.act = act
    state = await _leak(rig, body, workload={"api_key": SECRET, "plain": 1})
    assert seen == [f"u?key={SECRET}"]
    assert SECRET.encode() not in rig.bytes()
    assert state.error["message"] == "no answer from u?key=***"
    assert state.ctx == {"session_token": "***", "n": 1}
    (call,) = rig.events(EventType.CALL_ERROR)
    assert call.payload["warnings"] == ["set session_token looks like a credential and is not kept"]


@simulated
async def test_sec_1_a_secret_of_the_result_is_no_variable_by_another_name(rig: Rig) -> None:
    body = """
workflow:
  - step: a
    tool:
      kind: http
      url: u
      spec:
        policy:
          rules:
            - then: {do: continue, set: {ctx.innocent: "Bearer {{ output.data.token }}", ctx.n: 1}}
"""
    rig.act = lambda _config, _context: {"token": SECRET}
    state = await _leak(rig, body)
    assert SECRET.encode() not in rig.bytes()
    assert state.ctx == {"innocent": "Bearer ***", "n": 1}
    (call,) = rig.events(EventType.CALL_DONE)
    assert call.payload["warnings"] == ["set innocent looks like a credential and is not kept"]


@simulated
async def test_p24_python_that_asks_gets_its_names_others_do_not(rig: Rig) -> None:
    rig.cluster()
    await rig.ended(await rig.submit(ONE % 0, workload={"x": 1}))
    assert rig.calls[0].names == {}


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        ([1, 2], 2),
        ({"rows": [1, 2, 3]}, 3),
        ({"rows": [], "row_count": 7}, 7),
        ({"row_count": 4}, 4),
        ({"x": 1}, None),
        ("text", None),
        ({"rows": 5}, None),
    ],
)
def test_rows_are_counted_where_there_are_rows(value: Any, rows: int | None) -> None:
    assert count_rows(value) == rows
