"""P22: whether a worker may touch the world; a monotonic clock says so, and at last the log."""

from __future__ import annotations

from typing import Any

import pytest

from actors.lease import MARGIN, UNHEARD_MAX, LeaseLostError, WorkerLease
from noetl_ray.errors import LogUnavailableError
from noetl_ray.events.types import EventType
from tests.unit.actors.rig import LEASE_MS, PRODUCER, Rig, simulated

TRUSTED_S = LEASE_MS / 1000 * MARGIN
DOWN = "down"


def lease_of(rig: Rig, incarnation: str = "i1") -> WorkerLease:
    return WorkerLease(
        rig.log,
        rig.ids(),
        rig.clock,
        worker_id="w1",
        incarnation=incarnation,
        producer=PRODUCER,
        facts={"slots": 2, "place": {}},
        lease_ms=LEASE_MS,
    )


@simulated
async def test_no_lease_before_the_join_and_one_after(rig: Rig) -> None:
    lease = lease_of(rig)
    assert not lease.valid
    await lease.join()
    assert lease.valid
    (joined,) = rig.events()
    assert joined.payload == {"worker_id": "w1", "incarnation": "i1", "slots": 2, "place": {}}
    assert joined.prev_event_id is None


@simulated
async def test_it_runs_from_when_it_was_asked_for_not_from_the_answer(rig: Rig) -> None:
    async def slow(subject: str, record: Any) -> None:
        await rig.clock.sleep(5)

    rig.on_ack = slow
    lease = lease_of(rig)
    await lease.join()
    await rig.clock.sleep(TRUSTED_S - 5 - 0.01)
    assert lease.valid
    await rig.clock.sleep(0.02)
    assert not lease.valid


@simulated
async def test_a_heard_announcement_counts_from_when_it_was_sent(rig: Rig) -> None:
    lease = lease_of(rig)
    await lease.join()
    await rig.clock.sleep(3)
    number = lease.announced()
    await rig.clock.sleep(3)
    lease.heard(number)
    await rig.clock.sleep(TRUSTED_S - 3 - 0.01)
    assert lease.valid
    await rig.clock.sleep(0.02)
    assert not lease.valid


@simulated
async def test_an_older_or_unknown_answer_never_shortens_or_lengthens_it(rig: Rig) -> None:
    lease = lease_of(rig)
    await lease.join()
    first = lease.announced()
    await rig.clock.sleep(4)
    second = lease.announced()
    lease.heard(second)
    lease.heard(first)
    lease.heard(second)
    lease.heard(999)
    await rig.clock.sleep(TRUSTED_S - 0.01)
    assert lease.valid
    await rig.clock.sleep(0.02)
    assert not lease.valid


@simulated
async def test_announcements_nobody_heard_are_forgotten(rig: Rig) -> None:
    lease = lease_of(rig)
    numbers = [lease.announced() for _ in range(UNHEARD_MAX + 50)]
    assert len(lease._unheard) == UNHEARD_MAX
    lease.heard(numbers[0])
    assert not lease.valid


@simulated
async def test_ensure_costs_nothing_while_it_holds(rig: Rig) -> None:
    lease = lease_of(rig)
    await lease.join()
    await lease.ensure()
    assert len(rig.events()) == 1


@simulated
async def test_ensure_joins_again_when_it_ran_out(rig: Rig) -> None:
    lease = lease_of(rig)
    await lease.join()
    await rig.clock.sleep(100)
    await lease.ensure()
    assert lease.valid
    one, two = rig.events()
    assert two.event_type is EventType.WORKER_JOINED
    assert two.prev_event_id == one.event_id


@simulated
async def test_ensure_says_that_another_declared_it_lost(rig: Rig) -> None:
    lease = lease_of(rig)
    rig.start("k", rig.keeper())
    await lease.join()
    await rig.until(lambda: rig.events(EventType.WORKER_LOST))
    with pytest.raises(LeaseLostError, match=r"w1 \(i1\) was declared lost"):
        await lease.ensure()


@simulated
async def test_a_new_incarnation_takes_over_at_once(rig: Rig) -> None:
    old, new = lease_of(rig), lease_of(rig, "i2")
    await old.join()
    await new.join()
    assert new.valid
    await rig.clock.sleep(TRUSTED_S + 1)
    with pytest.raises(LeaseLostError):
        await old.ensure()
    await new.ensure()


@simulated
async def test_two_that_join_at_once_both_get_in_one_after_the_other(rig: Rig) -> None:
    one, two = lease_of(rig), lease_of(rig, "i2")
    last = await rig.log.last("noetl.system.worker.w1")
    assert last is None

    async def overtake(subject: str, record: Any) -> None:
        rig.on_append = None
        await two.join()

    rig.on_append = overtake
    await one.join()
    assert [e.payload["incarnation"] for e in rig.events()] == ["i2", "i1"]


@simulated
async def test_p5_a_renewal_whose_ack_was_lost_is_found_again(rig: Rig) -> None:
    lease = lease_of(rig)
    await lease.join()
    await rig.clock.sleep(10)
    rig.log._settle_s = 1.0
    lost = 0

    async def lose(subject: str, record: Any) -> None:
        nonlocal lost
        lost += 1
        if lost == 1:
            raise LogUnavailableError(DOWN)

    rig.on_ack = lose
    await lease.ensure()
    assert lease.valid
    assert len(rig.events()) == 2


@simulated
async def test_a_log_out_of_reach_is_an_error_never_a_lease(rig: Rig) -> None:
    lease = lease_of(rig)
    await lease.join()
    await rig.clock.sleep(10)

    async def refuse(subject: str, record: Any) -> None:
        raise LogUnavailableError(DOWN)

    rig.on_append = refuse
    with pytest.raises(LogUnavailableError):
        await lease.ensure()
    assert not lease.valid


@simulated
async def test_leaving_says_so_once(rig: Rig) -> None:
    old, new = lease_of(rig), lease_of(rig, "i2")
    await old.join()
    await new.join()
    await old.leave()
    await new.leave()
    assert [e.event_type.value for e in rig.events()] == [
        "worker.joined",
        "worker.joined",
        "worker.left",
    ]
    assert rig.events()[-1].payload["incarnation"] == "i2"
