"""Two buckets on two real S3 servers, one of which is stopped: names and results stay."""

from __future__ import annotations

import dataclasses

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import PayloadStoreSettings, ReplicaSettings, Settings
from noetl_ray.errors import StoreUnavailableError
from noetl_ray.locator.cells import resolve
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.opening import cell_of, open_objects
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from tests.contract.fixtures_s3 import ACCESS_KEY, SECRET_KEY, running_s3, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.contract, pytest.mark.asyncio, pytest.mark.timeout(180)]

KEYS = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}


async def test_loc_6_the_same_name_is_served_from_the_replica(s3_server, tmp_path):
    with running_s3(tmp_path / "first") as first:
        store = PayloadStoreSettings(
            url=f"s3://{first.bucket}/objects",
            endpoint_url=first.endpoint_url,
            replicas=(
                ReplicaSettings(
                    name="second",
                    url=f"s3://{s3_server.bucket}/replica",
                    endpoint_url=s3_server.endpoint_url,
                    region="eu",
                    **KEYS,
                ),
            ),
            **KEYS,
        )
        settings = dataclasses.replace(Settings(), payload_store=store)
        objects = open_objects(settings, SystemClock(), bytes(32))
        results = ResultStore(objects, Placement())
        rows = [{"id": number, "text": f"row {number}"} for number in range(20_000)]
        name = ResultName(tenant="default", project="p", execution_id=1 << 40, step="load")
        block = await results.persist(Scope(), name, rows)
        for copy in objects.copies():
            (found,) = [info async for info in copy.list("")]
            assert found.size_bytes == block["reference"]["bytes"]

        first.stop()
        assert await results.load(Scope(), block) == rows
        assert (await results.table(Scope(), block)).num_rows == len(rows)
        cell = cell_of(settings)
        asked = {"requester": Scope(), "health": objects.inner.health()}
        plan = resolve(cell, Placement(), name.uri, **asked)
        assert plan.chosen.name == "second"
        assert plan.uri == block["reference"]["uri"]
        # New results are durable in what is left, and read back by the same kind of name.
        later = dataclasses.replace(name, step="later")
        assert await results.load(Scope(), await results.persist(Scope(), later, rows)) == rows
        assert objects.inner.counts["primary", "lagged"] == 1


async def test_a_store_that_is_down_makes_nothing_durable(tmp_path):
    with running_s3(tmp_path / "only") as server:
        store = PayloadStoreSettings(
            url=f"s3://{server.bucket}/x", endpoint_url=server.endpoint_url, **KEYS
        )
        settings = dataclasses.replace(Settings(), payload_store=store)
        results = ResultStore(open_objects(settings, SystemClock(), bytes(32)), Placement())
        name = ResultName(tenant="default", project="p", execution_id=1 << 40, step="load")
        server.stop()
        with pytest.raises(StoreUnavailableError):
            await results.persist(Scope(), name, "x" * 200_000)
