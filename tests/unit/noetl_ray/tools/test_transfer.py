"""Transfers between files, HTTP and DuckDB; those with Postgres are in tests/contract."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from datetime import date
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
import pytest_asyncio
import uvicorn
from pyarrow import feather, parquet
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from noetl_ray.errors import ToolError
from noetl_ray.tools.transfer import TransferTool
from noetl_ray.tools.transfer_arrow import conform, json_rows, steady, table_of
from noetl_ray.tools.transfer_postgres import _field, quoted

ROWS = [{"id": n, "name": f"n{n}", "price": n / 2} for n in range(25)]


async def listed(request):
    return JSONResponse(ROWS)


async def wrapped(request):
    return JSONResponse({"count": 25, "data": ROWS, "page": {"all": ROWS[:3]}})


@pytest.fixture(scope="module")
def site():
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/listed", listed), Route("/wrapped", wrapped)])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest_asyncio.fixture
async def run(bench, tmp_path):
    tool = TransferTool(data_root=tmp_path)

    async def call(source, target, **config):
        config = {"source": source, "target": target, **config}
        return (await tool.run(config, bench.context())).data

    yield call
    await tool.close()


@pytest_asyncio.fixture
async def fail(run):
    async def call(source, target, **config) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await run(source, target, **config)
        return caught.value

    return call


@pytest.fixture
def lines(tmp_path):
    def write(rows, name="in.jsonl"):
        (tmp_path / name).write_text("\n".join(json.dumps(row) for row in rows) + "\n")
        return {"type": "file", "path": name}

    return write


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.asyncio
@pytest.mark.parametrize("middle", ["a.parquet", "a.feather", "deep/er/a.ndjson"])
async def test_rows_survive_every_format(run, lines, tmp_path, middle):
    there = await run(lines(ROWS), {"tool": "file", "path": middle}, chunk_size=10)
    assert there == {"status": "success", "rows_read": 25, "rows_written": 25, "chunks": 3}
    await run({"type": "file", "path": middle}, {"type": "file", "path": "out.jsonl"})
    assert read(tmp_path / "out.jsonl") == ROWS
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.asyncio
async def test_csv_has_only_text(run, lines, tmp_path):
    rows = [{"zip": "007", "n": 1, "note": ""}, {"zip": 'a,"b"', "n": None, "note": None}]
    await run(lines(rows), {"type": "file", "path": "a.csv"})
    await run({"type": "file", "path": "a.csv"}, {"type": "file", "path": "out.jsonl"})
    assert read(tmp_path / "out.jsonl") == [rows[0] | {"n": "1"}, rows[1]]


@pytest.mark.asyncio
async def test_files_are_what_others_read(run, lines, tmp_path):
    await run(lines(ROWS), {"type": "file", "path": "a.parquet"}, chunk_size=10)
    await run(lines(ROWS), {"type": "file", "path": "a.bin", "format": "feather"}, chunk_size=10)
    assert parquet.read_table(tmp_path / "a.parquet").to_pylist() == ROWS
    assert feather.read_table(tmp_path / "a.bin").to_pylist() == ROWS


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "records", "count"),
    [("listed", None, 25), ("wrapped", None, 25), ("wrapped", "page.all", 3)],
)
async def test_from_http(run, site, tmp_path, path, records, count):
    source = {"type": "http", "url": f"{site}/{path}", "records": records}
    data = await run(source, {"type": "file", "path": "out.jsonl"}, chunk_size="10")
    assert data["rows_written"] == count
    assert read(tmp_path / "out.jsonl") == ROWS[:count]


@pytest.mark.asyncio
async def test_from_duckdb(run, tmp_path):
    source = {"type": "duckdb", "query": "select range as n from range(5)"}
    data = await run(source, {"type": "file", "path": "out.csv"}, chunk_size=2)
    assert data["chunks"] == 3
    assert (tmp_path / "out.csv").read_text() == '"n"\n0\n1\n2\n3\n4\n'


@pytest.mark.asyncio
async def test_a_mapping_names_and_chooses(run, lines, tmp_path):
    source = lines([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"b": "z"}])
    target = {"type": "file", "path": "out.jsonl", "mapping": {"id": "a", "again": "a"}}
    await run(source, target, chunk_size=2)
    assert read(tmp_path / "out.jsonl") == [
        {"id": 1, "again": 1},
        {"id": 2, "again": 2},
        {"id": None, "again": None},
    ]


@pytest.mark.asyncio
async def test_a_failure_leaves_the_old_file(run, fail, lines, tmp_path):
    target = {"type": "file", "path": "out.parquet"}
    await run(lines(ROWS[:2]), target)
    assert "mode: replace" in (await fail(lines(ROWS), target)).message
    bad = lines([{"id": 1}, {"id": "no number"}])
    error = await fail(bad, target, mode="replace", chunk_size=1)
    assert error.message.startswith("column 'id' changes its type")
    new = lines([{"id": 1}, {"id": 2, "extra": 1}])
    assert "column 'extra'" in (await fail(new, target, mode="replace", chunk_size=1)).message
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist() == ROWS[:2]
    assert not list(tmp_path.rglob("*.part"))
    await run(lines(ROWS), target, mode="replace")
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == 25


@pytest.mark.asyncio
async def test_nothing_to_move(run, fail, tmp_path):
    (tmp_path / "in.jsonl").write_text("")
    source = {"type": "file", "path": "in.jsonl"}
    data = await run(source, {"type": "file", "path": "out.csv"})
    assert data == {"status": "success", "rows_read": 0, "rows_written": 0, "chunks": 0}
    assert (tmp_path / "out.csv").read_text() == ""
    error = await fail(source, {"type": "file", "path": "out.parquet"})
    assert "no rows and so no columns" in error.message


@pytest.mark.asyncio
async def test_a_timeout_leaves_nothing(fail, tmp_path):
    endless = "select sum(a.range * b.range) from range(100000000) a, range(1000000) b"
    source = {"type": "duckdb", "query": endless}
    error = await fail(source, {"type": "file", "path": "out.csv"}, timeout=0.2)
    assert (error.kind, error.retryable) == ("timeout", True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_cancelling_leaves_nothing(run, lines, tmp_path):
    source = lines([{"id": n} for n in range(20_000)])
    task = asyncio.create_task(run(source, {"type": "file", "path": "o.parquet"}, chunk_size=1))
    async with asyncio.timeout(10):
        while not list(tmp_path.glob("*.part")) and not list(tmp_path.glob(".*.part")):
            await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


FILE = {"type": "file", "path": "x.csv"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("config", "kind", "said"),
    [
        ({"source": None}, "schema", "needs `source`"),
        ({"source": {"path": "a"}}, "schema", "source of a transfer needs `type`"),
        ({"source": {"type": "ftp"}}, "schema", "source type 'ftp' is not known"),
        ({"target": {"type": "ftp"}}, "schema", "target type 'ftp' is not known"),
        ({"mode": "merge"}, "schema", "mode 'merge' is not known"),
        ({"mode": "upsert"}, "schema", "can only be replaced"),
        ({"chunk_size": 0}, "schema", "chunk_size must be"),
        ({"chunk_size": "many"}, "schema", "chunk_size must be"),
        ({"mapping": ["a"]}, "schema", "mapping must say"),
        ({"mapping": {"a": "nope"}}, "schema", "takes the field 'nope'"),
        ({"source": {"type": "file", "path": "../in.jsonl"}}, "schema", "below the data folder"),
        ({"source": {"type": "file", "path": "/etc/hosts"}}, "schema", "below the data folder"),
        ({"source": {"type": "file", "path": "a.xls"}}, "schema", "format of 'a.xls'"),
        ({"source": {"type": "file", "path": "no.csv"}}, "not_found", "no file 'no.csv'"),
        ({"source": {"type": "file", "path": "list.jsonl"}}, "parse", "must be a JSON mapping"),
        ({"source": {"type": "file", "path": "bad.jsonl"}}, "parse", "cannot be read as jsonl"),
        ({"source": {"type": "file", "path": "bad.parquet"}}, "parse", "read as parquet"),
        ({"source": {"type": "postgres", "query": "select 1"}}, "auth", "needs a database"),
        ({"target": {"type": "postgres", "table": "t"}}, "auth", "needs a database"),
        ({"target": {"type": "postgres"}}, "schema", "needs `table`"),
        ({"target": {"type": "postgres", "table": "t"}, "mode": "upsert"}, "schema", "needs `key`"),
        ({"source": {"type": "duckdb", "query": "selec"}}, "parse", "Parser Error"),
    ],
)
async def test_what_is_refused(fail, lines, tmp_path, config, kind, said):
    (tmp_path / "list.jsonl").write_text("[1]\n")
    for name in ("bad.jsonl", "bad.parquet"):
        (tmp_path / name).write_text("{no\n")
    whole = {"source": lines(ROWS), "target": FILE, **config}
    error = await fail(**whole)
    assert said in error.message
    assert error.kind == kind
    assert not (tmp_path / "x.csv").exists()


def test_columns_without_a_common_type_are_text():
    rows = [{"a": 1, "b": UUID(int=1)}, {"a": "x", "b": None}, {"a": {"k": Decimal("1.5")}}]
    assert table_of(rows).to_pylist() == [
        {"a": "1", "b": str(UUID(int=1))},
        {"a": "x", "b": None},
        {"a": '{"k":1.5}', "b": None},
    ]


def test_later_chunks_take_the_shape_of_the_first():
    schema = steady(table_of([{"a": None, "b": 1}]).schema)
    made = conform(table_of([{"a": "x"}]), schema)
    assert made.to_pylist() == [{"a": "x", "b": None}]
    assert json_rows(pa.table({"d": [date(2020, 1, 2)]})) == [{"d": "2020-01-02"}]


@pytest.mark.parametrize(("name", "expected"), [("a", '"a"'), ('a"; drop', '"a""; drop"')])
def test_names_are_quoted(name, expected):
    assert quoted(name) == expected


@pytest.mark.parametrize("name", ["", "a\0"])
def test_some_names_are_none(name):
    with pytest.raises(ToolError, match="cannot be the name"):
        quoted(name)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("", '""'),
        ('say "a",\nb', '"say ""a"",\nb"'),
        (True, "true"),
        (1, '"1"'),
        (0.1, "0.1"),
        (Decimal("1.10"), '"1.10"'),
        (b"a", '"\\x61"'),
        (date(2020, 1, 2), '"2020-01-02"'),
        ({"a": [1]}, '"{""a"":[1]}"'),
    ],
)
def test_fields_of_a_copy(value, expected):
    assert _field(value) == expected
