"""Durable pipelines: what is recorded between tasks, what a later holder skips, what it costs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from noetl_ray.errors import ToolError
from noetl_ray.events.types import TASK_RECORDS, EventType
from tests.unit.actors.rig import ONE, Rig, simulated

SECRET = "swordfish-42"
THREE = """
workflow:
  - step: a
    tool:
      - {name: one, kind: http, url: u, takes: %s}
      - {name: two, kind: http, url: u, takes: %s}
      - {name: three, kind: http, url: "{{ one.n }} {{ two.n }} {{ _prev.n }}", takes: 1}
"""


def ran(rig: Rig) -> list[str]:
    return [call.task for call in rig.calls]


async def lose_worker_in(rig: Rig, body: str, task: str, **submit: Any) -> Any:
    """Run, kill the worker in the middle of a task, and let another take over."""
    rig.cluster()
    await rig.clock.sleep(1)
    execution_id = await rig.submit(body, **submit)
    await rig.until(lambda: task in ran(rig))
    await rig.clock.sleep(0.5)
    rig.loop.kill("w1")
    rig.start("w2", rig.worker("w2"))
    return await rig.ended(execution_id)


@simulated
async def test_p18_a_later_holder_does_not_run_what_is_recorded(rig: Rig) -> None:
    urls: list[str] = []

    def act(config: Any, context: Any) -> Any:
        urls.append(config["url"])
        return {"n": {"one": 1, "two": 2, "three": 3}[context.task]}

    rig.act = act
    state = await lose_worker_in(rig, THREE % (1, 5), "two")
    assert state.status == "COMPLETED"
    assert ran(rig) == ["one", "two", "two", "three"]
    assert rig.calls[1].idempotency_key == rig.calls[2].idempotency_key
    assert urls[-1] == "1 2 2"
    value = await rig.results.load(rig.scope, state.steps["a"].result)
    assert value["results"] == {"one": {"n": 1}, "two": {"n": 2}, "three": {"n": 3}}


@simulated
async def test_p18_records_stand_between_claim_and_completion_in_one_chain(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(THREE % (0, 0))
    state = await rig.ended(execution_id)
    assert state.status == "COMPLETED"
    of_command = [r for r in rig.records() if r.subject.endswith(f".cmd-{execution_id}-a-1")]
    kinds = [[e.event_type.value for e in r.record.events] for r in of_command]
    assert kinds[-3:] == [["task.done"], ["task.done"], ["call.done", "command.completed"]]
    events = [e for r in of_command for e in r.record.events]
    assert all(b.prev_event_id == a.event_id for a, b in pairwise(events))


@simulated
async def test_p19_a_first_dispatch_of_one_task_costs_no_append_and_no_read(rig: Rig) -> None:
    reads: list[int] = []
    real = rig.log.get

    async def get(position: int) -> Any:
        reads.append(position)
        return await real(position)

    rig.log.get = get  # type: ignore[method-assign]
    rig.cluster()
    await rig.clock.sleep(1)
    await rig.ended(await rig.submit(ONE % 0))
    assert reads == []
    assert len([r for r in rig.records() if ".cmd-" in r.subject]) == 1
    assert rig.events(*TASK_RECORDS) == []


@simulated
async def test_p18_a_taken_away_command_refuses_the_record_and_nothing_follows(rig: Rig) -> None:
    rig.cluster(workers=2)
    await rig.clock.sleep(1)
    execution_id = await rig.submit(THREE % (1, 1))
    await rig.until(lambda: rig.calls)
    (issued,) = rig.events(EventType.COMMAND_ISSUED)
    first = issued.payload["claim"]["worker_id"]
    rig.loop.freeze(first)
    await rig.until(lambda: len(rig.calls) >= 3)
    rig.loop.thaw(first)
    await rig.ended(execution_id)
    await rig.clock.sleep(30)
    assert ran(rig) == ["one", "one", "two", "three"]
    assert len(rig.events(*TASK_RECORDS)) == 2


@simulated
async def test_p17_values_of_tasks_have_names_of_their_own_and_large_ones_leave_the_log(
    rig: Rig,
) -> None:
    rig.act = lambda _c, t: {"n": 1, "rows": [f"{t.task}-" + "y" * 100] * 2_000}
    state = await lose_worker_in(rig, THREE % (1, 5), "two")
    assert state.status == "COMPLETED"
    (first, second) = rig.events(EventType.TASK_DONE)
    uris = [e.payload["values"][e.payload["task"]]["reference"]["uri"] for e in (first, second)]
    assert [uri.split("/results/")[1].split("/", 1)[1] for uri in uris] == [
        "a%3Aone/v1.f0/0/1@1",
        "a%3Atwo/v1.f0/0/2@2",
    ]
    assert second.payload["at"] == {
        "one": next(r.position for r in rig.records() if first in r.record.events)
    }
    assert rig.bytes().count(b"y" * 100) < 10
    value = await rig.results.load(rig.scope, state.steps["a"].result)
    assert value["one"]["rows"][0].startswith("one-")


@simulated
async def test_sec_1_no_secret_of_a_pipeline_reaches_its_records(rig: Rig) -> None:
    body = """
workflow:
  - step: a
    tool:
      - {name: login, kind: http, url: u, set: {mine: "{{ output.access_token }}"}}
      - name: use
        kind: http
        url: "{{ login.access_token }} {{ mine }}"
        takes: 5
        spec: {policy: {rules: [{then: {do: continue, set: {ctx.plain: "{{ mine }}"}}}]}}
      - {name: last, kind: http, url: "{{ login.access_token }} {{ mine }} {{ ctx.plain }}"}
"""
    urls: list[str] = []

    async def act(config: Any, context: Any) -> Any:
        urls.append(config["url"])
        if context.task == "login":
            await context.credential("vault")
            return {"access_token": "token-from-outside", "echo": SECRET}
        return {"n": 1}

    rig.act = act
    await rig.credential("vault", password=SECRET)
    state = await lose_worker_in(rig, body, "use")
    assert state.status == "COMPLETED"
    assert ran(rig) == ["login", "use", "use", "last"]
    assert urls[-1] == "token-from-outside token-from-outside token-from-outside"
    assert b"token-from-outside" not in rig.bytes()
    assert SECRET.encode() not in rig.bytes()
    assert not any(SECRET.encode() in data for data in rig.objects._objects.values())


@simulated
async def test_p18_failures_that_were_continued_and_retries_are_recorded_with_their_task(
    rig: Rig,
) -> None:
    body = """
workflow:
  - step: a
    tool:
      - name: one
        kind: http
        url: u
        spec:
          policy:
            rules:
              - {when: "{{ _attempt < 3 }}", then: {do: retry, attempts: 5, delay: 1}}
              - {when: "{{ output.error }}", then: {do: continue}}
      - {name: two, kind: http, url: "{{ output.error.status_code }}", takes: 5}
"""

    def act(config: Any, context: Any) -> Any:
        if context.task == "one":
            msg = "no"
            raise ToolError(msg, "server_error", True, {"status_code": 503})
        return {"url": config["url"]}

    rig.act = act
    state = await lose_worker_in(rig, body, "two")
    assert ran(rig) == ["one", "one", "one", "two", "two"]
    (record,) = [
        r.record for r in rig.records() if r.record.events[-1].event_type is EventType.TASK_FAILED
    ]
    assert [e.event_type.value for e in record.events] == [
        "task.attempt.failed",
        "task.attempt.failed",
        "task.failed",
    ]
    assert record.events[-1].payload["error"]["status_code"] == 503
    value = await rig.results.load(rig.scope, state.steps["a"].result)
    assert value["url"] == "503"
    assert len(rig.events(EventType.TASK_ATTEMPT_FAILED)) == 2


@simulated
async def test_p18_iterations_of_a_loop_go_on_from_their_own_records(rig: Rig) -> None:
    body = """
workflow:
  - step: a
    loop: {in: [x, y], iterator: row, spec: {mode: parallel}}
    tool:
      - {name: one, kind: http, url: "{{ row }}", set: {iter.mine: "{{ row }}1"}}
      - {name: two, kind: http, url: "{{ row }} {{ iter.mine }}", takes: 5}
"""
    rig.act = lambda c, _t: {"url": c["url"]}
    state = await lose_worker_in(rig, body, "two")
    assert sorted(ran(rig)) == ["one", "one", "two", "two", "two", "two"]
    value = await rig.results.load(rig.scope, state.steps["a"].result)
    assert [one["url"] for one in value["results"]] == ["x x1", "y y1"]
