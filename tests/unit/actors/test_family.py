"""Sub-playbooks over memory adapters: who sends what, how often, and what crashes change (P13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noetl_ray.events.envelope import Event, Record
from noetl_ray.events.types import EventType
from noetl_ray.submit import cancel_execution, register_playbook
from noetl_ray.wal.subjects import control_subject, keyed_inbox_subject, submit_subject
from tests.simulation.invariants import check_records
from tests.unit.actors.rig import SHARDS, Rig, book, simulated

PARENT = """\
workflow:
  - step: call
    tool: {kind: playbook, path: child, input: {n: 3}, return_step: work}
    next: after
  - step: after
    tool: {kind: http, url: u, value: "{{ call }}"}
"""
CHILD = """\
workload: {n: 1, m: 7}
workflow:
  - step: work
    tool: {kind: http, url: u, takes: %s, value: {sum: "{{ workload.n + workload.m }}"}}
    next: last
  - step: last
    tool: {kind: noop, result: {ignored: true}}
"""


async def register(rig: Rig, body: str, name: str = "child") -> None:
    await register_playbook(rig.submit_ports, rig.scope, book(body, name))


def asked(rig: Rig) -> list[Event]:
    return [e for e in rig.events(EventType.EXECUTION_REQUESTED) if e.payload.get("parent")]


def child_id(rig: Rig) -> int:
    (event,) = rig.events(EventType.CHILD_REQUESTED)
    return int(event.payload["child_execution_id"])


async def value_of(rig: Rig, execution_id: int, step: str) -> Any:
    block = rig.state(execution_id).steps[step].result
    assert block is not None
    return await rig.results.load(rig.scope, block)


@simulated
async def test_p13_a_child_runs_and_its_result_is_the_steps(rig: Rig) -> None:
    await register(rig, CHILD % 0)
    rig.cluster()
    parent = await rig.submit(PARENT)
    state = await rig.ended(parent)
    assert state.status == "COMPLETED", state.error
    child = child_id(rig)
    assert await value_of(rig, parent, "call") == {
        "status": "completed",
        "execution_id": str(child),
        "path": "child",
        "version": 1,
        "completed": True,
        "failed": False,
        "sum": 10,
    }
    mine = rig.state(child)
    assert (mine.status, mine.parent_execution_id, mine.depth) == ("COMPLETED", parent, 1)
    assert not state.children
    assert check_records(rig.records()) == []


@simulated
async def test_p13_the_parents_decision_names_the_child_before_anybody_asks_for_it(
    rig: Rig,
) -> None:
    await register(rig, CHILD % 0)
    rig.cluster()
    parent = await rig.submit(PARENT)
    await rig.ended(parent)
    child = child_id(rig)
    position: dict[str, int] = {}
    for recorded in rig.records():
        for event in recorded.record.events:
            if event.event_type is EventType.CHILD_REQUESTED:
                position["decided"] = recorded.position
            elif event.execution_id == child:
                position.setdefault("asked", recorded.position)
            elif event.event_type is EventType.CHILD_ENDED:
                position["ended"] = recorded.position
                assert recorded.subject == keyed_inbox_subject(
                    rig.state(parent).shard, rig.scope, parent, f"child/{child}"
                )
    assert position["decided"] < position["asked"] < position["ended"]
    last = await rig.log.last(submit_subject(rig.state(child).shard, rig.scope, child))
    assert last is not None
    assert last.position == position["asked"]


def dies_with(rig: Rig, *messages: Callable[[Event], bool]) -> list[str]:
    """The conductor dies with each of these messages in its hand; another begins from the log."""
    lost: list[str] = []
    waiting = list(messages)

    async def refuse(_subject: str, record: Record) -> None:
        event = record.events[0]
        if not waiting or not waiting[0](event):
            return
        del waiting[0]
        rig.loop.kill(f"c{len(lost)}")
        lost.append(event.event_type.value)
        rig.loop.spawn("", again(f"c{len(lost)}"))
        await rig.clock.sleep(1)

    async def again(name: str) -> None:
        await rig.clock.sleep(1)
        rig.start(name, rig.conductor(name))

    rig.on_append = refuse
    rig.start("c0", rig.conductor("c0"))
    rig.start("k", rig.keeper())
    rig.start("w1", rig.worker())
    return lost


def asks(event: Event) -> bool:
    return event.event_type is EventType.EXECUTION_REQUESTED and bool(event.payload.get("parent"))


def answers(event: Event) -> bool:
    return event.event_type is EventType.CHILD_ENDED


def cancels(event: Event) -> bool:
    return event.event_type is EventType.EXECUTION_CANCEL_REQUESTED


@simulated
async def test_p13_what_was_not_sent_before_a_crash_is_sent_after_it(rig: Rig) -> None:
    await register(rig, CHILD % 0)
    lost = dies_with(rig, asks, answers)
    parent = await rig.submit(PARENT)
    state = await rig.ended(parent)
    assert state.status == "COMPLETED", state.error
    assert lost == ["execution.requested", "child.ended"]
    assert len(asked(rig)) == 1
    assert len(rig.events(EventType.CHILD_ENDED)) == 1
    assert check_records(rig.records()) == []


@simulated
async def test_p13_two_conductors_ask_for_one_child_and_answer_once(rig: Rig) -> None:
    await register(rig, CHILD % 1)
    rig.cluster(workers=2)
    rig.start("c2", rig.conductor("c2"))
    parent = await rig.submit(PARENT)
    assert (await rig.ended(parent)).status == "COMPLETED"
    await rig.clock.sleep(80)
    assert (len(asked(rig)), len(rig.events(EventType.CHILD_ENDED))) == (1, 1)
    assert sum(call.step == "work" for call in rig.calls) == 1
    assert check_records(rig.records()) == []


@simulated
async def test_no_slot_is_held_while_a_child_runs(rig: Rig) -> None:
    """One worker with one slot runs a parent, its child and its grandchild."""
    await register(rig, CHILD % 5)
    await register(rig, PARENT, "middle")
    rig.cluster(slots=1)
    parent = await rig.submit(PARENT.replace("path: child", "path: middle"))
    state = await rig.ended(parent)
    assert state.status == "COMPLETED", state.error
    assert [rig.state(e.execution_id).depth for e in asked(rig)] == [1, 2]


@simulated
async def test_a_pipeline_goes_on_after_its_child(rig: Rig) -> None:
    body = """\
workflow:
  - step: all
    tool:
      - {name: first, kind: http, url: u, value: {n: 4}}
      - {name: call, kind: playbook, path: child, input: {n: "{{ first.n }}"}, return_step: work}
      - {name: last, kind: http, url: u, value: {got: "{{ call.sum }}", prev: "{{ _prev.sum }}"}}
"""
    await register(rig, CHILD % 0)
    rig.cluster()
    parent = await rig.submit(body)
    assert (await rig.ended(parent)).status == "COMPLETED"
    assert (await value_of(rig, parent, "all"))["last"] == {"got": 11, "prev": 11}
    assert [call.task for call in rig.calls if call.step == "all"] == ["first", "last"]


@simulated
async def test_a_worker_lost_after_the_answer_changes_nothing(rig: Rig) -> None:
    await register(rig, CHILD % 0)
    rig.cluster()
    body = PARENT.replace("    next: after\n", "").split("  - step: after")[0]
    body = body.replace(
        "tool: {kind: playbook, path: child, input: {n: 3}, return_step: work}",
        "tool: [{name: c, kind: playbook, path: child}, {name: t, kind: http, url: u, takes: 5}]",
    )
    parent = await rig.submit(body)
    await rig.until(lambda: any(call.task == "t" for call in rig.calls))
    rig.loop.kill("w1")
    rig.start("w1again", rig.worker("w1", incarnation="i2", process="w1again"))
    assert (await rig.ended(parent)).status == "COMPLETED"
    assert len(asked(rig)) == 1


FAILING = """\
workflow:
  - step: work
    tool: {kind: http, url: u, value: "{{ nothing.at.all | tojson | int / 0 }}"}
"""


@simulated
async def test_a_failed_child_is_a_failed_outcome_that_arcs_may_take(rig: Rig) -> None:
    body = """\
workflow:
  - step: call
    tool: {kind: playbook, path: child}
    next:
      arcs: [{step: mend, when: "{{ output.status == 'error' }}"}]
  - step: mend
    tool: {kind: http, url: u, value: "{{ workload }}"}
"""
    await register(rig, FAILING)
    rig.cluster()
    parent = await rig.submit(body)
    state = await rig.ended(parent)
    assert (state.status, state.failures_handled) == ("COMPLETED", 1)
    error = state.steps["call"].error
    assert error is not None
    assert error["code"] == "PLAYBOOK_FAILED"
    assert error["child_execution_id"] == str(child_id(rig))
    assert error["message"].startswith(f"playbook 'child' (execution {child_id(rig)}) failed in st")


@simulated
async def test_a_policy_may_call_again(rig: Rig) -> None:
    """Each attempt is a child of its own."""
    body = """\
workflow:
  - step: call
    tool:
      kind: playbook
      path: child
      spec:
        policy:
          rules:
            - {when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3, delay: 1}}
"""
    await register(rig, FAILING)
    rig.cluster()
    parent = await rig.submit(body)
    assert (await rig.ended(parent)).status == "FAILED"
    assert len({e.execution_id for e in asked(rig)}) == 3
    assert len(rig.events(EventType.TASK_ATTEMPT_FAILED)) == 2


@simulated
async def test_a_cancel_goes_on_to_children_and_theirs(rig: Rig) -> None:
    await register(rig, CHILD % 50)
    await register(rig, PARENT, "middle")
    rig.cluster()
    parent = await rig.submit(PARENT.replace("path: child", "path: middle"))
    await rig.until(lambda: len(asked(rig)) == 2 and rig.calls)
    await cancel_execution(rig.submit_ports, rig.scope, parent, "enough")
    for execution_id in (parent, *(e.execution_id for e in asked(rig))):
        state = await rig.ended(execution_id, within_s=10)
        assert state.status == "CANCELLED"
    assert check_records(rig.records()) == []


@simulated
async def test_p13_a_child_whose_parents_cancel_got_lost_cancels_itself(rig: Rig) -> None:
    """Whoever decided the cancel died before it told the child."""
    await register(rig, CHILD % 300)
    lost = dies_with(rig, lambda event: cancels(event) and event.execution_id != parent)
    parent = await rig.submit(PARENT)
    await rig.until(lambda: bool(rig.calls))
    await cancel_execution(rig.submit_ports, rig.scope, parent, "enough")
    assert (await rig.ended(parent)).status == "CANCELLED"
    state = await rig.ended(child_id(rig), within_s=70)
    assert state.cancel_reason == f"its parent, execution {parent}, was cancelled"
    assert lost == ["execution.cancel.requested"]


@simulated
async def test_without_cascade_children_go_on(rig: Rig) -> None:
    await register(rig, CHILD % 5)
    rig.cluster()
    parent = await rig.submit(PARENT)
    await rig.until(lambda: bool(rig.calls))
    await cancel_execution(rig.submit_ports, rig.scope, parent, "just this", cascade=False)
    assert (await rig.ended(parent)).status == "CANCELLED"
    assert (await rig.ended(child_id(rig))).status == "COMPLETED"


@simulated
async def test_a_child_that_takes_too_long_is_cancelled_and_its_task_fails(rig: Rig) -> None:
    body = PARENT.replace("path: child", "path: child, timeout: 5")
    await register(rig, CHILD % 100)
    rig.cluster()
    parent = await rig.submit(body)
    state = await rig.ended(parent)
    assert state.status == "FAILED"
    assert state.error is not None
    assert (state.error["kind"], state.error["retryable"]) == ("timeout", True)
    assert (await rig.ended(child_id(rig))).status == "CANCELLED"


@simulated
async def test_a_parent_may_go_on_without_waiting(rig: Rig) -> None:
    body = PARENT.replace("path: child", "path: child, wait: false")
    await register(rig, CHILD % 20)
    rig.cluster()
    parent = await rig.submit(body)
    assert (await rig.ended(parent, within_s=10)).status == "COMPLETED"
    child = child_id(rig)
    assert await value_of(rig, parent, "call") == {
        "status": "started",
        "execution_id": str(child),
        "path": "child",
        "version": 1,
        "async": True,
    }
    assert (await rig.ended(child)).status == "COMPLETED"
    assert len(rig.events(EventType.CHILD_ENDED)) == 1


@simulated
async def test_every_item_of_a_loop_may_have_a_child(rig: Rig) -> None:
    body = """\
workflow:
  - step: each
    loop: {in: [1, 2, 3, 4, 5], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool:
      kind: playbook
      path: child
      input: {n: "{{ n }}"}
      return_step: work
      return_result: true
"""
    await register(rig, CHILD % 1)
    rig.cluster()
    parent = await rig.submit(body)
    assert (await rig.ended(parent)).status == "COMPLETED"
    assert (await value_of(rig, parent, "each"))["results"] == [{"sum": 7 + n} for n in range(1, 6)]
    running = most = 0
    for event in rig.events(EventType.CHILD_REQUESTED, EventType.CHILD_ENDED):
        running += 1 if event.event_type is EventType.CHILD_REQUESTED else -1
        most = max(most, running)
    assert most == 2


@simulated
async def test_a_playbook_that_calls_itself_for_ever_is_stopped(rig: Rig) -> None:
    await register(rig, "workflow: [{step: a, tool: {kind: playbook, path: again}}]", "again")
    rig.cluster()
    parent = await rig.submit("workflow: [{step: a, tool: {kind: playbook, path: again}}]")
    state = await rig.ended(parent, within_s=600)
    assert state.status == "FAILED"
    assert len(asked(rig)) == 32
    assert state.error is not None
    assert "playbooks call each other 32 deep; does 'again' call itself" in state.error["message"]


@simulated
async def test_a_playbook_that_is_not_there_fails_the_task_and_says_what_to_do(rig: Rig) -> None:
    rig.cluster()
    parent = await rig.submit(PARENT)
    state = await rig.ended(parent)
    assert state.error is not None
    assert state.error["kind"] == "not_found"
    assert "no playbook 'child' is registered; register its file first" in state.error["message"]


@simulated
async def test_p12_the_version_is_pinned_when_the_child_is_asked_for(rig: Rig) -> None:
    await register(rig, CHILD % 0)
    await register(rig, CHILD % 1)
    body = PARENT.replace("path: child", "path: child, version: '{{ 0 + 1 }}'")
    rig.cluster()
    newest = await rig.submit(PARENT)
    await rig.ended(newest)
    first = await rig.submit(body)
    await rig.ended(first)
    assert [e.payload["playbook"]["version"] for e in asked(rig)] == [2, 1]


@simulated
async def test_a_large_workload_and_a_large_result_lie_outside_the_log(rig: Rig) -> None:
    child = """\
workflow:
  - step: work
    tool: {kind: http, url: u, value: "{{ workload.rows }}"}
"""
    body = """\
workflow:
  - step: make
    tool: {kind: http, url: u, value: make}
    next: call
  - step: call
    tool: {kind: playbook, path: child, input: {rows: "{{ make.rows }}"}, return_result: true}
"""
    await register(rig, child)
    rig.act = lambda c, _: {"rows": c["value"] if c["value"] != "make" else [*range(20_000)]}
    rig.cluster()
    parent = await rig.submit(body)
    assert (await rig.ended(parent)).status == "COMPLETED"
    assert len((await value_of(rig, parent, "call"))["rows"]) == 20_000
    assert len(rig.bytes()) < 100_000
    (request,) = asked(rig)
    assert request.payload_ref is not None


@simulated
async def test_what_happens_between_relatives_belongs_to_one_tree_each(rig: Rig) -> None:
    await register(rig, CHILD % 0)
    rig.cluster()
    parent = await rig.submit(PARENT)
    await rig.ended(parent)
    (named,) = rig.events(EventType.CHILD_REQUESTED)
    (ended,) = rig.events(EventType.CHILD_ENDED)
    assert ended.prev_event_id == named.event_id
    child = rig.state(child_id(rig))
    assert child.shard < SHARDS
    last = await rig.log.last(control_subject(child.shard, rig.scope, child.execution_id))
    assert last is not None
    assert last.record.events[-1].payload["returned"]["step"] == "work"
