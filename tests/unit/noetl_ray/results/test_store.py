"""Persist before emit, load by name, secrets in the tier, tenants apart."""

from __future__ import annotations

import pytest

from noetl_ray.errors import (
    NotFoundError,
    ObjectMissingError,
    StoreUnavailableError,
    ToolError,
    UsageError,
)
from noetl_ray.events.canonical import canonical_json
from noetl_ray.locator.keys import Placement, parse_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.results.extracted import path_is_cut
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope

SCOPE = Scope(tenant_id="acme", organization_id="ops")
NAME = ResultName(tenant="acme", project="p", execution_id=1 << 40, step="load")
ROWS = [{"zeta": n, "alpha": f"row {n}"} for n in range(10_000)]
LOGIN = {"user": "u", "access_token": "s3cr3t-value", "profile": {"name": "n"}}


async def keys_of(objects):
    return [info.key async for info in objects.list("")]


@pytest.fixture
def objects():
    return MemoryObjects()


@pytest.fixture
def store(objects):
    return ResultStore(objects, Placement())


@pytest.mark.asyncio
async def test_tier_1_small_results_touch_no_object(objects, store):
    result = await store.persist(SCOPE, NAME, {"a": 1})
    assert result["tier"] == "inline"
    assert await keys_of(objects) == []
    assert await store.load(SCOPE, result) == {"a": 1}


@pytest.mark.parametrize("value", [ROWS, {"rows": ROWS, "status": "ok"}, {"text": "x" * 300_000}])
@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.asyncio
async def test_results_over_budget_come_back(objects, value, staged):
    store = ResultStore(objects, Placement(), producer_stage=staged)
    result = await store.persist(SCOPE, NAME, value)
    assert result["reference"]["uri"] == NAME.uri
    assert len(canonical_json(result)) < 8_000
    assert await store.load(SCOPE, result) == value


@pytest.mark.asyncio
async def test_stg_1_staged_object_lies_at_the_derived_key(objects, store):
    await store.persist(SCOPE, NAME, ROWS)
    (key,) = await keys_of(objects)
    assert parse_key(key).name == NAME
    assert key.endswith(".feather")


@pytest.mark.asyncio
async def test_stg_1_off_writes_only_the_payload(objects):
    store = ResultStore(objects, Placement(), producer_stage=False)
    result = await store.persist(SCOPE, NAME, ROWS)
    (key,) = await keys_of(objects)
    assert "/payloads/sha256/" in key
    assert result["reference"]["staged"] is False


@pytest.mark.asyncio
async def test_stg_2_a_failed_staging_falls_back_to_the_payload(objects, store):
    async def refuse(operation, key):
        if operation == "put" and "/results/" in key:
            message = "down"
            raise StoreUnavailableError(message)

    objects.fault = refuse
    result = await store.persist(SCOPE, NAME, ROWS)
    assert result["reference"]["staged"] is False
    objects.fault = None
    assert await store.ensure_staged(SCOPE, result) == "written"
    assert await store.ensure_staged(SCOPE, result) == "present"
    assert await store.load(SCOPE, result) == ROWS


@pytest.mark.asyncio
async def test_persist_before_emit_a_failing_store_gives_no_result(objects, store):
    async def refuse(operation, key):
        message = "down"
        raise StoreUnavailableError(message)

    objects.fault = refuse
    with pytest.raises(StoreUnavailableError):
        await store.persist(SCOPE, NAME, ROWS)


@pytest.mark.parametrize("value", [ROWS, {"rows": ROWS}, {"text": "x" * 300_000}])
@pytest.mark.asyncio
async def test_tier_4_producer_and_materializer_write_the_same_bytes(value):
    staged, unstaged = MemoryObjects(), MemoryObjects()
    one = await ResultStore(staged, Placement()).persist(SCOPE, NAME, value)
    later = ResultStore(unstaged, Placement(), producer_stage=False)
    two = await later.persist(SCOPE, NAME, value)
    assert two["reference"]["sha256"] == one["reference"]["sha256"]
    assert await later.ensure_staged(SCOPE, two) == "written"
    (key,) = await keys_of(staged)
    assert await unstaged.get(key) == await staged.get(key)


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.asyncio
async def test_p28_credentials_go_whole_to_the_tier(objects, staged):
    store = ResultStore(objects, Placement(), producer_stage=staged)
    result = await store.persist(SCOPE, NAME, LOGIN)
    assert result["tier"] == "json"
    assert await store.load(SCOPE, result) == LOGIN
    assert result["extracted"] == {"user": "u", "access_token": "***", "profile": {"name": "n"}}


@pytest.mark.parametrize("value", [LOGIN, [LOGIN] * 5_000, {"rows": [LOGIN] * 3}])
@pytest.mark.asyncio
async def test_sec_1_no_secret_in_what_the_event_carries(store, value):
    result = await store.persist(SCOPE, NAME, value)
    assert b"s3cr3t" not in canonical_json(result)
    assert "body" not in result


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("at", [0, 7_000, None])
@pytest.mark.asyncio
async def test_sec_1_a_secret_in_one_row_of_a_table_is_found(store, wrapped, at):
    rows = [{"n": n, "api_key": "s3cr3t" if n == at else None} for n in range(30_000)]
    result = await store.persist(SCOPE, NAME, {"rows": rows, "more": 1} if wrapped else rows)
    assert result["tier"] == "feather"
    assert result["reference"].get("secret", False) is (at is not None)
    assert b"s3cr3t" not in canonical_json(result)


@pytest.mark.asyncio
async def test_sec_1_a_secret_round_the_rows_of_a_table_is_found(store):
    rows = [{"n": n, "name": f"row {n}"} for n in range(30_000)]
    result = await store.persist(SCOPE, NAME, {"rows": rows, "source": [{"password": "s3cr3t"}]})
    assert (result["tier"], result["reference"]["secret"]) == ("feather", True)
    assert b"s3cr3t" not in canonical_json(result)


@pytest.mark.asyncio
async def test_p27_masked_paths_are_marked_so_that_nobody_guesses(store):
    result = await store.persist(SCOPE, NAME, LOGIN)
    marks = result["truncated"]
    assert path_is_cut(result["extracted"], marks, ("access_token",))
    assert not path_is_cut(result["extracted"], marks, ("user",))


@pytest.mark.asyncio
async def test_p28_a_secret_result_shows_nothing(store):
    result = await store.persist(SCOPE, NAME, {"plain": "s3cr3t"}, secret=True)
    assert b"s3cr3t" not in canonical_json(result)
    assert path_is_cut(result["extracted"], result["truncated"], ("plain",))
    assert await store.load(SCOPE, result) == {"plain": "s3cr3t"}


@pytest.mark.asyncio
async def test_another_tenants_result_does_not_exist(store):
    result = await store.persist(SCOPE, NAME, ROWS)
    other = Scope(tenant_id="else", organization_id="ops")
    for call in (store.load, store.table, store.ensure_staged):
        with pytest.raises(NotFoundError):
            await call(other, result)
    with pytest.raises(NotFoundError):
        await store.persist(other, NAME, ROWS)


@pytest.mark.asyncio
async def test_lost_or_changed_bytes_are_told(objects, store):
    result = await store.persist(SCOPE, NAME, ROWS)
    (key,) = await keys_of(objects)
    await objects.put(key, b"other bytes")
    with pytest.raises(ObjectMissingError, match="not the ones"):
        await store.load(SCOPE, result)
    await objects.delete(key)
    with pytest.raises(ObjectMissingError):
        await store.load(SCOPE, result)
    assert await store.ensure_staged(SCOPE, result) == "missing"


@pytest.mark.asyncio
async def test_references_of_unknown_shape_are_refused(store):
    for reference in ({}, {"uri": NAME.uri}, {"uri": NAME.uri, "media_type": "x", "sha256": ""}):
        with pytest.raises(UsageError):
            await store.load(SCOPE, {"status": "ok", "reference": reference})


@pytest.mark.asyncio
async def test_tier_2_table_is_mapped_from_a_local_file(tmp_path):
    store = ResultStore(FileObjects(tmp_path), Placement())
    result = await store.persist(SCOPE, NAME, ROWS)
    table = await store.table(SCOPE, result)
    assert table.column_names == ["zeta", "alpha"]
    assert table.num_rows == len(ROWS)


@pytest.mark.asyncio
async def test_table_of_inline_remote_and_unstaged_results(objects, store):
    inline = await store.persist(SCOPE, NAME, ROWS[:3])
    assert (await store.table(SCOPE, inline)).num_rows == 3
    remote = await store.persist(SCOPE, NAME, ROWS)
    assert (await store.table(SCOPE, remote)).num_rows == len(ROWS)
    later = ResultStore(objects, Placement(region="other"), producer_stage=False)
    unstaged = await later.persist(SCOPE, NAME, ROWS)
    assert (await later.table(SCOPE, unstaged)).column_names == ["zeta", "alpha"]


@pytest.mark.parametrize("value", ["\ud800", {"deep": object()}])
@pytest.mark.asyncio
async def test_what_has_no_json_form_fails_the_task(store, value):
    with pytest.raises(ToolError, match="no JSON form"):
        await store.persist(SCOPE, NAME, value)
