"""Stored values by reference and by name: of one's own scope only, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.engine.refs import reference_fields
from noetl_ray.errors import ObjectMissingError, UsageError
from noetl_ray.locator.keys import Placement, artifact_name
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.options import StorageOptions
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope

ROWS = {"rows": [{"i": i, "t": "x" * 20} for i in range(5_000)]}
NAME = ResultName(
    tenant="default", project="default", execution_id=1 << 23, step="a", frame="v1.f0", row=0,
    attempt=1, version=1,
)  # fmt: skip


class House:
    """A result store, and its artifacts for any scope."""

    def __init__(self) -> None:
        self.results = ResultStore(MemoryObjects(), Placement(), offload_bytes=None)

    def artifacts(self, *secrets: str, **scope: str) -> Artifacts:
        return Artifacts(self.results, Scope(**scope), lambda: Redactor(secrets))

    async def record(self, value: Any, **options: Any) -> dict[str, Any]:
        block = await self.results.persist(Scope(), NAME, value, options=StorageOptions(**options))
        return reference_fields(block)


@pytest.mark.asyncio
@pytest.mark.parametrize("value", [ROWS, {"text": "y" * 200_000}, ["z" * 200_000]])
async def test_a_result_comes_back_by_record_uri_and_fields(value: Any) -> None:
    house = House()
    fields = await house.record(value)
    record = fields["_ref"]
    assert record["kind"] == "result_ref"
    assert fields["_store"] == record["store"] == "memory"
    assert fields["_size_bytes"] == record["meta"]["bytes"] > 100_000
    for ref in (record, record["ref"], {"_ref": record}, {"uri": record["ref"]}):
        assert await house.artifacts().get(ref) == value


@pytest.mark.asyncio
async def test_a_result_that_is_not_staged_is_not_available_yet() -> None:
    house = House()
    house.results.producer_stage = False
    record = (await house.record(ROWS))["_ref"]
    with pytest.raises(ObjectMissingError) as caught:
        await house.artifacts().get(record)
    assert (caught.value.code, caught.value.retryable) == ("REFERENCE_NOT_AVAILABLE", True)


@pytest.mark.asyncio
async def test_bytes_that_are_not_the_recorded_ones_are_not_available() -> None:
    house = House()
    record = (await house.record(ROWS))["_ref"]
    await house.record({"rows": ROWS["rows"][:4_000]})
    with pytest.raises(ObjectMissingError):
        await house.artifacts().get(record)
    assert len((await house.artifacts().get(record["ref"]))["rows"]) == 4_000


@pytest.mark.asyncio
async def test_names_are_put_replaced_and_listed() -> None:
    house = House()
    store = house.artifacts()
    first = await store.put("daily/report", {"n": 1})
    await store.put("daily/other", [1, 2])
    await store.put("top", "text")
    assert first["name"] == "daily/report"
    assert await store.get("daily/report") == {"n": 1}
    assert await store.get(first) == {"n": 1}
    second = await store.put("daily/report", ROWS)
    assert second["meta"]["row_count"] == 5_000
    assert await store.get("daily/report") == ROWS
    assert (await store.table("daily/report")).num_rows == 5_000
    assert await store.get(first) == {"n": 1}, "what a name once stood for stays"
    assert [one["name"] for one in await store.list()] == ["daily/other", "daily/report", "top"]
    assert [one["name"] for one in await store.list("daily/r")] == ["daily/report"]


@pytest.mark.asyncio
async def test_another_scope_sees_nothing() -> None:
    house = House()
    mine = house.artifacts()
    named = await mine.put("report", {"n": 1})
    result = (await house.record(ROWS))["_ref"]
    for other in (house.artifacts(tenant_id="evil"), house.artifacts(organization_id="evil")):
        for ref in (named, named["ref"], "report"):
            with pytest.raises(ObjectMissingError):
                await other.get(ref)
        assert await other.list() == []
    with pytest.raises(ObjectMissingError):
        await house.artifacts(tenant_id="evil").get(result)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/../b", "/abs", "a//b", "..", "a/b/c/d/e/f/g/h/i", "\ud800"]
)
async def test_no_name_leaves_its_folder(name: str) -> None:
    house = House()
    store = house.artifacts()
    try:
        await store.put(name, 1)
    except UsageError:
        return
    keys = [info.key async for info in house.results.objects.list("")]
    assert all("/tenant=default/org=default/" in key for key in keys)
    assert name in [artifact_name(key) for key in keys]
    assert not any(part in ("..", ".") for key in keys for part in key.split("/"))


@pytest.mark.asyncio
@pytest.mark.parametrize("ref", [None, "", {}, 3, {"ref": ""}, "noetl://x", "noetl://tenant/a"])
async def test_what_is_no_reference(ref: Any) -> None:
    with pytest.raises((UsageError, ObjectMissingError)):
        await House().artifacts().get(ref)


@pytest.mark.asyncio
async def test_a_spooled_body_is_stored_without_its_secrets() -> None:
    house = House()
    store = house.artifacts("swordfish-42")
    spool = store.spool()
    text = b'{"a": "' + b"x" * 3_000_000 + b'", "k": "swordfish-42", "end": 1}'
    for start in range(0, len(text), 7_919):
        await spool.write(text[start : start + 7_919])
    record = await spool.finish("application/json")
    value = await store.get(record)
    assert value["k"] == "***"
    assert len(value["a"]) == 3_000_000
    assert record["meta"]["bytes"] == len(text) - len("swordfish-42") + 3
    assert record["preview"].startswith('{"a": "xxx')


@pytest.mark.asyncio
async def test_secrets_do_not_get_into_names() -> None:
    store = House().artifacts("swordfish-42")
    await store.put("a", {"k": "has swordfish-42 in it"})
    assert await store.get("a") == {"k": "has *** in it"}


@pytest.mark.asyncio
async def test_selected_fields_stay_beside_a_stored_result() -> None:
    house = House()
    value = {"id": 7, "deep": {"list": [1, 2, 3]}, "big": "x" * 300, "token": "abcdef"}
    fields = await house.record(
        value,
        inline_max_bytes=100,
        select=(("deep.list", "list"), ("id", "number"), ("absent", "absent"), ("token", "token")),
    )
    assert (fields["list"], fields["number"], fields["token"]) == ([1, 2, 3], 7, "***")
    assert "absent" not in fields
    assert await house.record({"small": 1}, inline_max_bytes=100) == {}
