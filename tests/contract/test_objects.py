"""The object contract over a real S3 server."""

from __future__ import annotations

import uuid

import pytest

from noetl_ray.errors import StoreError, StoreUnavailableError
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.fsspec_store import FsspecStore
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.contract_objects import OBJECT_CHECKS
from tests.contract.fixtures_s3 import ACCESS_KEY, SECRET_KEY, S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.contract, pytest.mark.asyncio, pytest.mark.timeout(120)]


def open_s3(server: S3Server, bucket: str = "", secret: str = SECRET_KEY):
    return FsspecStore.open(
        f"s3://{bucket or server.bucket}/{uuid.uuid4().hex}",
        endpoint_url=server.endpoint_url,
        access_key=ACCESS_KEY,
        secret_key=secret,
    )


@pytest.mark.parametrize("check", OBJECT_CHECKS, ids=lambda check: check.__name__)
async def test_pay_5_s3_keeps_the_contract(s3_server, check):
    store = open_s3(s3_server)
    await check(store)
    await store.close()


async def test_two_processes_worth_of_clients_see_each_other(s3_server):
    prefix = uuid.uuid4().hex
    one, two = (
        FsspecStore.open(
            f"s3://{s3_server.bucket}/{prefix}",
            endpoint_url=s3_server.endpoint_url,
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
        )
        for _ in range(2)
    )
    assert await two.info("a/key") is None
    assert [info async for info in two.list("a")] == []
    await one.put("a/key", b"1")
    assert await two.get("a/key") == b"1"
    assert [info.key async for info in two.list("a")] == ["a/key"]
    await one.delete("a/key")
    assert await two.info("a/key") is None


async def test_tier_results_of_fifty_megabytes_live_in_s3(s3_server):
    results = ResultStore(open_s3(s3_server), Placement())
    name = ResultName(tenant="default", project="p", execution_id=1 << 40, step="load")
    rows = [{"id": number, "text": f"{number:0200d}"} for number in range(230_000)]
    result = await results.persist(Scope(), name, rows)
    assert result["reference"]["bytes"] > 45_000_000
    table = await results.table(Scope(), result)
    assert table.num_rows == len(rows)
    assert table.column("id")[229_999].as_py() == 229_999
    assert await results.ensure_staged(Scope(), result) == "present"


async def test_wrong_secret_is_told_as_ours_and_hides_it(s3_server):
    store = open_s3(s3_server, secret="not-the-right-secret")
    with pytest.raises(StoreError) as caught:
        await store.put("key", b"x")
    assert "not-the-right-secret" not in str(caught.value)


async def test_absent_bucket_is_told_as_ours(s3_server):
    with pytest.raises(StoreError):
        await open_s3(s3_server, bucket="no-such-bucket").get("key")


async def test_unreachable_server_is_told_as_unavailable():
    store = FsspecStore.open(
        "s3://bucket", endpoint_url="http://127.0.0.1:9", access_key="a", secret_key="b"
    )
    with pytest.raises(StoreUnavailableError):
        await store.put("key", b"x")
