"""A conductor starts where it was kept, and keeps no more than was touched (P25, CKP-1, CKP-2)."""

from __future__ import annotations

from typing import Any

import pytest

from actors import checkpointer as module
from actors.conductor import Conductor
from noetl_ray.errors import LogUnavailableError
from noetl_ray.events.types import EventType
from noetl_ray.replay.history import normalised, replay
from noetl_ray.shards.checkpoint import read_chain
from noetl_ray.shards.memory import MemoryCheckpoints
from noetl_ray.wal.memory import MemoryLog
from tests.unit.actors.rig import ONE, SHARDS, Rig, simulated

SLOW = """
workflow:
  - {step: a, tool: {kind: http, url: u}, next: b}
  - {step: b, tool: {kind: http, url: u}}
"""


async def opened(rig: Rig, count: int) -> list[int]:
    """Executions that wait for a worker that never answers."""
    ids = [await rig.submit(SLOW) for _ in range(count)]
    await rig.clock.sleep(4)
    return ids


def saved_states(rig: Rig) -> dict[int, Any]:
    found = [read_chain(s, rig.checkpoints._chains.get(s, ())) for s in range(SHARDS)]
    assert [each.refused for each in found] == [""] * SHARDS
    return {e: state for each in found for e, state in each.states.items()}


@simulated
async def test_p25_a_restart_reads_the_tail_and_not_the_history(rig: Rig) -> None:
    rig.start("c1", rig.conductor("c1"))
    rig.start("w1", rig.worker(slots=8))
    for _ in range(40):
        await rig.submit(ONE % 0)
    await rig.clock.sleep(3)
    rig.loop.kill("w1")
    ids = await opened(rig, 5)
    assert set(saved_states(rig)) == set(ids)
    rig.loop.kill("c1")
    after = [await rig.submit(SLOW) for _ in range(2)]
    again = rig.conductor("c2")
    await again.start()
    assert again.summary()["replayed"] < 10 < len(rig.records()) / 10
    assert again.summary()["open_executions"] == 7
    whole = replay(rig.records())
    for execution_id in (*ids, *after):
        held = again.state(execution_id)
        assert held is not None
        assert normalised(held) == normalised(whole[execution_id])


@simulated
async def test_ckp_2_an_execution_goes_on_from_a_checkpoint(rig: Rig) -> None:
    rig.start("c1", rig.conductor("c1"))
    ids = await opened(rig, 3)
    rig.loop.kill("c1")
    rig.start("c2", rig.conductor("c2"))
    rig.start("w1", rig.worker())
    for execution_id in ids:
        assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert rig.finished == 6


@simulated
async def test_ckp_1_idle_executions_are_not_saved_again(rig: Rig) -> None:
    rig.start("c1", rig.conductor("c1"))
    await opened(rig, 4)
    told = rig.events(EventType.CHECKPOINT_COMMITTED)
    assert told
    named = {e for event in told for e in event.payload["executions"]}
    assert len(named) == 4
    assert all(event.payload["position"] <= len(rig.records()) for event in told)
    await rig.clock.sleep(60)
    assert rig.events(EventType.CHECKPOINT_COMMITTED) == told


@simulated
async def test_ckp_1_a_save_costs_what_was_touched_not_what_is_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHANGES_MIN", 1_000)
    conductor = rig.conductor("c1")
    rig.start("c1", conductor)
    await opened(rig, 60)
    before = conductor.summary()["checkpoints"]["states"]
    await opened(rig, 1)
    assert conductor.summary()["checkpoints"]["states"] - before <= 3
    assert len(saved_states(rig)) == 61


@simulated
async def test_what_begins_and_ends_between_two_saves_is_never_written(rig: Rig) -> None:
    conductor = rig.conductor("c1")
    rig.start("c1", conductor)
    rig.start("w1", rig.worker(slots=8))
    await rig.clock.sleep(1)
    for _ in range(20):
        await rig.submit(ONE % 0)
    await rig.clock.sleep(5)
    assert conductor.summary()["checkpoints"]["states"] == 0
    assert saved_states(rig) == {}
    assert conductor.summary()["checkpoints"]["age_ms"] == 0


@simulated
async def test_long_chains_become_a_base_and_what_it_replaced_goes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHANGES_MAX", 5)
    rig.start("c1", rig.conductor("c1"))
    for _ in range(30):
        await rig.submit(SLOW)
        await rig.clock.sleep(1.5)
    assert all(len(chain) <= 7 for chain in rig.checkpoints._chains.values())
    assert len(saved_states(rig)) == 30


@simulated
async def test_prin_1_without_its_checkpoints_a_conductor_folds_the_log(rig: Rig) -> None:
    rig.start("c1", rig.conductor("c1"))
    ids = await opened(rig, 3)
    rig.loop.kill("c1")
    rig.checkpoints.wipe()
    again = rig.conductor("c2")
    await again.start()
    assert {e for e in ids if again.state(e)} == set(ids)


@simulated
async def test_p25_a_checkpoint_of_another_log_is_not_used(rig: Rig) -> None:
    """A log made anew under the same name; the same after a restore that lost its end."""
    rig.start("c1", rig.conductor("c1"))
    await opened(rig, 3)
    rig.loop.kill("c1")
    rig.log.__dict__.update(MemoryLog(rig.clock, faults=rig).__dict__)
    short = rig.conductor("c2")
    await short.start()
    assert short.summary()["open_executions"] == 0
    for _ in range(30):
        await rig.submit(SLOW)
    other = rig.conductor("c3")
    await other.start()
    assert other.summary()["open_executions"] == 30


@simulated
async def test_a_store_that_fails_costs_nothing_and_is_caught_up_with(rig: Rig) -> None:
    down = True

    async def fault(what: str) -> None:
        if down and what in ("add", "added"):
            msg = f"{what} is down"
            raise LogUnavailableError(msg)

    rig.checkpoints = MemoryCheckpoints(fault)
    conductor = rig.conductor("c1")
    rig.start("c1", conductor)
    ids = await opened(rig, 4)
    assert saved_states(rig) == {}
    told = conductor.summary()["checkpoints"]
    assert told["failed"] > 0
    assert told["age_ms"] > 2_000
    down = False
    await rig.clock.sleep(2)
    assert set(saved_states(rig)) == set(ids)
    assert conductor.summary()["checkpoints"]["age_ms"] == 0


@simulated
async def test_p3_a_conductor_whose_shards_are_saved_by_another_stops_saving(rig: Rig) -> None:
    """The second began later, from what the first had saved; the first is refused."""
    one = rig.conductor("c1", rig.leases("a", shard_count=SHARDS))
    rig.start("a#i1", one)
    await opened(rig, 2)
    rig.loop.freeze("a#i1")
    two = rig.conductor("c2", rig.leases("b", shard_count=SHARDS))
    rig.start("b#i1", two)
    await rig.clock.sleep(10)
    ids = await opened(rig, 3)
    rig.loop.thaw("a#i1")
    await rig.clock.sleep(5)
    assert set(ids) <= set(saved_states(rig))
    assert sorted([*one.summary()["shards"], *two.summary()["shards"]]) == list(range(SHARDS))


@simulated
async def test_a_restart_knows_the_workers_that_live_and_only_those(rig: Rig) -> None:
    first = rig.conductor("c1")
    rig.start("c1", first)
    rig.start("k", rig.keeper())
    for number in range(4):
        rig.start(
            f"w1#{number}", rig.worker("w1", incarnation=f"i{number}", process=f"w1#{number}")
        )
        await rig.clock.sleep(1)
        rig.loop.kill(f"w1#{number}")
    rig.start("w2", rig.worker("w2"))
    await rig.clock.sleep(60)
    again: Conductor = rig.conductor("c2")
    await again.start()
    assert list(again._fleet._members) == ["w2"] == list(first._fleet._members)
