"""Bodies of http answers: small ones in memory, large ones straight into the store."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import pytest_asyncio

from noetl_ray.errors import StoreUnavailableError, ToolError
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.files import FileObjects
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.tools import http_body
from noetl_ray.tools.http import HttpTool
from tests.unit.noetl_ray.tools.test_http import url

__all__ = ["url"]


@pytest_asyncio.fixture
async def tool():
    tool = HttpTool(trust_env=False)
    yield tool
    await tool.close()


@pytest.fixture
def store(tmp_path):
    results = ResultStore(FileObjects(tmp_path / "objects"), Placement())
    return Artifacts(results, Scope(), lambda: Redactor(["swordfish-42"]))


@pytest.mark.asyncio
async def test_a_large_body_goes_to_the_store_and_not_through_memory(
    tool: Any, bench: Any, url: Any, store: Any, tmp_path: Any
) -> None:
    size = 200 << 20
    tracemalloc.start()
    try:
        result = await tool.run(
            {"url": url + "/flood", "params": {"mb": 200}}, bench.context(artifacts=store)
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    record = result.data["data"]
    assert record["kind"] == "result_ref"
    assert record["meta"]["bytes"] == size
    assert record["meta"]["content_type"] == "application/octet-stream"
    assert result.data["body"] == record == result.ref
    assert result.meta["status"] == 200
    stored = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    assert [path.stat().st_size for path in stored] == [size]
    # The server lives in this process too, so there is more than the first part; never the whole.
    assert peak < 4 * http_body.MEMORY_BYTES < size


@pytest.mark.asyncio
async def test_a_small_body_stays_as_it_is(
    tool: Any, bench: Any, url: Any, store: Any, monkeypatch: Any
) -> None:
    config = {"url": url + "/plain"}
    result = await tool.run(config, bench.context(artifacts=store))
    assert (result.data["data"], result.ref) == ('{"not": "parsed"}', None)
    monkeypatch.setattr(http_body, "MEMORY_BYTES", 4)
    result = await tool.run(config, bench.context(artifacts=store))
    assert await store.get(result.ref) == '{"not": "parsed"}'
    assert result.ref["preview"] == '{"not": "parsed"}'


@pytest.mark.asyncio
async def test_secrets_do_not_get_into_what_is_stored(
    tool: Any, bench: Any, url: Any, store: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(http_body, "MEMORY_BYTES", 4)
    config = {"url": url + "/echo", "params": {"q": "swordfish-42"}}
    result = await tool.run(config, bench.context(artifacts=store))
    assert (await store.get(result.ref))["query"] == {"q": "***"}


@pytest.mark.asyncio
async def test_a_body_that_cannot_be_stored_leaves_no_file(
    tool: Any, bench: Any, url: Any, store: Any, monkeypatch: Any, tmp_path: Any
) -> None:
    monkeypatch.setattr(http_body, "MEMORY_BYTES", 4)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    context = bench.context(artifacts=store)
    monkeypatch.setattr(http_body, "STORED_BYTES_MAX", 1 << 20)
    with pytest.raises(ToolError, match="larger than"):
        await tool.run({"url": url + "/flood", "params": {"mb": 2}}, context)

    async def fails(*_given: Any) -> None:
        msg = "down"
        raise StoreUnavailableError(msg)

    monkeypatch.setattr(FileObjects, "put_file", fails)
    with pytest.raises(StoreUnavailableError):
        await tool.run({"url": url + "/plain"}, context)
    assert list(tmp_path.glob("noetl-body-*")) == []
