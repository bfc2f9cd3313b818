"""One poller serves everyone who waits, and asks in lists when many do."""

from __future__ import annotations

import asyncio

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.errors import StoreUnavailableError
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.readmodel.records import ProjectionBatch
from noetl_ray.scope import Scope
from noetl_ray.testing.readmodel_samples import execution, mark
from noetl_ray.web.waiting import Waiters

HOME = Scope()


class Counted(MemoryReadModel):
    def __init__(self):
        super().__init__()
        self.singles = 0
        self.lists = 0
        self.asked = 0
        self.failing = 0

    async def execution(self, scope, execution_id):
        self.singles += 1
        if self.failing:
            self.failing -= 1
            msg = "away"
            raise StoreUnavailableError(msg)
        return await super().execution(scope, execution_id)

    async def ended(self, scope, execution_ids):
        self.lists += 1
        self.asked += len(execution_ids)
        return await super().ended(scope, execution_ids)


async def put(model, position, *rows):
    expected = await model.position("check")
    await model.commit(
        ProjectionBatch(checkpoints=(mark(position, expected),), executions=tuple(rows))
    )


@pytest.mark.asyncio
async def test_many_waiters_of_one_execution_share_one_read_per_turn():
    model = Counted()
    waiters = Waiters(model, SystemClock())
    waiting = [asyncio.create_task(waiters.wait(HOME, [7], 5.0)) for _ in range(50)]
    await asyncio.sleep(0.01)
    assert waiters.count == 1
    assert model.singles == 1
    await put(model, 1, execution(1, "COMPLETED", execution_id=7))
    found = await asyncio.gather(*waiting)
    assert all(each[7].status == "COMPLETED" for each in found)
    assert waiters.count == 0
    await waiters.close()


@pytest.mark.asyncio
async def test_many_executions_are_read_as_lists():
    model = Counted()
    rows = [execution(1, "COMPLETED", execution_id=n) for n in range(1, 1001)]
    await put(model, 1, *rows)
    waiters = Waiters(model, SystemClock())
    found = await waiters.wait(HOME, range(1, 1001), 5.0)
    assert len(found) == 1000
    assert model.lists + model.singles < 20
    await waiters.close()


@pytest.mark.asyncio
async def test_scattered_and_unknown_executions_are_found_or_left_out():
    model = Counted()
    rows = [execution(1, "FAILED", execution_id=n) for n in range(1, 3001)]
    await put(model, 1, *rows)
    waiters = Waiters(model, SystemClock())
    asked = [1, 5, 900, 901, 1500, 1501, 1502, 2999, 3000, 4000, 5000, 6000]
    found = await waiters.wait(HOME, asked, 0.2)
    assert sorted(found) == [n for n in asked if n <= 3000]
    await waiters.close()


@pytest.mark.asyncio
async def test_a_read_model_that_is_away_for_a_moment_harms_nobody():
    model = Counted()
    model.failing = 1
    await put(model, 1, execution(1, "CANCELLED", execution_id=7))
    waiters = Waiters(model, SystemClock())
    found = await waiters.wait(HOME, [7], 5.0)
    assert found[7].status == "CANCELLED"
    await waiters.close()


@pytest.mark.asyncio
async def test_other_scopes_wait_apart_and_time_runs_out():
    model = Counted()
    await put(model, 1, execution(1, "COMPLETED", execution_id=7))
    waiters = Waiters(model, SystemClock())
    assert await waiters.wait(Scope(tenant_id="other"), [7], 0.02) == {}
    assert await waiters.wait(HOME, [], 5.0) == {}
    assert waiters.count == 0
    await waiters.close()


@pytest.mark.asyncio
async def test_a_nudge_is_answered_at_once_and_spares_looks_between():
    model = Counted()
    waiters = Waiters(model, SystemClock())
    waiters.nudge()
    waiting = asyncio.create_task(waiters.wait(HOME, [7], 5.0))
    await asyncio.sleep(0.1)
    assert model.singles == 1, "where nudges come, nobody looks every few milliseconds"
    await put(model, 1, execution(1, "COMPLETED", execution_id=7))
    waiters.nudge()
    assert (await waiting)[7].status == "COMPLETED"
    assert model.singles == 2
    await waiters.close()


@pytest.mark.asyncio
async def test_a_lost_nudge_costs_time_only():
    model = Counted()
    waiters = Waiters(model, SystemClock())
    waiters.nudge()
    waiting = asyncio.create_task(waiters.wait(HOME, [7], 5.0))
    await asyncio.sleep(0.01)
    await put(model, 1, execution(1, "FAILED", execution_id=7))
    assert (await waiting)[7].status == "FAILED"
    await waiters.close()


@pytest.mark.asyncio
async def test_what_has_ended_is_not_read_again():
    model = Counted()
    await put(model, 1, *(execution(1, "COMPLETED", execution_id=n) for n in range(1, 100)))
    waiters = Waiters(model, SystemClock())
    waiting = asyncio.create_task(waiters.wait(HOME, range(1, 111), 5.0))
    await asyncio.sleep(0.05)
    looks, asked = model.lists, model.asked
    assert asked == 110 + 11 * (looks - 1)
    await put(model, 2, *(execution(2, "COMPLETED", execution_id=n) for n in range(100, 111)))
    assert len(await waiting) == 110
    await waiters.close()


@pytest.mark.asyncio
async def test_a_nudge_that_names_executions_makes_it_look_at_those_only():
    model = Counted()
    waiters = Waiters(model, SystemClock())
    waiters.nudge()
    waiting = asyncio.create_task(waiters.wait(HOME, range(1, 101), 5.0))
    await asyncio.sleep(0.1)
    looks = model.lists
    await put(model, 1, *(execution(1, "COMPLETED", execution_id=n) for n in (3, 4)))
    waiters.nudge({(HOME, 3), (HOME, 4), (HOME, 999), (Scope(tenant_id="other"), 5)})
    await asyncio.sleep(0.1)
    assert (model.lists, model.singles) == (looks, 2)
    await put(model, 2, *(execution(2, "COMPLETED", execution_id=n) for n in range(1, 101)))
    waiters.nudge({(HOME, n) for n in range(1, 101)})
    assert len(await waiting) == 100
    assert model.asked == 100 * looks + 98
    await waiters.close()


@pytest.mark.asyncio
async def test_who_comes_is_answered_at_once_whenever_the_next_look_is_due():
    model = Counted()
    await put(model, 1, execution(1, "COMPLETED", execution_id=7))
    waiters = Waiters(model, SystemClock())
    waiters.nudge()
    other = asyncio.create_task(waiters.wait(HOME, [8], 5.0))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(0.4):
        assert (await waiters.wait(HOME, [7], 5.0))[7].status == "COMPLETED"
    other.cancel()
    await waiters.close()
