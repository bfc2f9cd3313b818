"""Missing and altered objects are found by their digests and rebuilt to the very same bytes."""

from __future__ import annotations

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.errors import StoreUnavailableError
from noetl_ray.events.envelope import PayloadRef, Record
from noetl_ray.locator.cells import Location
from noetl_ray.locator.keys import Placement, parse_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.content import put_payload
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.payloads.replicated import Copy, ReplicatedObjects
from noetl_ray.payloads.sealed import SealedObjects
from noetl_ray.payloads.sealing import ObjectKeys, is_sealed
from noetl_ray.payloads.tiers import MemoryTier, Tiers
from noetl_ray.results.repairing import Repairer
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.subjects import control_subject, scope_filter

pytestmark = pytest.mark.asyncio

SCOPE = Scope()
ROWS = [{"n": n, "text": f"row {n}"} for n in range(4_000)]
LOGIN = {"user": "u", "access_token": "s3cr3t-value"}


def location(name):
    return Location(name=name, provider="memory", bucket=name, prefix="", endpoint="", region="r")


class Site:
    """Two copies beneath a sealing store, a log that names what lies there."""

    def __init__(self, *, copies=2, tiers=None, staged=True):
        self.stores = [MemoryObjects() for _ in range(copies)]
        clock = SystemClock()
        below = ReplicatedObjects(
            [Copy(location=location(f"c{n}"), store=each) for n, each in enumerate(self.stores)],
            region="r",
            clock=clock,
        )
        objects = below if copies > 1 else self.stores[0]
        self.objects = SealedObjects(objects, ObjectKeys(bytes(32)), "secrets")
        self.results = ResultStore(
            self.objects, Placement(), offload_bytes=None, tiers=tiers, producer_stage=staged
        )
        self.log = MemoryLog(clock)
        self.number = 0

    async def persist(self, value):
        self.number += 1
        execution = (1 << 40) + self.number
        name = ResultName(tenant="default", project="p", execution_id=execution, step="load")
        result = await self.results.persist(SCOPE, name, value)
        await self.tell(execution, {"result": result})
        return result

    async def tell(self, execution, payload, payload_ref=None):
        self.number += 1
        payload = {"step": "s", "visit": 1, **payload}
        event = sample_event(
            self.number, execution_id=execution, payload=payload, payload_ref=payload_ref
        )
        subject = control_subject(0, SCOPE, execution)
        await self.log.append(subject, Record(events=(event,)), expected_version=None)

    async def repair(self, *, producer=None, **changes):
        repairer = Repairer(self.log, self.results, producer=producer)
        return await repairer.repair(SCOPE, scope_filter(SCOPE), **changes)

    async def raw(self, copy=0):
        return {
            info.key: await self.stores[copy].get(info.key)
            async for info in self.stores[copy].list("")
        }


@pytest.mark.parametrize("value", [ROWS, LOGIN, {"text": "x" * 200_000}])
@pytest.mark.parametrize("harm", ["delete", "cut", "alter"])
async def test_dr_1_a_bad_copy_is_rebuilt_byte_for_byte_from_the_other(value, harm):
    site = Site()
    result = await site.persist(value)
    await site.persist([{"other": n, "text": "y" * 30} for n in range(4_000)])
    before = await site.raw()
    assert (await site.repair()).counts == {"healthy": 4}
    (key,) = [key for key in before if f"execution={(1 << 40) + 1}/" in key]
    if harm == "delete":
        await site.stores[0].delete(key)
    else:
        data = before[key]
        bad = data[:-9] if harm == "cut" else data[:70] + bytes([data[70] ^ 1]) + data[71:]
        await site.stores[0].put(key, bad)
    dry = await site.repair(dry_run=True)
    assert dry.counts["rebuilt"] == 1
    assert await site.raw() != before, "a dry run writes nothing"
    wet = await site.repair()
    assert wet.counts["rebuilt"] == 1
    assert wet.findings[0]["source"] == "copy"
    assert wet.findings[0]["state"] == ("missing" if harm == "delete" else "corrupt")
    assert await site.raw() == before == await site.raw(1)
    assert await site.results.load(SCOPE, result) == value
    assert (await site.repair()).counts == {"healthy": 4}


async def test_dr_1_a_cached_tier_gives_the_bytes_back():
    tiers = Tiers(SystemClock(), memory=MemoryTier(1 << 30))
    site = Site(copies=1, tiers=tiers)
    await site.persist(ROWS)
    before = await site.raw()
    await site.stores[0].delete(next(iter(before)))
    report = await site.repair()
    assert report.counts == {"missing": 1, "rebuilt": 1}
    assert report.findings[0]["source"] == "cache"
    assert await site.raw() == before


async def test_dr_1_a_payload_gives_the_object_back():
    site = Site(copies=1, staged=False)
    result = await site.persist(ROWS)
    assert await site.results.ensure_staged(SCOPE, result) == "written"
    before = await site.raw()
    (key,) = [key for key in before if "/results/" in key]
    await site.stores[0].delete(key)
    report = await site.repair()
    assert report.findings[0]["source"] == "payload"
    assert await site.raw() == before


class Again:
    """Somebody who runs producers again and gives these bytes."""

    def __init__(self, data):
        self.data = data
        self.asked = []

    async def produce(self, reference):
        self.asked.append(reference.uri)
        return self.data


async def test_dr_1_a_producer_is_the_last_resort_and_only_the_same_bytes_count():
    site = Site(copies=1)
    result = await site.persist(ROWS)
    before = await site.raw()
    (key,) = before
    await site.stores[0].delete(key)
    wrong = Again(b"something else")
    report = await site.repair(producer=wrong)
    assert report.counts == {"missing": 1, "lost": 1}
    assert wrong.asked == [result["reference"]["uri"]]
    assert await site.raw() == {}, "other bytes are never written"
    report = await site.repair(producer=Again(before[key]))
    assert report.findings[0]["source"] == "producer"
    assert await site.raw() == before


async def test_what_cannot_be_rebuilt_is_named():
    site = Site(copies=1)
    result = await site.persist(ROWS)
    (key,) = await site.raw()
    await site.stores[0].put(key, b"nonsense")
    report = await site.repair()
    assert report.counts == {"corrupt": 1, "lost": 1}
    assert report.findings == [
        {"uri": result["reference"]["uri"], "copy": "0", "state": "corrupt", "fate": "lost"}
    ]
    assert parse_key(key).name.step == "load"


async def test_contexts_are_repaired_sealed_and_others_scopes_left_alone():
    site = Site()
    ref = await put_payload(
        site.objects.for_secrets(), Placement(), SCOPE, b'{"a":1}', "application/json"
    )
    await site.tell((1 << 40) + 5, {}, payload_ref=ref)
    foreign = PayloadRef(
        uri=ref.uri.replace("org/default", "org/other"),
        sha256=ref.sha256,
        media_type="x",
        bytes=7,
    )
    await site.tell((1 << 40) + 6, {}, payload_ref=foreign)
    before = await site.raw()
    (key,) = before
    assert is_sealed(before[key])
    await site.stores[1].delete(key)
    assert (await site.repair()).counts == {"healthy": 1, "missing": 1, "rebuilt": 1}
    assert await site.raw(1) == before


async def test_a_copy_out_of_reach_is_neither_missing_nor_healthy():
    site = Site()
    await site.persist(ROWS)

    async def down(_operation, _key):
        msg = "down"
        raise StoreUnavailableError(msg)

    site.stores[1].fault = down
    report = await site.repair()
    assert report.counts == {"healthy": 1, "unreachable": 1, "unwritten": 1}
