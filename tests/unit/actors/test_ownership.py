"""Leases of shards: taken, kept, shared, lost, and never relied upon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.ownership import LeasedShards
from noetl_ray.errors import InternalError, StoreUnavailableError
from noetl_ray.events.types import EventType
from noetl_ray.shards.memory import MemoryOwners
from noetl_ray.shards.plan import decode_table
from tests.unit.actors.rig import ONE, Rig, simulated


class Holder:
    """A conductor's part: lets go of what it is to give away."""

    def __init__(self, rig: Rig, owner: LeasedShards) -> None:
        self.rig = rig
        self.owner = owner
        self.shards: set[int] = set()
        self.failed: Exception | None = None

    async def run(self) -> None:
        self.shards = set(await self.owner.start())
        while True:
            try:
                self.owner.check()
            except InternalError as error:
                self.failed = error
                return
            self.shards = set(self.owner.held)
            await self.owner.parted(list(self.owner.parting))
            await asyncio.sleep(0.2)


def hold(rig: Rig, name: str, incarnation: str = "i1", **more: Any) -> Holder:
    holder = Holder(rig, rig.leases(name, incarnation, **more))
    rig.loop.spawn(f"{name}#{incarnation}", holder.run())
    return holder


@simulated
async def test_prj_6_shards_are_shared_when_owners_come_and_go(rig: Rig) -> None:
    one = hold(rig, "a")
    await rig.until(lambda: len(one.shards) == 8)
    two = hold(rig, "b")
    await rig.until(lambda: len(one.shards) == len(two.shards) == 4)
    three = hold(rig, "c")
    await rig.until(lambda: sorted(len(h.shards) for h in (one, two, three)) == [2, 3, 3])
    assert one.shards | two.shards | three.shards == set(range(8))
    await two.owner.stop()
    rig.loop.kill("b#i1")
    await rig.until(lambda: len(one.shards) == len(three.shards) == 4, within_s=5)


@simulated
async def test_prj_6_survivors_take_over_within_a_lease(rig: Rig) -> None:
    one, _two = hold(rig, "a"), hold(rig, "b")
    await rig.until(lambda: len(one.shards) == 4)
    await rig.clock.sleep(10)
    rig.loop.kill("b#i1")
    died = rig.loop.time()
    await rig.until(lambda: len(one.shards) == 8, within_s=20)
    assert 3 < rig.loop.time() - died < 8
    assert [e.payload["reason"] for e in rig.events(EventType.SHARD_CLAIMED)][-4:] == [
        "expired"
    ] * 4


@simulated
async def test_p22_a_noticed_death_ends_the_leases_at_once(rig: Rig) -> None:
    one, _two = hold(rig, "a"), hold(rig, "b")
    await rig.until(lambda: len(one.shards) == 4)
    rig.loop.kill("b#i1")
    died = rig.loop.time()
    one.owner.gone("b", "i1")
    await rig.until(lambda: len(one.shards) == 8)
    assert rig.loop.time() - died < 0.5


@simulated
async def test_p22_a_wrong_notice_costs_work_and_nothing_else(rig: Rig) -> None:
    one, two = hold(rig, "a"), hold(rig, "b")
    await rig.until(lambda: len(one.shards) == len(two.shards) == 4)
    one.owner.gone("b", "i1")
    one.owner.gone("b", "an older one")
    await rig.until(lambda: len(one.shards) == 8)
    await rig.until(lambda: len(one.shards) == len(two.shards) == 4)
    assert two.failed is None


@simulated
async def test_p22_a_new_incarnation_takes_up_what_its_process_had(rig: Rig) -> None:
    one, two = hold(rig, "a"), hold(rig, "b")
    await rig.until(lambda: len(one.shards) == len(two.shards) == 4)
    had = set(two.shards)
    rig.loop.kill("b#i1")
    again = hold(rig, "b", "i2")
    await rig.until(lambda: again.shards == had, within_s=1)
    assert len(one.shards) == 4


@simulated
async def test_prj_6_an_incarnation_whose_name_was_taken_ends(rig: Rig) -> None:
    """A process that was only asleep finds another in its place, and does not fight for it."""
    one = hold(rig, "a")
    await rig.until(lambda: len(one.shards) == 8)
    rig.loop.freeze("a#i1")
    again = hold(rig, "a", "i2")
    await rig.until(lambda: len(again.shards) == 8)
    rig.loop.thaw("a#i1")
    await rig.until(lambda: one.failed is not None)
    assert "a is i2 now" in str(one.failed)
    assert one.shards == set() or one.owner.held == {}
    assert len(again.shards) == 8


@simulated
async def test_prin_2_a_table_that_is_lost_is_written_down_again(rig: Rig) -> None:
    one, two = hold(rig, "a"), hold(rig, "b")
    await rig.until(lambda: len(one.shards) == len(two.shards) == 4)
    before = (set(one.shards), set(two.shards))
    claims = len(rig.events(EventType.SHARD_CLAIMED))
    rig.owners.wipe()
    await rig.clock.sleep(20)
    assert (one.shards, two.shards) == before
    assert len(rig.events(EventType.SHARD_CLAIMED)) == claims
    table = decode_table((await rig.owners.read())[0] or b"")
    assert sorted(table.owners) == ["a", "b"]


@simulated
async def test_prin_2_a_table_written_from_memory_ends_no_successor(rig: Rig) -> None:
    """Who writes a lost table anew may remember the process that lived before."""
    one, two = hold(rig, "a"), hold(rig, "b")
    await rig.until(lambda: len(one.shards) == len(two.shards) == 4)
    remembered = (await rig.owners.read())[0] or b""
    rig.loop.kill("b#i1")
    again = hold(rig, "b", "i2")
    await rig.until(lambda: len(again.shards) == 4)
    rig.owners.wipe()
    assert await rig.owners.write(remembered, 0)
    await rig.clock.sleep(5)
    assert (again.failed, one.failed) == (None, None)
    assert len(one.shards) == len(again.shards) == 4
    table = decode_table((await rig.owners.read())[0] or b"")
    assert table.owners["b"].incarnation == "i2"


@simulated
async def test_prin_2_a_sleeper_that_writes_the_lost_table_is_still_the_earlier(rig: Rig) -> None:
    """It wakes up, finds no table, and writes its own name down: its successor is not fooled."""
    one = hold(rig, "a")
    await rig.until(lambda: len(one.shards) == 8)
    remembered = (await rig.owners.read())[0] or b""
    rig.loop.freeze("a#i1")
    # The table is lost before the successor comes as well: nothing in it tells who was first.
    rig.owners.wipe()
    again = hold(rig, "a", "i2")
    await rig.until(lambda: len(again.shards) == 8)
    rig.owners.wipe()
    assert await rig.owners.write(remembered, 0)
    rig.loop.thaw("a#i1")
    await rig.until(lambda: one.failed is not None)
    assert again.failed is None
    assert len(again.shards) == 8


@simulated
async def test_epochs_only_grow_even_when_the_table_is_lost_with_everybody(rig: Rig) -> None:
    one = hold(rig, "a")
    await rig.until(lambda: len(one.shards) == 8)
    rig.loop.kill("a#i1")
    rig.owners.wipe()
    hold(rig, "b")
    await rig.clock.sleep(2)
    epochs = [
        e.payload["epoch"] for e in rig.events(EventType.SHARD_CLAIMED) if e.payload["shard"] == 3
    ]
    assert epochs == [1, 2]


@simulated
async def test_who_was_away_itself_judges_nobody(rig: Rig) -> None:
    down = False

    async def fault(_what: str) -> None:
        if down:
            msg = "down"
            raise StoreUnavailableError(msg)

    rig.owners = MemoryOwners(fault)
    one, two = hold(rig, "a"), hold(rig, "b")
    await rig.until(lambda: len(one.shards) == len(two.shards) == 4)
    claims = len(rig.events(EventType.SHARD_CLAIMED))
    down = True
    await rig.clock.sleep(60)
    down = False
    await rig.clock.sleep(15)
    assert len(one.shards) == len(two.shards) == 4
    assert len(rig.events(EventType.SHARD_CLAIMED)) == claims


@simulated
async def test_a_start_without_a_table_waits_and_then_says_why(rig: Rig) -> None:
    async def fault(_what: str) -> None:
        msg = "the table is away"
        raise StoreUnavailableError(msg)

    rig.owners = MemoryOwners(fault)
    with pytest.raises(StoreUnavailableError, match="away"):
        await rig.leases("a").start()
    assert rig.loop.time() >= 6


@simulated
async def test_owners_of_an_earlier_larger_set_are_not_waited_for(rig: Rig) -> None:
    for name in ("a", "b"):
        hold(rig, name)
    await rig.clock.sleep(10)
    for name in ("a", "b"):
        rig.loop.kill(f"{name}#i1")
    alone = hold(rig, "a", "i2", unwanted=lambda name: name == "b")
    await rig.until(lambda: len(alone.shards) == 8, within_s=1)


@simulated
async def test_p3_the_append_of_an_owner_that_wakes_late_is_refused(rig: Rig) -> None:
    """Two conductors, one frozen in the middle of a decision; the other takes over and goes on."""
    for name in ("a", "b"):
        owner = rig.leases(name, shard_count=2)
        rig.start(f"{name}#i1", rig.conductor(f"{name}#i1", owner))
        if name == "a":
            late = owner
            await rig.clock.sleep(0.5)
    frozen: list[str] = []
    await rig.clock.sleep(3)
    execution_id = await rig.submit(ONE % 0)
    shard = rig.submit_ports.shard(rig.scope, "default", execution_id)
    holder = "a#i1" if shard in late.held else "b#i1"

    async def freeze_holder(subject: str, _record: Any) -> None:
        if subject.endswith(".control") and not frozen:
            frozen.append(subject)
            rig.loop.freeze(holder)
            await rig.clock.sleep(0)

    rig.on_append = freeze_holder
    rig.start("w1", rig.worker())
    state = await rig.ended(execution_id)
    assert frozen
    assert state.status == "COMPLETED"
    rig.loop.thaw(holder)
    await rig.clock.sleep(5)
    assert len(rig.events(EventType.PLAYBOOK_INITIALIZED)) == 1
    assert len(rig.events(EventType.COMMAND_ISSUED)) == 1
    assert rig.finished == 1
