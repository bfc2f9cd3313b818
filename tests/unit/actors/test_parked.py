"""What waits is held by nobody: retries, timers and callbacks over the roles, with crashes."""

from __future__ import annotations

import pytest

from noetl_ray.errors import ConflictError, NotFoundError, ToolError
from noetl_ray.events.types import EventType
from noetl_ray.submit import cancel_execution, pause_execution, resume_execution
from noetl_ray.submit.callbacks import Answered, answer_callback, find_wait
from noetl_ray.submit.tokens import CallbackTarget, CallbackTokens, token_digest
from tests.unit.actors.rig import Rig, simulated

RETRY = """
workflow:
  - step: a
    tool:
      - name: first
        kind: http
        url: u
      - name: second
        kind: http
        url: u
        spec:
          policy:
            rules: [{when: "{{ output.error }}", then: {do: retry, attempts: 3, delay: 30}}]
"""
TIMER = """
workflow:
  - step: a
    tool:
      - {name: before, kind: http, url: u}
      - {name: sleep, kind: wait, for: 1m30s}
      - {name: after, kind: http, url: u}
"""
ASK = """
workflow:
  - step: ask
    tool:
      - {name: send, kind: http, url: u, value: "{{ callback.url }}"}
      - {name: answer, kind: callback, timeout: 90, message: order 7}
      - {name: use, kind: http, url: u, value: {got: "{{ answer.amount }}"}}
    next: done
  - {step: done, tool: {kind: noop, result: "{{ ask.got }}"}}
"""
BUSY = "busy"
OTHER = "workflow: [{step: a, tool: {kind: http, url: u}}]"


def parked(rig: Rig) -> list[str]:
    return [event.payload["wait"]["kind"] for event in rig.events(EventType.TASK_PARKED)]


async def answer(rig: Rig, token: str, data: object) -> Answered:
    target = rig.tokens.read(token)
    return await answer_callback(rig.submit_ports, target, token_digest(token), data)


def token_of(rig: Rig) -> str:
    """What the first task was told to send, as the outside world saw it."""
    return str(rig.seen[0]).rpartition("/")[2]


def watch(rig: Rig) -> None:
    rig.seen = []  # type: ignore[attr-defined]

    def act(config, _context):
        rig.seen.append(config.get("value"))  # type: ignore[attr-defined]
        return config.get("value") or {}

    rig.act = act


@simulated
async def test_p18_a_long_retry_frees_its_place_and_repeats_nothing_before_it(rig: Rig) -> None:
    def act(_config, context):
        if context.task == "second" and context.attempt < 3:
            raise ToolError(BUSY, "server_error", True)
        return {"n": context.attempt}

    rig.act = act
    rig.cluster(slots=1)
    first = await rig.submit(RETRY)
    await rig.until(lambda: parked(rig) == ["retry"])
    other = await rig.submit(OTHER)
    # The one place of the one worker is free while the other waits.
    await rig.ended(other, within_s=10)
    state = await rig.ended(first, within_s=200, look_s=1)
    assert state.status == "COMPLETED"
    assert [c.task for c in rig.calls if c.execution_id == first] == [
        "first", "second", "second", "second",
    ]  # fmt: skip
    assert [c.attempt for c in rig.calls if c.task == "second"] == [1, 2, 3]
    assert len({c.idempotency_key for c in rig.calls if c.task == "second"}) == 1
    assert len(rig.events(EventType.TASK_ATTEMPT_FAILED)) == 2


@simulated
async def test_seb_7_a_timer_survives_a_restart_of_everything(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(TIMER)
    await rig.until(lambda: parked(rig))
    began = rig.clock.now_ms()
    for process in ("c", "k", "w1"):
        rig.loop.kill(process)
    await rig.clock.sleep(30)
    rig.start("c2", rig.conductor("c2"))
    rig.start("k2", rig.keeper("k2"))
    rig.start("w2", rig.worker("w2", process="w2"))
    state = await rig.ended(execution_id, within_s=200, look_s=1)
    assert state.status == "COMPLETED"
    assert [c.task for c in rig.calls] == ["before", "after"]
    (resumed,) = rig.events(EventType.COMMAND_RESUMED)
    assert resumed.payload["reason"] == "due"
    assert 89_000 < rig.clock.now_ms() - began < 95_000


@simulated
async def test_p4_the_due_time_is_in_the_log_and_so_is_the_moment_it_was_taken(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(TIMER)
    await rig.until(lambda: parked(rig))
    (wait,) = [e.payload["wait"] for e in rig.events(EventType.TASK_PARKED)]
    assert rig.state(execution_id).due == {f"{execution_id}-a-1": wait["until_ms"]}
    state = await rig.ended(execution_id, within_s=200, look_s=1)
    assert (state.due, state.steps["a"].status) == ({}, "completed")


@simulated
async def test_p10_an_answer_becomes_the_tasks_result(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    watch(rig)
    rig.cluster(slots=1)
    execution_id = await rig.submit(ASK)
    await rig.until(lambda: parked(rig) == ["callback"])
    other = await rig.submit(OTHER)
    await rig.ended(other, within_s=10)
    found = await answer(rig, token_of(rig), {"amount": 12})
    assert not found.duplicate
    state = await rig.ended(execution_id, within_s=30)
    assert state.status == "COMPLETED"
    assert state.steps["done"].result["extracted"] == 12
    assert await answer_is(rig, {"amount": 12}) == "duplicate"
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == []
    assert "answered before, with something else" in await answer_is(rig, {"amount": 13})


async def answer_is(rig: Rig, data: object) -> str:
    try:
        found = await answer(rig, token_of(rig), data)
    except ConflictError as error:
        return error.message
    return "duplicate" if found.duplicate else "accepted"


@simulated
async def test_the_token_is_nowhere_in_the_log(rig: Rig) -> None:
    watch(rig)
    rig.cluster()
    await rig.submit(ASK)
    await rig.until(lambda: parked(rig))
    token = token_of(rig)
    assert rig.seen[0] == f"http://gate/api/callbacks/{token}"
    assert token.encode() not in rig.bytes()
    assert token_digest(token).encode() in rig.bytes()


@simulated
async def test_an_answer_may_come_before_the_wait_begins(rig: Rig) -> None:
    watch(rig)
    rig.cluster()
    execution_id = await rig.submit(
        ASK.replace("send, kind: http, url: u", "send, kind: http, url: u, takes: 0")
    )
    slow = rig.act

    async def act(config, context):
        made = slow(config, context)
        if context.task == "send":
            await answer(rig, token_of(rig), {"amount": 5})
            await rig.clock.sleep(3)
        return made

    rig.act = act
    state = await rig.ended(execution_id, within_s=60)
    assert state.status == "COMPLETED"
    assert state.steps["done"].result["extracted"] == 5
    assert [e.payload["reason"] for e in rig.events(EventType.COMMAND_RESUMED)] == ["answered"]


@simulated
async def test_a_wait_without_an_answer_ends_at_its_deadline(rig: Rig) -> None:
    watch(rig)
    rig.cluster()
    execution_id = await rig.submit(ASK)
    await rig.until(lambda: parked(rig))
    state = await rig.ended(execution_id, within_s=200, look_s=1)
    assert state.status == "FAILED"
    assert (state.error["kind"], state.error["task"]) == ("timeout", "answer")
    assert "has ended" in await answer_is(rig, {"amount": 1})


@simulated
async def test_an_answer_after_the_deadline_is_told_so(rig: Rig) -> None:
    watch(rig)
    rig.cluster()
    await rig.submit(ASK)
    await rig.until(lambda: parked(rig))
    # Nobody is there to take the deadline.
    rig.loop.kill("c")
    await rig.clock.sleep(100)
    assert "too late: an answer was waited for until" in await answer_is(rig, {"amount": 1})


@simulated
async def test_whoever_goes_on_after_an_answer_and_dies_is_followed_by_one_who_has_it(
    rig: Rig,
) -> None:
    watch(rig)
    rig.cluster(workers=2)
    execution_id = await rig.submit(
        ASK.replace("name: use, kind: http, url: u", "name: use, kind: http, url: u, takes: 20")
    )
    await rig.until(lambda: parked(rig))
    await answer(rig, token_of(rig), {"amount": 9})
    await rig.until(lambda: any(c.task == "use" for c in rig.calls))
    holder = rig.events(EventType.COMMAND_RESUMED)[0].payload["claim"]["worker_id"]
    rig.loop.kill(holder)
    state = await rig.ended(execution_id, within_s=120)
    assert state.steps["done"].result["extracted"] == 9
    assert [c.task for c in rig.calls] == ["send", "use", "use"]


@simulated
async def test_people_answer_by_step(rig: Rig) -> None:
    watch(rig)
    rig.cluster()
    execution_id = await rig.submit(ASK)
    await rig.until(lambda: parked(rig))
    ports, scope = rig.submit_ports, rig.scope
    with pytest.raises(NotFoundError, match="steps that do: ask"):
        await find_wait(ports, scope, execution_id, "done", project_id="default")
    target, key = await find_wait(ports, scope, execution_id, "ask", project_id="default")
    await answer_callback(ports, target, key, {"amount": 3})
    state = await rig.ended(execution_id, within_s=30)
    assert state.steps["done"].result["extracted"] == 3


@simulated
async def test_a_paused_execution_lets_no_wait_end(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(TIMER)
    await rig.until(lambda: parked(rig))
    await pause_execution(rig.submit_ports, rig.scope, execution_id, "wait")
    await rig.clock.sleep(120)
    assert rig.events(EventType.COMMAND_RESUMED) == []
    await resume_execution(rig.submit_ports, rig.scope, execution_id)
    assert (await rig.ended(execution_id, within_s=10)).status == "COMPLETED"


@simulated
async def test_a_parked_execution_is_cancelled_at_once(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(TIMER)
    await rig.until(lambda: parked(rig))
    await cancel_execution(rig.submit_ports, rig.scope, execution_id, "no")
    state = await rig.ended(execution_id, within_s=5)
    assert (state.status, state.due) == ("CANCELLED", {})


@simulated
async def test_items_of_a_loop_wait_side_by_side(rig: Rig) -> None:
    """Twenty wait at once on a worker with one place, in the time of one."""
    rig.cluster(slots=1)
    body = """
workflow:
  - step: a
    loop: {in: "{{ range(20) | list }}", iterator: x, spec: {mode: parallel, max_in_flight: 20}}
    tool: {kind: wait, for: 30}
"""
    began = rig.clock.monotonic()
    execution_id = await rig.submit(body)
    state = await rig.ended(execution_id, within_s=60, look_s=1)
    assert state.status == "COMPLETED"
    assert rig.clock.monotonic() - began < 45
    assert len(rig.events(EventType.COMMAND_RESUMED)) == 20


@simulated
async def test_a_short_wait_costs_no_record(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit("workflow: [{step: a, tool: {kind: wait, for: 0.5}}]")
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert parked(rig) == []


def test_a_token_cannot_be_made_up_or_altered() -> None:
    tokens = CallbackTokens(b"k" * 32)
    from noetl_ray.scope import Scope

    target = CallbackTarget(
        scope=Scope(), project_id="p", execution_id=7, command_id="7-a-1", task="t", round=0
    )
    token = tokens.make(target)
    assert tokens.read(token) == target
    named, _, mac = token.partition(".")
    other = CallbackTokens(b"l" * 32)
    for bad in (
        "",
        "x",
        named,
        f"{named}.",
        f"{named}.{mac[::-1]}",
        f"A{token}",
        other.make(target),
    ):
        with pytest.raises(NotFoundError, match="no callback of this deployment"):
            tokens.read(bad)
