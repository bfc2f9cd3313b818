"""Several copies of one store: the contract, failing over, and what a copy that was away lacks."""

from __future__ import annotations

import asyncio

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.errors import ObjectMissingError, StoreUnavailableError
from noetl_ray.locator.cells import Location
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.payloads.replicated import Copy, ReplicatedObjects
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.contract_objects import OBJECT_CHECKS

pytestmark = pytest.mark.asyncio


class Away:
    """A switch that makes a store fail, or hang."""

    def __init__(self):
        self.on = False
        self.hangs = False

    async def __call__(self, operation, key):
        if self.hangs:
            await asyncio.sleep(60)
        if self.on:
            msg = f"{operation} {key}"
            raise StoreUnavailableError(msg)


class Pair:
    def __init__(self, patience_s=10.0):
        self.away = [Away(), Away()]
        self.stores = [MemoryObjects(each) for each in self.away]
        places = [
            Location(name=name, provider="memory", bucket="", prefix="", endpoint="", region=region)
            for name, region in (("primary", "us"), ("second", "eu"))
        ]
        self.both = ReplicatedObjects(
            [Copy(location=p, store=s) for p, s in zip(places, self.stores, strict=True)],
            region="us",
            clock=SystemClock(),
            patience_s=patience_s,
        )


@pytest.mark.parametrize("check", OBJECT_CHECKS, ids=lambda check: check.__name__)
async def test_object_store_contract(check):
    await check(Pair().both)


async def test_loc_6_reads_fail_over_and_come_back():
    pair = Pair()
    await pair.both.put("a/key", b"1")
    pair.away[0].on = True
    assert await pair.both.get("a/key") == b"1"
    assert await pair.both.info("a/key") is not None
    assert [info.key async for info in pair.both.list("a")] == ["a/key"]
    assert pair.both.health() == {"primary": "suspect", "second": "healthy"}
    assert pair.both.counts["primary", "failed"] >= 1
    pair.away[0].on = False
    pair.away[1].on = True
    assert await pair.both.get("a/key") == b"1"
    assert pair.both.health()["primary"] == "healthy"


async def test_a_write_needs_one_copy_and_says_when_there_is_none():
    pair = Pair()
    pair.away[0].on = True
    await pair.both.put("a/key", b"1")
    assert pair.both.counts["primary", "lagged"] == 1
    pair.away[1].on = True
    with pytest.raises(StoreUnavailableError):
        await pair.both.put("a/other", b"2")
    with pytest.raises(StoreUnavailableError):
        await pair.both.delete("a/key")


async def test_what_a_copy_lacks_is_found_in_the_next():
    pair = Pair()
    pair.away[0].on = True
    await pair.both.put("a/key", b"1")
    pair.away[0].on = False
    await pair.both.put("a/later", b"2")
    assert await pair.both.get("a/key") == b"1"
    assert pair.both.counts["primary", "missed"] >= 1


async def test_missing_is_only_said_when_every_copy_was_asked():
    pair = Pair()
    with pytest.raises(ObjectMissingError):
        await pair.both.get("a/key")
    pair.away[1].on = True
    with pytest.raises(StoreUnavailableError):
        await pair.both.get("a/key")
    with pytest.raises(StoreUnavailableError):
        await pair.both.info("a/key")


async def test_a_copy_that_hangs_is_left_for_the_next():
    pair = Pair(patience_s=0.02)
    await pair.both.put("a/key", b"1")
    pair.away[0].hangs = True
    assert await pair.both.get("a/key") == b"1"
    assert pair.both.health()["primary"] == "suspect"


async def test_dr_1_corrupt_bytes_are_read_from_another_copy():
    pair = Pair()
    results = ResultStore(pair.both, Placement(), offload_bytes=None)
    name = ResultName(tenant="default", project="p", execution_id=1 << 40, step="load")
    rows = [{"n": number} for number in range(20_000)]
    block = await results.persist(Scope(), name, rows)
    key = result_key(Placement(), name, "feather")
    whole = await pair.stores[0].get(key)
    for broken in (whole[: len(whole) // 2], b"\x00" * len(whole)):
        await pair.stores[0].put(key, broken)
        assert await results.load(Scope(), block) == rows
    await pair.stores[1].put(key, b"")
    with pytest.raises(ObjectMissingError, match="not the ones"):
        await results.load(Scope(), block)
