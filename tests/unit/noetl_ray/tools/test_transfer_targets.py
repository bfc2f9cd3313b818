"""Transfers into DuckDB files and to addresses, and out of stored results."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import duckdb
import pytest
import pytest_asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from noetl_ray.errors import ToolError
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.tools.transfer import TransferTool

ROWS = [{"id": n, "name": f"n{n}", "price": n / 2} for n in range(25)]
SOURCE = {"type": "duckdb", "query": "SELECT i AS id, i * 2 AS twice FROM range(25) t(i)"}
TABLE = {"type": "duckdb", "database": "out/a.duckdb", "table": "main.t"}
SEEN: list[tuple[str, Any]] = []


async def take(request: Any) -> JSONResponse:
    body = await request.json()
    SEEN.append((request.headers["idempotency-key"], body))
    return JSONResponse({}, 500 if len(SEEN) == 2 and "fail" in request.query_params else 200)


@pytest.fixture(scope="module")
def site():
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/take", take, methods=["POST", "PUT"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/take"
    server.should_exit = True
    thread.join(10)


@pytest_asyncio.fixture
async def run(bench, tmp_path):
    tool = TransferTool(data_root=tmp_path)
    results = ResultStore(MemoryObjects(), Placement(), offload_bytes=None)
    store = Artifacts(results, Scope(), lambda: Redactor(()))

    async def call(source, target, **config):
        config = {"source": source, "target": target, **config}
        return (await tool.run(config, bench.context(artifacts=store))).data

    call.store = store
    yield call
    await tool.close()


def stored(tmp_path, query="SELECT count(*), max(id) FROM t"):
    with duckdb.connect(str(tmp_path / "out" / "a.duckdb"), read_only=True) as connection:
        return connection.execute(query).fetchone()


@pytest.mark.asyncio
async def test_into_a_duckdb_table(run, tmp_path):
    counts = await run(SOURCE, TABLE, chunk_size=10)
    assert (counts["rows_read"], counts["rows_written"], counts["chunks"]) == (25, 25, 3)
    assert stored(tmp_path) == (25, 24)
    await run(SOURCE, TABLE)
    assert stored(tmp_path) == (50, 24)
    await run({**SOURCE, "query": "SELECT 7 AS id"}, TABLE, mode="replace")
    assert stored(tmp_path) == (1, 7)


@pytest.mark.asyncio
async def test_a_failure_leaves_the_table_as_it_was(run, tmp_path):
    await run(SOURCE, TABLE)
    lines = ['{"id": 1}'] * 3 + ['{"id": "no number"}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    with pytest.raises(ToolError):
        await run({"type": "file", "path": "in.jsonl"}, TABLE, chunk_size=1, mode="replace")
    assert stored(tmp_path) == (25, 24)


@pytest.mark.asyncio
async def test_to_an_address(run, site):
    SEEN.clear()
    target = {"type": "http", "url": site, "method": "PUT", "records": "items"}
    counts = await run(SOURCE, target, chunk_size=10)
    assert counts["rows_written"] == 25
    assert [len(body["items"]) for _, body in SEEN] == [10, 10, 5]
    assert SEEN[0][1]["items"][3] == {"id": 3, "twice": 6}
    assert len({key for key, _ in SEEN}) == 3, "each chunk is known by a key of its own"
    before = [key for key, _ in SEEN]
    SEEN.clear()
    await run(SOURCE, target, chunk_size=10)
    assert [key for key, _ in SEEN] == before, "and by the same when it is sent again"


@pytest.mark.asyncio
async def test_an_address_that_refuses_says_how_far_it_came(run, site):
    SEEN.clear()
    with pytest.raises(ToolError, match="chunk 2: ") as caught:
        await run(SOURCE, {"type": "http", "url": f"{site}?fail=1"}, chunk_size=10)
    assert (caught.value.kind, caught.value.retryable) == ("server_error", True)
    assert caught.value.details["chunks_sent"] == 1


@pytest.mark.asyncio
async def test_out_of_a_stored_result(run, tmp_path):
    record = await run.store.put("orders", {"rows": ROWS})
    for source in ({"result_ref": record}, {"uri": record["ref"]}):
        counts = await run({"type": "result", **source}, TABLE, mode="replace", chunk_size=10)
        assert (counts["rows_read"], counts["chunks"]) == (25, 3)
        assert stored(tmp_path) == (25, 24)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("source", "target", "config", "said"),
    [
        (SOURCE, {**TABLE, "table": ""}, {}, "a duckdb target needs `table`"),
        (SOURCE, TABLE, {"mode": "upsert"}, "mode append or replace"),
        (SOURCE, {**TABLE, "database": "../a"}, {}, "below the data folder"),
        (SOURCE, {"type": "http", "url": "http://x"}, {"mode": "replace"}, "only be appended to"),
        (SOURCE, {"type": "s3"}, {}, "there are http, postgres, duckdb, file"),
        ({"type": "result"}, TABLE, {}, "needs `result_ref` or `uri`"),
    ],
)
async def test_what_is_refused(run, source, target, config, said):
    with pytest.raises(ToolError, match=said) as caught:
        await run(source, target, **config)
    assert caught.value.kind == "schema"
