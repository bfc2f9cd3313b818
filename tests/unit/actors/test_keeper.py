"""P22: silence longer than a lease is a worker lost, unless it was the keeper who was away."""

from __future__ import annotations

from typing import Any

from actors.messages import GONE, Gone, encode
from noetl_ray.errors import LogUnavailableError
from noetl_ray.events.types import EventType
from noetl_ray.hints.port import ANNOUNCE
from noetl_ray.wal.subjects import worker_subject
from tests.unit.actors.rig import LEASE_MS, ONE, Rig, simulated

DOWN = "down"
LEASE_S = LEASE_MS / 1000


@simulated
async def test_a_worker_that_speaks_is_never_declared_lost(rig: Rig) -> None:
    keeper = rig.keeper()
    rig.start("k", keeper)
    rig.start("w1", rig.worker())
    await rig.clock.sleep(600)
    assert rig.events(EventType.WORKER_LOST) == []
    assert keeper.summary() == {"workers": 1, "declared_lost": 0}
    assert len(rig.events(EventType.WORKER_JOINED)) == 1


@simulated
async def test_p22_silence_longer_than_a_lease_is_said_in_the_log(rig: Rig) -> None:
    rig.cluster(workers=1)
    execution_id = await rig.submit(ONE % 5)
    await rig.until(lambda: rig.calls)
    rig.loop.kill("w1")
    died = rig.loop.time()
    await rig.until(lambda: rig.events(EventType.WORKER_LOST))
    assert LEASE_S - 1.5 < rig.loop.time() - died < LEASE_S + 2
    (lost,) = rig.events(EventType.WORKER_LOST)
    (joined,) = rig.events(EventType.WORKER_JOINED)
    assert lost.payload["incarnation"] == "i1"
    assert lost.payload["reason"] == "silent for more than 8 s"
    assert lost.prev_event_id == joined.event_id
    rig.start("w2", rig.worker("w2"))
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert len(rig.events(EventType.WORKER_LOST)) == 1


@simulated
async def test_p22_a_keeper_that_was_away_itself_judges_nobody(rig: Rig) -> None:
    rig.start("k", rig.keeper())
    rig.start("w1", rig.worker())
    await rig.clock.sleep(5)
    rig.loop.freeze("k")
    await rig.clock.sleep(60)
    rig.loop.thaw("k")
    await rig.clock.sleep(60)
    assert rig.events(EventType.WORKER_LOST) == []


@simulated
async def test_a_worker_that_died_while_the_keeper_was_away_is_still_found(rig: Rig) -> None:
    rig.start("k", rig.keeper())
    rig.start("w1", rig.worker())
    await rig.clock.sleep(5)
    rig.loop.freeze("k")
    rig.loop.kill("w1")
    await rig.clock.sleep(60)
    rig.loop.thaw("k")
    await rig.clock.sleep(LEASE_S - 1)
    assert rig.events(EventType.WORKER_LOST) == []
    await rig.clock.sleep(5)
    assert len(rig.events(EventType.WORKER_LOST)) == 1


@simulated
async def test_a_new_keeper_gives_everyone_a_whole_lease(rig: Rig) -> None:
    rig.start("w1", rig.worker())
    await rig.clock.sleep(100)
    rig.loop.kill("w1")
    await rig.clock.sleep(100)
    rig.start("k", rig.keeper())
    await rig.clock.sleep(LEASE_S - 1)
    assert rig.events(EventType.WORKER_LOST) == []
    await rig.clock.sleep(3)
    assert len(rig.events(EventType.WORKER_LOST)) == 1


@simulated
async def test_a_worker_that_joined_again_meanwhile_is_left_alone(rig: Rig) -> None:
    """The verdict states the version it saw; a late one is refused by the log."""
    keeper = rig.keeper()
    rig.start("k", keeper)
    rig.start("w1", rig.worker())
    await rig.clock.sleep(5)
    rig.loop.kill("w1")

    async def slow(subject: str, record: Any) -> None:
        if record.events[0].event_type is EventType.WORKER_LOST:
            await rig.worker("w1", "i2").start()

    rig.on_append = slow
    await rig.clock.sleep(LEASE_S + 3)
    assert rig.events(EventType.WORKER_LOST) == []
    assert keeper.summary()["declared_lost"] == 0


@simulated
async def test_a_log_out_of_reach_delays_the_verdict(rig: Rig) -> None:
    async def refuse(subject: str, record: Any) -> None:
        if record.events[0].event_type is EventType.WORKER_LOST and rig.loop.time() < 100:
            raise LogUnavailableError(DOWN)

    rig.on_append = refuse
    rig.start("k", rig.keeper())
    rig.start("w1", rig.worker())
    await rig.clock.sleep(2)
    rig.loop.kill("w1")
    await rig.clock.sleep(95)
    assert rig.events(EventType.WORKER_LOST) == []
    await rig.until(lambda: rig.events(EventType.WORKER_LOST), within_s=60)


@simulated
async def test_lost_announcements_cost_a_join_in_the_log_not_the_worker(rig: Rig) -> None:
    """A worker nobody hears renews its lease in the log before it acts (P22)."""
    rig.lose = lambda subject: subject == ANNOUNCE
    rig.cluster()
    await rig.clock.sleep(7.5)
    execution_id = await rig.submit(ONE % 0)
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert len(rig.events(EventType.WORKER_JOINED)) == 2
    assert rig.finished == 1


@simulated
async def test_leaving_is_not_being_lost(rig: Rig) -> None:
    rig.start("k", rig.keeper())
    worker = rig.worker()
    await worker.start()
    await rig.clock.sleep(1)
    await worker.stop()
    await rig.clock.sleep(60)
    kinds = [e.event_type.value for e in rig.events()]
    assert kinds == ["worker.joined", "worker.left"]
    last = await rig.log.last(worker_subject("w1"))
    assert last is not None


@simulated
async def test_it_stops_listening(rig: Rig) -> None:
    keeper = rig.keeper()
    await keeper.start()
    await keeper.step()
    await keeper.stop()
    assert not rig.hints._exact.get(ANNOUNCE)
    assert rig.log._subscriptions == []


@simulated
async def test_p22_a_process_that_is_said_to_be_dead_is_lost_at_once(rig: Rig) -> None:
    rig.start("k", rig.keeper())
    rig.start("w1", rig.worker("local/worker/1"))
    rig.start("w2", rig.worker("local/worker/2"))
    await rig.clock.sleep(5)
    rig.loop.kill("w1")
    died = rig.loop.time()
    for incarnation in ("an older one", "i1"):
        await rig.hints.send(GONE, encode(Gone(host="worker/1", incarnation=incarnation)))
    await rig.until(lambda: rig.events(EventType.WORKER_LOST))
    assert rig.loop.time() - died < 1.5
    (lost,) = rig.events(EventType.WORKER_LOST)
    assert (lost.payload["worker_id"], lost.payload["reason"]) == (
        "local/worker/1",
        "its process is dead",
    )


@simulated
async def test_a_keeper_that_starts_late_knows_those_who_joined_before(rig: Rig) -> None:
    rig.start("w1", rig.worker())
    await rig.clock.sleep(5)
    rig.loop.kill("w1")
    keeper = rig.keeper()
    rig.start("k", keeper)
    await rig.until(lambda: rig.events(EventType.WORKER_LOST))
    assert keeper.summary() == {"workers": 0, "declared_lost": 1}
