"""What may be collected: the verdict alone, then a sweep over log and store, then over HTTP."""

from __future__ import annotations

import dataclasses

import pytest

from noetl_ray.config.settings import ResultSettings, Settings
from noetl_ray.errors import ConflictError, ObjectMissingError
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement, payload_key, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.content import put_payload
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.payloads.port import ObjectInfo
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.collecting import Collector
from noetl_ray.results.garbage import Facts, Keep, stem, verdict
from noetl_ray.results.options import NO_OPTIONS, storage_options
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.gateway_kit import GatewayKit
from noetl_ray.testing.samples import sample_record
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.subjects import control_subject

DAY_MS = 86_400_000
SCOPE = Scope()
ROWS = [{"n": n, "text": "x" * 40} for n in range(3_000)]
NOW_MS = 1_800_000_000_000


class VirtualClock:
    """A clock that is set."""

    def __init__(self, start_ms):
        self.at_ms = start_ms

    def now_ms(self):
        return self.at_ms

    def monotonic(self):
        return self.at_ms / 1_000

    def advance(self, seconds):
        self.at_ms += int(seconds * 1_000)


def key_of(execution_id, step="load", ext="feather"):
    name = ResultName(tenant="default", project="default", execution_id=execution_id, step=step)
    return result_key(Placement(), name, ext)


def facts(**changes):
    given = {"now_ms": NOW_MS, "grace_ms": DAY_MS, "payload_ttl_ms": 90 * DAY_MS, "events": {1: 2}}
    return Facts(**(given | changes))


def born(days_ago):
    clock = VirtualClock(start_ms=NOW_MS - int(days_ago * DAY_MS))
    return SnowflakeIds(1, clock).mint()


OLD, YOUNG = born(10), born(0.5)
PAYLOAD = payload_key(Placement(), SCOPE, "ab" * 32)


@pytest.mark.parametrize(
    ("key", "changes", "outcome"),
    [
        (key_of(OLD), {}, "orphan"),
        (key_of(OLD), {"events": {OLD: 1}}, "live"),
        (key_of(YOUNG), {}, "young"),
        (key_of(YOUNG), {"grace_ms": 0}, "orphan"),
        ("noetl/env=local/cursors/x.json", {}, "unparsed"),
        (key_of(OLD).replace("/date=", "/date=9"), {}, "unparsed"),
        (key_of(OLD), {"archived": {OLD: NOW_MS + 1}}, "archived"),
        (key_of(OLD), {"archived": {OLD: NOW_MS + 1}, "events": {OLD: 1}}, "archived"),
        (key_of(OLD), {"archived": {OLD: NOW_MS}, "events": {OLD: 2}}, "orphan"),
        (key_of(OLD), {"archived": {OLD: NOW_MS}, "events": {OLD: 3}}, "live"),
        (key_of(OLD), {"keeps": {stem(key_of(OLD)): Keep(scope="permanent")}}, "pinned"),
        (
            key_of(OLD),
            {"keeps": {stem(key_of(OLD)): Keep(expires_ms=NOW_MS)}, "events": {OLD: 9}},
            "expired",
        ),
        (
            key_of(OLD),
            {"keeps": {stem(key_of(OLD)): Keep(expires_ms=NOW_MS + 1)}, "events": {OLD: 9}},
            "live",
        ),
        (
            key_of(OLD),
            {"keeps": {stem(key_of(OLD)): Keep(scope="step")}, "events": {OLD: 9}},
            "live",
        ),
        (
            key_of(OLD),
            {
                "keeps": {stem(key_of(OLD)): Keep(scope="step")},
                "events": {OLD: 9},
                "ended": {OLD},
            },
            "expired",
        ),
    ],
)
def test_gc_2_the_verdict_on_results(key, changes, outcome):
    assert verdict(ObjectInfo(key=key, size_bytes=1), facts(**changes)) == outcome


@pytest.mark.parametrize(
    ("age_days", "changes", "outcome"),
    [
        (100, {"referenced": set()}, "orphan"),
        (100, {"referenced": {"ab" * 32}}, "referenced"),
        (100, {"referenced": None}, "referenced"),
        (80, {"referenced": set()}, "young"),
        (None, {"referenced": set()}, "young"),
        (100, {"referenced": set(), "grace_ms": 200 * DAY_MS}, "young"),
    ],
)
def test_gc_4_the_verdict_on_payloads(age_days, changes, outcome):
    changed = None if age_days is None else NOW_MS - age_days * DAY_MS
    info = ObjectInfo(key=PAYLOAD, size_bytes=1, changed_ms=changed)
    assert verdict(info, facts(**changes)) == outcome


@pytest.mark.parametrize(
    ("output", "keep"),
    [
        ({}, None),
        ({"scope": "workflow"}, None),
        ({"scope": "nonsense", "ttl": "soon"}, None),
        ({"ttl": 90}, Keep(expires_ms=91_000)),
        ({"store": {"kind": "auto", "ttl": "90s"}}, Keep(expires_ms=91_000)),
        ({"ttl": "1.5h"}, Keep(expires_ms=5_401_000)),
        ({"scope": "permanent"}, Keep(scope="permanent")),
        ({"scope": "step", "ttl": "7d"}, Keep(scope="step", expires_ms=7 * DAY_MS + 1_000)),
    ],
)
def test_res_2_scope_and_ttl_decide_how_long(output, keep):
    assert storage_options([output]).keep(1_000) == keep


class Yard:
    """A log and a store on a virtual clock."""

    def __init__(self):
        self.clock = VirtualClock(start_ms=NOW_MS)
        self.log = MemoryLog(self.clock)
        self.objects = MemoryObjects(now_ms=self.clock.now_ms)
        self.results = ResultStore(self.objects, Placement(), offload_bytes=None)
        self.ids = SnowflakeIds(1, self.clock)
        self.events = iter(range(1, 10_000))

    async def run(self, *, logged=True, options=NO_OPTIONS, value=ROWS):
        number = self.ids.mint()
        name = ResultName(tenant="default", project="p", execution_id=number, step="load")
        result = await self.results.persist(
            SCOPE, name, value, options=options, now_ms=self.clock.now_ms()
        )
        if logged:
            record = sample_record(
                next(self.events),
                execution_id=number,
                payload={"step": "s", "visit": 1, "r": result},
            )
            await self.log.append(control_subject(0, SCOPE, number), record, expected_version=0)
        return result

    async def collect(self, **changes):
        given = {"grace_ms": DAY_MS, "payload_ttl_ms": 90 * DAY_MS}
        collector = Collector(self.log, self.objects, Placement(), self.clock, **given)
        return await collector.collect(SCOPE, **changes)

    async def keys(self):
        return [info.key async for info in self.objects.list("")]


@pytest.mark.asyncio
async def test_gc_2_a_sweep_takes_the_orphan_and_leaves_the_live_one():
    yard = Yard()
    live, orphan = await yard.run(), await yard.run(logged=False)
    assert (await yard.collect()).counts == {"young": 2}
    yard.clock.advance(2 * 86_400)
    dry = await yard.collect()
    assert dry.counts == {"live": 1, "orphan": 1}
    assert dry.live_candidates == 0
    assert len(await yard.keys()) == 2, "a dry run deletes nothing"
    wet = await yard.collect(dry_run=False)
    assert wet.counts == {"live": 1, "orphan": 1, "deleted": 1}
    assert await yard.results.load(SCOPE, live) == ROWS
    with pytest.raises(ObjectMissingError):
        await yard.results.load(SCOPE, orphan)
    assert (await yard.collect(dry_run=False)).counts == {"live": 1}


@pytest.mark.asyncio
async def test_an_empty_log_is_more_likely_the_wrong_one():
    yard = Yard()
    await yard.run(logged=False)
    yard.clock.advance(2 * 86_400)
    for dry_run in (True, False):
        with pytest.raises(ConflictError, match="right log"):
            await yard.collect(dry_run=dry_run)
    assert len(await yard.keys()) == 1


@pytest.mark.asyncio
async def test_res_2_a_ttl_ends_and_permanent_outlives_the_log():
    yard = Yard()
    await yard.run()
    short = await yard.run(options=storage_options([{"ttl": "1h"}]))
    pinned = await yard.run(options=storage_options([{"scope": "permanent"}]), logged=False)
    assert short["reference"]["expires_at"].endswith("Z")
    assert pinned["reference"]["scope"] == "permanent"
    yard.clock.advance(2 * 86_400)
    wet = await yard.collect(dry_run=False)
    # Each of the two has a small object beside it, which shares its fate.
    assert wet.counts == {"live": 1, "expired": 2, "pinned": 2, "deleted": 2}
    assert await yard.results.load(SCOPE, pinned) == ROWS
    with pytest.raises(ObjectMissingError):
        await yard.results.load(SCOPE, short)


@pytest.mark.asyncio
async def test_gc_4_payloads_live_as_long_as_something_names_them():
    yard = Yard()
    artifacts = Artifacts(yard.results, SCOPE, lambda: Redactor(()))
    refs = {}
    for word in ("log", "manifest", "part", "result", "nobody"):
        data = word.encode()
        if word == "manifest":
            data = refs["part"].uri.encode() if "part" in refs else data
        refs[word] = await put_payload(yard.objects, Placement(), SCOPE, data, "text/plain")
    manifest = await put_payload(
        yard.objects, Placement(), SCOPE, refs["part"].uri.encode(), "text/plain"
    )
    await artifacts.put("kept", {"a": 1})
    await yard.run(value=[{"n": n, "ref": refs["result"].uri} for n in range(2_000)])
    names = {"step": "s", "visit": 1, "log": refs["log"].uri, "manifest": manifest.uri}
    await yard.log.append(
        control_subject(0, SCOPE, 7), sample_record(9_999, payload=names), expected_version=0
    )
    yard.clock.advance(100 * 86_400)
    wet = await yard.collect(dry_run=False)
    # `nobody`, and the manifest's first try, which nothing names.
    assert wet.counts["orphan"] == wet.counts["deleted"] == 2
    assert wet.counts["referenced"] == 5
    assert await artifacts.get("kept") == {"a": 1}
    with pytest.raises(ObjectMissingError):
        await artifacts.get(refs["nobody"].uri)


@pytest.mark.asyncio
async def test_a_store_that_refuses_to_delete_is_counted_and_asked_again():
    yard = Yard()
    await yard.run()
    await yard.run(logged=False)
    yard.clock.advance(2 * 86_400)

    async def down(operation, _key):
        if operation == "delete":
            msg = "refused"
            raise ObjectMissingError(msg)

    yard.objects.fault = down
    assert (await yard.collect(dry_run=False)).counts["failed"] == 1
    yard.objects.fault = None
    assert (await yard.collect(dry_run=False)).counts["deleted"] == 1


@pytest.mark.asyncio
async def test_gc_1_the_api_is_off_by_default_and_a_dry_run_when_on():
    kit = GatewayKit()
    async with kit.http() as http:
        refused = await http.post("/api/internal/result-tier/gc", json={})
        assert refused.status_code == 409
        assert "NOETL_RESULT_TIER_GC" in refused.json()["error"]["message"]
    results = ResultSettings(gc_enabled=True, gc_grace_s=0)
    kit = GatewayKit(settings=dataclasses.replace(Settings(), results=results))
    other = ResultName(
        tenant="default", project="default", execution_id=kit.deps.submit.mint(), step="s"
    )
    await kit.results.persist(SCOPE, other, ROWS)
    subject = control_subject(0, SCOPE, 7)
    await kit.log.append(subject, sample_record(1), expected_version=0)
    async with kit.http() as http:
        answer = (await http.post("/api/internal/result-tier/gc", json={})).json()
        assert answer["dry_run"] is True
        assert answer["counts"] == {"orphan": 1}
        assert answer["candidates"] == [result_key(Placement(), other, "feather")]
        again = (await http.post("/api/internal/result-tier/gc", json={"dry_run": False})).json()
        assert again["counts"] == {"deleted": 1, "orphan": 1}
        page = (await http.get("/metrics")).text
    assert 'noetl_result_tier_gc_total{outcome="deleted"} 1.0' in page
