"""Garbage collection and repair over a real S3 server, sealed and plain, in two buckets' worth."""

from __future__ import annotations

import asyncio
import uuid

import pytest
import s3fs

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import PayloadStoreSettings, ReplicaSettings, Settings
from noetl_ray.errors import ObjectMissingError
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.opening import open_objects
from noetl_ray.results.collecting import Collector
from noetl_ray.results.repairing import Repairer
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.samples import sample_record
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.subjects import control_subject, scope_filter
from tests.contract.fixtures_s3 import ACCESS_KEY, SECRET_KEY, S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.contract, pytest.mark.asyncio, pytest.mark.timeout(180)]

SCOPE = Scope()
ROWS = [{"n": n, "text": f"row {n}"} for n in range(20_000)]
LOGIN = {"user": "u", "access_token": "s3cr3t-value"}


class Site:
    """Results in two folders of the server, announced in a log."""

    def __init__(self, server: S3Server, tmp_path) -> None:
        folder = f"{server.bucket}/{uuid.uuid4().hex}"
        self.folders = (f"{folder}/one", f"{folder}/two")
        access = {
            "endpoint_url": server.endpoint_url,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
        }
        store = PayloadStoreSettings(
            url=f"s3://{self.folders[0]}",
            replicas=(ReplicaSettings(name="two", url=f"s3://{self.folders[1]}", **access),),
            **access,
        )
        self.clock = SystemClock()
        settings = Settings(data_dir=str(tmp_path), payload_store=store)
        self.objects = open_objects(settings, self.clock, bytes(32))
        self.results = ResultStore(self.objects, Placement())
        self.log = MemoryLog(self.clock)
        self.ids = SnowflakeIds(1, self.clock)
        self.s3 = s3fs.S3FileSystem(
            key=ACCESS_KEY,
            secret=SECRET_KEY,
            endpoint_url=server.endpoint_url,
            skip_instance_cache=True,
            use_listings_cache=False,
        )

    async def run(self, value, *, logged=True):
        number = self.ids.mint()
        name = ResultName(tenant="default", project="p", execution_id=number, step="load")
        result = await self.results.persist(SCOPE, name, value)
        if logged:
            payload = {"step": "load", "visit": 1, "result": result}
            record = sample_record(self.ids.mint(), execution_id=number, payload=payload)
            await self.log.append(control_subject(0, SCOPE, number), record, expected_version=0)
        ext = "feather" if value is ROWS else "json"
        return result, result_key(Placement(), name, ext)

    async def raw(self, number, key):
        return await asyncio.to_thread(self.s3.cat_file, f"{self.folders[number]}/{key}")

    async def spoil(self, number, key, data=None):
        path = f"{self.folders[number]}/{key}"
        if data is None:
            await asyncio.to_thread(self.s3.rm_file, path)
        else:
            await asyncio.to_thread(self.s3.pipe_file, path, data)


async def test_gc_2_the_orphan_goes_and_the_live_object_still_serves(s3_server, tmp_path):
    site = Site(s3_server, tmp_path)
    live, _ = await site.run(ROWS)
    orphan, key = await site.run(LOGIN, logged=False)

    def collector(grace_ms):
        return Collector(
            site.log,
            site.objects,
            Placement(),
            site.clock,
            grace_ms=grace_ms,
            payload_ttl_ms=86_400_000,
        )

    assert (await collector(3_600_000).collect(SCOPE)).counts == {"young": 2}
    dry = await collector(0).collect(SCOPE)
    assert (dry.counts, dry.candidates) == ({"live": 1, "orphan": 1}, [key])
    assert await site.results.load(SCOPE, orphan) == LOGIN
    wet = await collector(0).collect(SCOPE, dry_run=False)
    assert wet.counts == {"live": 1, "orphan": 1, "deleted": 1}
    assert await site.results.load(SCOPE, live) == ROWS
    with pytest.raises(ObjectMissingError):
        await site.results.load(SCOPE, orphan)


@pytest.mark.parametrize("value", [ROWS, LOGIN], ids=["plain", "sealed"])
async def test_dr_1_missing_and_cut_objects_come_back_byte_for_byte(s3_server, tmp_path, value):
    site = Site(s3_server, tmp_path)
    result, key = await site.run(value)
    good = await site.raw(0, key)
    assert good == await site.raw(1, key)
    assert (b"s3cr3t" in good) is False
    repairer = Repairer(site.log, site.results)
    await site.spoil(0, key)
    report = await repairer.repair(SCOPE, scope_filter(SCOPE))
    assert report.counts == {"missing": 1, "healthy": 1, "rebuilt": 1}
    await site.spoil(1, key, good[: len(good) // 2])
    report = await repairer.repair(SCOPE, scope_filter(SCOPE))
    assert report.counts == {"corrupt": 1, "healthy": 1, "rebuilt": 1}
    assert await site.raw(0, key) == await site.raw(1, key) == good
    assert await site.results.load(SCOPE, result) == value
