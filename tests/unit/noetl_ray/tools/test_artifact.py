"""The artifact kind: its words and its errors; what is stored where is the store's to prove."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.tools.artifact import ArtifactTool


@pytest.fixture
def run(bench: Any) -> Any:
    results = ResultStore(MemoryObjects(), Placement(), offload_bytes=None)
    store = Artifacts(results, Scope(), lambda: Redactor(()))

    async def act(**config: Any) -> Any:
        return (await ArtifactTool().run(config, bench.context(artifacts=store))).data

    return act


@pytest.mark.asyncio
async def test_put_get_list(run: Any) -> None:
    put = await run(action="put", key="report", value={"n": 1})
    assert put["result_ref"]["kind"] == "result_ref"
    assert await run(action="get", input={"result_ref": put["result_ref"]}) == {"n": 1}
    assert await run(uri=put["uri"]) == {"n": 1}
    assert await run(action="get", key="report") == {"n": 1}
    await run(action="put", input={"name": "rows", "value": [1, 2]})
    assert await run(name="rows") == {"data": [1, 2]}
    listed = await run(action="list", prefix="r")
    assert (listed["names"], listed["count"]) == (["report", "rows"], 2)


@pytest.mark.asyncio
async def test_what_is_missing_may_be_tried_again(run: Any) -> None:
    with pytest.raises(ToolError) as caught:
        await run(action="get", name="nothing")
    assert caught.value.kind == "not_found"
    assert caught.value.retryable
    assert caught.value.details == {"code": "REFERENCE_NOT_AVAILABLE"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"action": "drop"}, "unknown action 'drop' of an artifact task: use get, put, list"),
        ({"action": "get"}, "an artifact task that gets needs `result_ref`, `uri` or `key`"),
        ({"action": "put", "value": 1}, "an artifact task that puts needs `key`"),
        ({"action": "put", "name": "a"}, "an artifact task that puts needs `value`"),
        ({"action": "get", "uri": "noetl://x"}, "is not"),
        ({"action": "put", "name": "a//b", "value": 1}, "cannot be part of a name"),
    ],
)
async def test_bad_tasks(run: Any, config: Any, says: str) -> None:
    with pytest.raises(ToolError, match=says) as caught:
        await run(**config)
    assert (caught.value.kind, caught.value.retryable) == ("schema", False)


@pytest.mark.asyncio
async def test_without_a_store(bench: Any) -> None:
    with pytest.raises(ToolError, match="there is no store"):
        await ArtifactTool().run({"name": "a"}, bench.context())
