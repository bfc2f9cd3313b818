"""P16: offers are hints, claims are appends; what is lost is sent again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from actors.dispatcher import Dispatcher
from actors.messages import Offer, decode_offer
from actors.projector import Projector
from noetl_ray.engine.frames import StageState
from noetl_ray.engine.policy import FramePolicy
from noetl_ray.engine.state import CommandState, ExecutionState, LoopState
from noetl_ray.errors import LogUnavailableError, StoreUnavailableError
from noetl_ray.events.types import EventType
from noetl_ray.readmodel.memory import MemoryReadModel
from tests.unit.actors.rig import ONE, Rig, simulated

DOWN = "down"
NAMES = [f"s{i}" for i in range(12)]
ARCS = ", ".join(f"{{step: {name}}}" for name in NAMES)
MANY = (
    f"workflow:\n- step: start\n  next: {{spec: {{mode: inclusive}}, arcs: [{ARCS}]}}\n"
    + "".join(f"- {{step: {name}, tool: {{kind: http, url: u, takes: 2}}}}\n" for name in NAMES)
)


def offers(rig: Rig) -> list[Offer]:
    return [decode_offer(data) for subject, data in rig.sent if ".commands." in subject]


@simulated
async def test_p16_the_claim_is_part_of_the_decision_and_a_step_costs_two_appends(rig: Rig) -> None:
    rig.cluster()
    await rig.clock.sleep(1)
    execution_id = await rig.submit(ONE % 0)
    before = len(rig.records())
    await rig.ended(execution_id)
    (issued,) = rig.events(EventType.COMMAND_ISSUED)
    assert issued.payload["claim"]["worker_id"] == "w1"
    assert issued.payload["claim"]["incarnation"] == "i1"
    assert rig.events(EventType.COMMAND_CLAIMED) == []
    kinds = [[e.event_type.value for e in r.record.events] for r in rig.records()[before:]]
    assert kinds == [
        ["playbook.initialized", "step.enter", "command.issued"],
        ["call.done", "command.completed"],
        ["step.exit", "playbook.completed"],
    ]
    (offer,) = offers(rig)
    assert (offer.version, offer.attempt) == (0, 1)


@simulated
async def test_p16_without_a_worker_commands_wait_and_are_claimed_by_append(rig: Rig) -> None:
    conductor = rig.conductor()
    rig.start("c", conductor)
    execution_id = await rig.submit(ONE % 0)
    await rig.clock.sleep(30)
    assert conductor.summary()["waiting_commands"] == 1
    rig.start("w1", rig.worker())
    await rig.ended(execution_id, within_s=3)
    (claimed,) = rig.events(EventType.COMMAND_CLAIMED)
    (issued,) = rig.events(EventType.COMMAND_ISSUED)
    assert issued.payload["claim"] is None
    assert claimed.payload["attempt"] == 1
    assert claimed.prev_event_id == issued.event_id
    assert rig.finished == 1


@simulated
async def test_more_commands_than_room_wait_their_turn_and_none_is_lost(rig: Rig) -> None:
    rig.cluster(workers=2, slots=1)
    await rig.clock.sleep(1)
    state = await rig.ended(await rig.submit(MANY), within_s=60)
    assert state.status == "COMPLETED"
    assert rig.finished == 12
    holders = {e.payload["worker_id"] for e in rig.events(EventType.COMMAND_CLAIMED)}
    assert holders == {"w1", "w2"}


@simulated
async def test_p16_an_offer_that_was_lost_is_sent_again(rig: Rig) -> None:
    seen = 0

    def lose(subject: str) -> bool:
        nonlocal seen
        if ".commands." not in subject:
            return False
        seen += 1
        return seen <= 2

    rig.lose = lose
    rig.cluster()
    execution_id = await rig.submit(ONE % 0)
    assert (await rig.ended(execution_id, within_s=20)).status == "COMPLETED"
    assert seen == 3
    assert rig.finished == 1


@simulated
async def test_p16_offers_doubled_run_once(rig: Rig) -> None:
    rig.deliveries = lambda subject, data: [0.0, 0.0, 0.4]  # type: ignore[method-assign]
    rig.cluster()
    await rig.ended(await rig.submit(ONE % 1))
    assert rig.finished == len(rig.calls) == 1


@simulated
async def test_p16_a_dead_workers_command_is_released_and_its_completion_refused(rig: Rig) -> None:
    """The old holder comes back from a long pause; the version it knows is gone."""
    rig.cluster()
    worker = rig.worker("w2")
    execution_id = await rig.submit(ONE % 5)
    await rig.until(lambda: rig.calls)
    rig.start("w2", worker)
    rig.loop.freeze("w1")
    await rig.until(lambda: rig.events(EventType.WORKER_LOST))
    await rig.ended(execution_id)
    rig.loop.thaw("w1")
    await rig.clock.sleep(20)
    (released,) = rig.events(EventType.COMMAND_RELEASED)
    assert "w1 (i1) is gone" in released.payload["reason"]
    (claimed,) = rig.events(EventType.COMMAND_CLAIMED)
    assert (claimed.payload["worker_id"], claimed.payload["attempt"]) == ("w2", 2)
    assert len(rig.events(EventType.CALL_DONE)) == 1
    assert len(rig.calls) == 2
    assert rig.state(execution_id).status == "COMPLETED"


@simulated
async def test_p16_no_offer_follows_a_completion_that_overtook_the_ack(rig: Rig) -> None:
    """An offer made then would name the completion's own version and run the command again."""

    async def slow_ack(subject: str, record: Any) -> None:
        if subject.endswith(".control"):
            await rig.clock.sleep(8)

    rig.start("c1", rig.conductor("c1"))
    rig.start("c2", rig.conductor("c2"))
    rig.start("w1", rig.worker())
    await rig.clock.sleep(1)
    rig.on_ack = slow_ack
    await rig.ended(await rig.submit(ONE % 0))
    await rig.clock.sleep(30)
    assert rig.finished == 1


@simulated
async def test_a_claim_the_log_could_not_take_is_tried_again(rig: Rig) -> None:
    refused = 0

    async def refuse(subject: str, record: Any) -> None:
        nonlocal refused
        kinds = {e.event_type for e in record.events}
        if EventType.COMMAND_CLAIMED in kinds and rig.loop.time() < 60:
            refused += 1
            raise LogUnavailableError(DOWN)

    conductor = rig.conductor()
    rig.start("c", conductor)
    execution_id = await rig.submit(ONE % 0)
    await rig.clock.sleep(1)
    rig.on_append = refuse
    rig.start("w1", rig.worker(slots=1))
    assert (await rig.ended(execution_id, within_s=300)).status == "COMPLETED"
    assert refused
    await rig.clock.sleep(2)
    assert all(not m.held for m in conductor._fleet._members.values())


@simulated
async def test_p14_claims_never_read_the_read_model(rig: Rig) -> None:
    """There is one, all of it raises, and nobody notices."""

    class Broken(MemoryReadModel):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("__"):
                return super().__getattribute__(name)
            raise StoreUnavailableError(DOWN)

    projector = Projector(rig.log, Broken(), rig.tasklog, rig.clock, shards=range(2), shard_count=2)
    rig.start("p", projector)
    rig.cluster(workers=2, slots=1)
    state = await rig.ended(await rig.submit(MANY), within_s=60)
    assert state.status == "COMPLETED"
    assert len(rig.events(EventType.COMMAND_CLAIMED)) > 0


def test_p22_a_frames_lease_runs_by_the_clock_of_whoever_judges_it() -> None:
    """Wall clocks that differ by more than a lease take nothing from a holder that speaks."""
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now, now_ms=lambda: 10**15)
    judge = SimpleNamespace(_clock=clock, _heard={})
    policy = FramePolicy(lease_seconds=5)
    stage = StageState(stage_id="f", slots=(), policy=policy)
    loop = LoopState(visit=1, total=0, iterator="x", window=1, stage=stage)
    state = ExecutionState(execution_id=1, tenant_id="t", organization_id="o", loops={"s": loop})
    frame = CommandState(
        command_id="f",
        step="s",
        visit=1,
        issued_position=1,
        issued_event_id=1,
        last_event_id=1,
        version=7,
        worker_id="w",
        frame=True,
    )

    def ran_out(held: CommandState) -> bool:
        return Dispatcher._ran_out(judge, state, held)  # type: ignore[arg-type]

    assert not ran_out(frame)
    now = 105.0
    assert not ran_out(frame)
    now = 105.1
    assert ran_out(frame)
    assert not ran_out(msgspec.structs.replace(frame, version=8))
    now = 110.0
    assert not ran_out(msgspec.structs.replace(frame, version=8))
    assert not ran_out(msgspec.structs.replace(frame, frame=False))
