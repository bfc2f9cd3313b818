"""The materializer over memory adapters, with a store that fails when told."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from actors.materializer import BACKOFF_MAX_S, Materializer
from noetl_ray.errors import StoreUnavailableError
from noetl_ray.events.types import EventType
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.results.repairing import Repairer
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.memory import MemoryLog

SCOPE = Scope()
ROWS = [{"zeta": n, "alpha": f"row {n}"} for n in range(5_000)]


class StepClock:
    """Time that moves only when somebody waits."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def now_ms(self):
        return int(self.now * 1_000)

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class House:
    """A log, a store that can be told to fail, and results put into both."""

    def __init__(self, *, producer_stage=False):
        self.clock = StepClock()
        self.log = MemoryLog(self.clock)
        self.calls = []
        self.fails = None
        self.objects = MemoryObjects(self.meet)
        self.results = ResultStore(self.objects, Placement(), producer_stage=producer_stage)
        self.ids = itertools.count(1)

    async def meet(self, operation, key):
        self.calls.append((operation, key))
        if self.fails is not None and self.fails(operation, key):
            message = "the store is down"
            raise StoreUnavailableError(message)

    async def finish(self, step, value, *, shard=0, tenant="default"):
        name = ResultName(tenant="default", project="p", execution_id=1 << 40, step=step)
        result = await self.results.persist(SCOPE, name, value)
        await self.announce(result, shard=shard, tenant_id=tenant)
        ext = "json" if result["reference"] is None else result["tier"]
        return result, result_key(Placement(), name, ext)

    async def announce(self, result, *, shard=0, **fields):
        record = sample_record(
            next(self.ids),
            event_type=EventType.CALL_DONE,
            command_id="c1",
            idempotency_key="k1",
            payload={"step": "s", "visit": 1, "result": result},
            **fields,
        )
        subject = sample_subject(shard=shard)
        return await self.log.append(subject, record, expected_version=None)

    def materializer(self, **options):
        return Materializer(self.log, self.results, self.clock, **({"shards": range(16)} | options))

    def reads(self):
        return [key for operation, key in self.calls if operation == "get" and "payloads" in key]


async def turn(role):
    await role.start()
    await asyncio.wait_for(role.step(), 5)


@pytest.mark.asyncio
async def test_mat_2_an_unstaged_result_is_written_at_its_derived_key():
    house = House()
    result, key = await house.finish("load", ROWS)
    assert await house.objects.info(key) is None
    role = house.materializer()
    await turn(role)
    assert (await house.objects.get(key)).startswith(b"ARROW1")
    assert await house.results.load(SCOPE, result) == ROWS
    assert role.summary()["written"] == 1
    assert role.summary()["position"] == 1


@pytest.mark.asyncio
async def test_stg_2_a_staged_result_costs_a_probe_and_no_read():
    house = House(producer_stage=True)
    await house.finish("load", ROWS)
    role = house.materializer()
    await turn(role)
    assert role.summary()["present"] == 1
    assert role.summary()["written"] == 0
    assert house.reads() == []


@pytest.mark.asyncio
async def test_mat_2_inline_results_are_not_its_business():
    house = House()
    await house.finish("small", {"a": 1})
    house.calls.clear()
    role = house.materializer()
    await turn(role)
    assert role.summary()["seen"] == 0
    assert role.summary()["position"] == 1
    assert not [key for _, key in house.calls if "cursors" not in key]


@pytest.mark.asyncio
async def test_mat_2_what_cannot_be_found_is_counted_and_passed():
    house = House(producer_stage=True)
    result, key = await house.finish("load", ROWS)
    await house.objects.delete(key)
    await house.finish("next", ROWS)
    role = house.materializer()
    await turn(role)
    summary = role.summary()
    assert (summary["missing"], summary["present"], summary["position"]) == (1, 1, 2)
    assert summary["missing_results"] == [result["reference"]["uri"]]


@pytest.mark.asyncio
async def test_mat_2_a_failing_store_is_retried_and_not_passed():
    house = House()
    _, first = await house.finish("one", ROWS)
    _, second = await house.finish("two", ROWS)
    role = house.materializer()
    house.fails = lambda operation, key: operation == "put" and key == second
    for _ in range(12):
        await turn(role)
    assert await house.objects.info(first) is not None
    assert role.summary()["position"] == 1
    assert role.summary()["retries"] == 12
    assert house.clock.slept == sorted(house.clock.slept)
    assert house.clock.slept[-1] == BACKOFF_MAX_S
    house.fails = None
    await turn(role)
    assert await house.objects.info(second) is not None
    assert role.summary()["position"] == 2


@pytest.mark.asyncio
async def test_mat_2_a_store_down_from_the_start_is_waited_out():
    house = House()
    _, key = await house.finish("load", ROWS)
    house.fails = lambda operation, key: True
    role = house.materializer()
    await turn(role)
    await turn(role)
    assert role.summary()["retries"] == 2
    house.fails = None
    await turn(role)
    assert await house.objects.info(key) is not None


@pytest.mark.asyncio
async def test_mat_2_disabled_touches_nothing():
    house = House()
    await house.finish("load", ROWS)
    house.calls.clear()
    role = house.materializer(enabled=False)
    await turn(role)
    await role.stop()
    assert house.calls == []
    assert role.summary()["seen"] == 0


@pytest.mark.asyncio
async def test_mat_1_it_goes_on_from_its_own_cursor():
    house = House()
    await house.finish("one", ROWS)
    first = house.materializer()
    await turn(first)
    await first.stop()
    await house.finish("two", ROWS)
    second = house.materializer()
    await turn(second)
    assert second.summary()["seen"] == 1
    assert second.summary()["position"] == 2


@pytest.mark.asyncio
async def test_mat_1_the_cursor_is_written_at_most_each_second():
    house = House(producer_stage=True)
    role = house.materializer()
    for number in range(5):
        await house.finish(f"s{number}", ROWS)
        await turn(role)
    written = [key for operation, key in house.calls if operation == "put" and "cursors" in key]
    assert len(written) == 1
    house.clock.now += 1.5
    await house.finish("late", ROWS)
    await turn(role)
    written = [key for operation, key in house.calls if operation == "put" and "cursors" in key]
    assert len(written) == 2


@pytest.mark.asyncio
async def test_mat_1_losing_the_cursor_is_harmless():
    house = House()
    _, key = await house.finish("one", ROWS)
    first = house.materializer()
    await turn(first)
    await first.stop()
    before = await house.objects.get(key)
    for info in [info async for info in house.objects.list("noetl/env=local/cursors")]:
        await house.objects.put(info.key, b"broken")
    second = house.materializer()
    await turn(second)
    assert second.summary()["present"] == 1
    assert await house.objects.get(key) == before


@pytest.mark.asyncio
async def test_mat_3_it_takes_only_its_own_shards():
    house = House()
    _, mine = await house.finish("mine", ROWS, shard=3)
    _, other = await house.finish("other", ROWS, shard=4)
    role = house.materializer(shards=[3])
    await turn(role)
    assert await house.objects.info(mine) is not None
    assert await house.objects.info(other) is None


@pytest.mark.asyncio
async def test_from_position_overrules_the_cursor():
    house = House()
    await house.finish("one", ROWS)
    await house.finish("two", ROWS)
    role = house.materializer(from_position=2)
    await turn(role)
    assert role.summary()["seen"] == 1


@pytest.mark.asyncio
async def test_mat_2_another_tenants_or_unreadable_reference_is_refused_and_passed():
    house = House()
    _, key = await house.finish("load", ROWS, tenant="stranger")
    await house.announce({"status": "ok", "reference": {"uri": "noetl://nonsense"}})
    role = house.materializer()
    await turn(role)
    assert role.summary()["refused"] == 2
    assert role.summary()["position"] == 2
    assert await house.objects.info(key) is None


@pytest.mark.asyncio
async def test_mat_2_bytes_that_would_differ_are_never_written():
    house = House()
    name = ResultName(tenant="default", project="p", execution_id=1 << 40, step="load")
    result = await house.results.persist(SCOPE, name, ROWS)
    result["reference"]["sha256"] = "0" * 64
    await house.announce(result)
    role = house.materializer()
    await turn(role)
    assert role.summary()["mismatched"] == 1
    assert await house.objects.info(result_key(Placement(), name, "feather")) is None


@pytest.mark.asyncio
async def test_dr_1_the_materializer_verifies_bytes_and_rebuilds_when_told_to():
    house = House()
    _, key = await house.finish("load", ROWS)
    await turn(house.materializer(consumer="first"))
    good = await house.objects.get(key)
    await house.objects.put(key, good[:-50])
    plain = house.materializer(consumer="plain")
    await turn(plain)
    assert plain.summary()["present"] == 1
    assert await house.objects.get(key) != good, "off: nobody looks at bytes"
    role = house.materializer(consumer="dr", repairer=Repairer(house.log, house.results))
    await turn(role)
    assert role.summary()["repairs"] == {"corrupt": 1, "rebuilt": 1}
    assert await house.objects.get(key) == good
