"""The worker: which offers it takes, what it does when told to stop, when lost, when late."""

from __future__ import annotations

import gc
from typing import Any

import msgspec

from actors.messages import CANCEL, Nudge, Offer, decode_offer, encode
from noetl_ray.errors import LogUnavailableError
from noetl_ray.events.types import COMMAND_TERMINAL, EventType
from noetl_ray.hints.port import offer_subject
from noetl_ray.submit import cancel_execution
from tests.unit.actors.rig import ONE, Rig, simulated

DOWN = "down"


async def an_offer(rig: Rig, body: str = ONE % 0) -> Offer:
    """An offer to w1 that never arrived; the conductor that made it is gone."""
    lose, rig.lose = rig.lose, lambda subject: ".commands." in subject
    rig.start("c", rig.conductor())
    await rig.submit(body)
    await rig.until(lambda: any(".commands." in s for s, _ in rig.sent))
    rig.loop.kill("c")
    rig.lose = lose
    (data,) = [data for subject, data in rig.sent if ".commands." in subject]
    return decode_offer(data)


async def give(rig: Rig, offer: Offer, **changes: Any) -> None:
    changed = msgspec.structs.replace(offer, **changes)
    await rig.hints.send(offer_subject(offer.shard, "w1"), encode(changed))
    await rig.clock.sleep(1)


@simulated
async def test_p16_an_offer_is_run_once_however_often_it_comes(rig: Rig) -> None:
    worker = rig.worker()
    rig.start("w1", worker)
    offer = await an_offer(rig)
    for _ in range(3):
        await give(rig, offer)
    assert rig.finished == 1
    assert worker.summary()["completed"] == 1


@simulated
async def test_p16_an_offer_of_another_incarnation_is_ignored(rig: Rig) -> None:
    worker = rig.worker()
    rig.start("w1", worker)
    offer = await an_offer(rig)
    await give(rig, offer, incarnation="i0")
    assert rig.calls == []
    assert worker.summary()["refused"] == 0


@simulated
async def test_p16_a_stale_offer_is_checked_against_the_log_before_anything_runs(rig: Rig) -> None:
    worker = rig.worker()
    rig.start("w1", worker)
    offer = await an_offer(rig)
    await rig.clock.sleep(5)
    await give(rig, offer, version=3)
    assert rig.calls == []
    assert worker.summary()["refused"] == 1
    await give(rig, offer)
    assert rig.finished == 1


@simulated
async def test_p16_a_completion_for_a_command_taken_away_is_refused(rig: Rig) -> None:
    """A fresh offer that is already wrong runs, and its result counts for nothing."""
    worker = rig.worker()
    rig.start("w1", worker)
    offer = await an_offer(rig)
    await give(rig, offer, version=1, sent_ms=rig.clock.now_ms())
    assert rig.finished == 1
    assert worker.summary()["refused"] == 1
    assert rig.events(EventType.CALL_DONE) == []


@simulated
async def test_only_as_many_run_at_once_as_there_are_slots(rig: Rig) -> None:
    steps = "".join(f"- {{step: s{i}, tool: {{kind: http, url: u, takes: 5}}}}\n" for i in range(6))
    arcs = ", ".join(f"{{step: s{i}}}" for i in range(6))
    head = f"workflow:\n- step: start\n  next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}\n"
    rig.cluster(slots=2)
    await rig.clock.sleep(1)
    execution_id = await rig.submit(head + steps)
    running = []

    def watch() -> bool:
        running.append(len(rig.calls) - rig.finished)
        return rig.finished == 6

    await rig.until(watch)
    assert max(running) == 2
    await rig.ended(execution_id)


@simulated
async def test_p23_a_nudge_ends_the_running_task_and_the_cancel_is_recorded_once(rig: Rig) -> None:
    rig.cluster()
    await rig.clock.sleep(1)
    execution_id = await rig.submit(ONE % 1000)
    await rig.until(lambda: rig.calls)
    asked = rig.loop.time()
    await cancel_execution(rig.submit_ports, rig.scope, execution_id, "enough")
    await rig.until(lambda: rig.events(EventType.COMMAND_CANCELLED), within_s=2)
    assert rig.loop.time() - asked <= 2
    for _ in range(3):
        await rig.hints.send(CANCEL, encode(Nudge(execution_id=execution_id)))
    await rig.clock.sleep(2000)
    assert rig.finished == 0
    ends = rig.events(*COMMAND_TERMINAL)
    assert [e.event_type for e in ends] == [EventType.COMMAND_CANCELLED]
    (issued,) = rig.events(EventType.COMMAND_ISSUED)
    assert ends[0].prev_event_id == issued.event_id
    assert rig.state(execution_id).status == "CANCELLED"


@simulated
async def test_p23_a_nudge_leaves_other_executions_alone(rig: Rig) -> None:
    rig.cluster()
    await rig.clock.sleep(1)
    one, two = await rig.submit(ONE % 30), await rig.submit(ONE % 30)
    await rig.until(lambda: len(rig.calls) == 2)
    await cancel_execution(rig.submit_ports, rig.scope, one, "enough")
    assert (await rig.ended(two)).status == "COMPLETED"
    assert rig.finished == 1


@simulated
async def test_p23_a_late_result_is_recorded_and_routes_nothing(rig: Rig) -> None:
    """The nudge was lost, the work short: a result is a fact, the execution stays cancelled."""
    rig.lose = lambda subject: subject == CANCEL
    rig.cluster()
    await rig.clock.sleep(1)
    body = "workflow: [{step: a, tool: {kind: http, url: u, takes: 0.4}, next: b}, {step: b}]"
    execution_id = await rig.submit(body)
    await rig.until(lambda: rig.calls)
    await cancel_execution(rig.submit_ports, rig.scope, execution_id, "enough")
    await rig.clock.sleep(20)
    assert len(rig.events(EventType.CALL_DONE)) == 1
    assert rig.events(EventType.STEP_EXIT) == []
    assert rig.state(execution_id).status == "CANCELLED"


@simulated
async def test_p23_a_cancel_whose_nudges_are_all_lost_ends_the_work_within_two_seconds(
    rig: Rig,
) -> None:
    rig.lose = lambda subject: subject == CANCEL
    rig.cluster()
    other = await rig.submit(ONE % 8)
    execution_id = await rig.submit(ONE % 300)
    await rig.until(lambda: len(rig.calls) == 2)
    await rig.clock.sleep(3)
    await cancel_execution(rig.submit_ports, rig.scope, execution_id, "enough")
    await rig.until(lambda: rig.events(EventType.COMMAND_CANCELLED), within_s=2)
    assert rig.state(execution_id).status == "CANCELLED"
    assert (await rig.ended(other)).status == "COMPLETED"
    assert rig.finished == 1


@simulated
async def test_p23_a_log_out_of_reach_does_not_keep_a_worker_from_announcing_itself(
    rig: Rig,
) -> None:
    async def silence(_subject: str) -> None:
        await rig.clock.sleep(60)

    rig.cluster()
    await rig.submit(ONE % 40)
    await rig.until(lambda: rig.calls)
    rig.log.last = silence  # type: ignore[assignment,method-assign]
    await rig.clock.sleep(20)
    assert rig.events(EventType.WORKER_LOST) == []


@simulated
async def test_p22_the_lease_is_checked_before_each_outside_call(rig: Rig) -> None:
    """A worker frozen between two tasks learns that it is lost before it makes the second call."""
    body = """
workflow:
  - step: a
    tool:
      - {name: one, kind: http, url: u, takes: 5}
      - {name: two, kind: http, url: u}
"""
    rig.cluster()
    await rig.clock.sleep(1)
    execution_id = await rig.submit(body)
    await rig.until(lambda: rig.calls)
    rig.loop.freeze("w1")
    await rig.until(lambda: rig.events(EventType.WORKER_LOST))
    rig.loop.thaw("w1")
    await rig.ended(execution_id)
    assert [(c.task, c.attempt) for c in rig.calls] == [("one", 1), ("one", 1), ("two", 1)]
    incarnations = [e.payload["incarnation"] for e in rig.events(EventType.WORKER_JOINED)]
    assert incarnations == ["i1", "i1.2"]
    (released,) = rig.events(EventType.COMMAND_RELEASED)
    assert released.payload["incarnation"] == "i1"


@simulated
async def test_p22_an_idle_worker_declared_lost_learns_of_it_and_comes_back(rig: Rig) -> None:
    """Nobody offers a lost worker anything, so no command would ever tell it."""
    rig.cluster()
    await rig.clock.sleep(5)
    rig.loop.freeze("w1")
    await rig.until(lambda: rig.events(EventType.WORKER_LOST))
    rig.loop.thaw("w1")
    execution_id = await rig.submit(ONE % 0)
    assert (await rig.ended(execution_id, within_s=5)).status == "COMPLETED"
    incarnations = [e.payload["incarnation"] for e in rig.events(EventType.WORKER_JOINED)]
    assert incarnations == ["i1", "i1.2"]


@simulated
async def test_p22_without_a_keeper_an_idle_worker_writes_nothing(rig: Rig) -> None:
    async def down(subject: str, record: Any) -> None:
        raise LogUnavailableError(DOWN)

    rig.start("w1", rig.worker())
    await rig.clock.sleep(1)
    rig.on_append = down
    await rig.clock.sleep(1000)
    assert len(rig.events()) == 1


@simulated
async def test_p22_a_new_incarnation_takes_over_at_once(rig: Rig) -> None:
    rig.cluster()
    await rig.clock.sleep(1)
    execution_id = await rig.submit(ONE % 2)
    await rig.until(lambda: rig.calls)
    rig.loop.kill("w1")
    again = rig.loop.time()
    rig.start("w1b", rig.worker("w1", "i2", process="w1b"))
    await rig.ended(execution_id)
    assert rig.loop.time() - again < 5
    assert rig.events(EventType.WORKER_LOST) == []
    (claimed,) = rig.events(EventType.COMMAND_CLAIMED)
    assert claimed.payload["incarnation"] == "i2"


@simulated
async def test_a_broken_run_is_forgotten_so_that_the_next_hint_starts_it_anew(rig: Rig) -> None:
    async def refuse(subject: str, record: Any) -> None:
        if record.events[0].event_type is EventType.WORKER_JOINED and rig.loop.time() < 60:
            raise LogUnavailableError(DOWN)

    rig.lose = lambda subject: "heard" in subject
    rig.cluster()
    await rig.clock.sleep(7)
    rig.on_append = refuse
    rig.log._settle_s = 1.0
    execution_id = await rig.submit(ONE % 0)
    assert (await rig.ended(execution_id, within_s=300)).status == "COMPLETED"
    assert rig.finished == 1
    assert rig.loop.time() > 60


@simulated
async def test_stopping_lets_go_of_everything(rig: Rig) -> None:
    worker = rig.worker()
    await worker.start()
    offer = await an_offer(rig, ONE % 100)
    await give(rig, offer)
    assert worker.summary()["running"] == 1
    await worker.stop()
    assert worker.summary()["running"] == 0
    assert rig.events(*COMMAND_TERMINAL) == []
    assert rig.events()[-1].event_type is EventType.WORKER_LEFT
    await give(rig, offer)
    assert len(rig.calls) == 1


@simulated
async def test_what_has_run_needs_no_garbage_collector(rig: Rig) -> None:
    """Circles among the parts of commands and decisions cost a quarter of the host's time once."""
    body = """
workload: {w: "{{ 1 + 1 }}"}
workflow:
  - {step: a, tool: {kind: http, url: "{{ w }}"}, set: {ctx.x: "{{ w }}"}, next: b}
  - {step: b, tool: {kind: noop}}
"""
    rig.cluster()
    await rig.ended(await rig.submit(body))
    gc.collect()
    gc.disable()
    try:
        await rig.ended(await rig.submit(body))
        await rig.clock.sleep(1)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not ours & {"CommandRun", "Keychain", "Names", "Pipeline", "_Deciding", "ExecutionState"}
