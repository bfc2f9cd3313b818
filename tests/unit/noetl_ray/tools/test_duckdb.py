from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from noetl_ray.errors import ToolError
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.tools.duckdb import DuckdbTool

ENDLESS = "select sum(a.range * b.range) from range(100000000) a, range(1000000) b"


@pytest_asyncio.fixture
async def run(bench, tmp_path):
    tool = DuckdbTool(data_root=tmp_path)

    async def call(query, **config):
        return (await tool.run({"query": query, **config}, bench.context())).data

    yield call
    await tool.close()


@pytest_asyncio.fixture
async def fail(run):
    async def call(query, **config) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await run(query, **config)
        return caught.value

    return call


@pytest.mark.asyncio
async def test_rows(run):
    data = await run("select 1 as a, 'x' as b union all select 2, null order by a")
    only = {
        "status": "success",
        "columns": ["a", "b"],
        "rows": [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
        "row_count": 2,
    }
    assert data == {**only, "statement_count": 1, "command_0": only}


@pytest.mark.asyncio
async def test_values_are_json(run):
    data = await run(
        "select 1.50::decimal(5,2) as dec, sum(i) as total, date '2020-01-02' as day,"
        " timestamptz '2020-01-02 03:04:05+00' as moment, timestamp '2020-01-02 03:04:05' as naive,"
        " {'a': [1, null]} as s, map {'k': 1} as m, 'ab'::blob as raw, interval 90 minute as span,"
        " '{\"a\": [1]}'::json as js, 9007199254740993::bigint as big, 'nan'::double as nan,"
        " '00000000-0000-0000-0000-000000000001'::uuid as id, null as none, true as yes,"
        " [170141183460469231731687303715884105727::hugeint] as huge from range(4) t(i)"
    )
    assert data["rows"] == [
        {
            "dec": 1.5,
            "total": 6,
            "day": "2020-01-02",
            "moment": "2020-01-02T03:04:05+00:00",
            "naive": "2020-01-02T03:04:05",
            "s": {"a": [1, None]},
            "m": {"k": 1},
            "raw": "YWI=",
            "span": "P0M0DT5400S",
            "js": {"a": [1]},
            "big": 9007199254740993,
            "nan": None,
            "id": "00000000-0000-0000-0000-000000000001",
            "none": None,
            "yes": True,
            "huge": [170141183460469231731687303715884105727],
        }
    ]


@pytest.mark.asyncio
async def test_statements_run_in_order_and_keep_their_results(run):
    data = await run(
        "create table t (a int); -- it's; a comment\n"
        "insert into t values (1), (2); update t set a = a + 1 where a > 1;"
        'delete from t where a = 1 returning a; select a as "Count" from t'
    )
    assert data["rows"] == [{"Count": 3}]
    assert data["statement_count"] == 5
    assert data["command_0"] == {
        "status": "success",
        "row_count": 0,
        "affected_rows": 0,
        "message": "CREATE 0",
    }
    assert data["command_1"]["affected_rows"] == 2
    assert data["command_2"]["message"] == "UPDATE 1"
    assert data["command_3"]["rows"] == [{"a": 1}]


@pytest.mark.asyncio
async def test_no_rows_still_have_columns(run):
    data = await run("select 1 as a where false")
    assert (data["columns"], data["rows"], data["row_count"]) == (["a"], [], 0)


@pytest.mark.asyncio
async def test_lists_of_rows_are_tables(run):
    people = [{"id": 1, "tags": ["a"]}, {"id": 2, "name": "Ada"}]
    mixed = [{"id": 1, "v": 1, "w": {}}, {"id": 2, "v": "two", "w": {}}]
    data = await run(
        "select p.id, p.name, len(p.tags) as tags, m.v, m.w"
        " from people p join mixed m using (id) order by 1",
        input={"people": people, "mixed": mixed, "limit": 3, "none": []},
    )
    assert data["rows"] == [
        {"id": 1, "name": None, "tags": 1, "v": "1", "w": "{}"},
        {"id": 2, "name": "Ada", "tags": None, "v": "two", "w": "{}"},
    ]


@pytest.mark.asyncio
async def test_memory_is_fresh_and_a_file_is_kept(run, fail, tmp_path):
    await run("create table t as select 7 as a")
    assert (await fail("select * from t")).kind == "schema"
    await run("create table t as select 7 as a", database="one.duckdb")
    assert (await run("select a from t", db_path="one.duckdb"))["rows"] == [{"a": 7}]
    assert (tmp_path / "one.duckdb").exists()


@pytest.mark.asyncio
async def test_tasks_on_one_file_take_turns(run):
    await run("create table t (a int)", database="one.duckdb")
    adding = [run(f"insert into t values ({n})", database="one.duckdb") for n in range(6)]
    await asyncio.gather(*adding)
    assert (await run("select sum(a) as s from t", database="one.duckdb"))["rows"] == [{"s": 15}]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["/tmp/x.duckdb", "../x.duckdb", "a/../../x", ".", "file://"])
async def test_a_database_elsewhere_is_refused(fail, name):
    error = await fail("select 1", database=name)
    assert error.kind == "schema"
    assert "below the data folder" in error.message


@pytest.mark.asyncio
async def test_without_a_folder_there_are_no_files(bench):
    tool = DuckdbTool()
    with pytest.raises(ToolError, match="no data folder"):
        await tool.run({"query": "select 1", "database": "a.db"}, bench.context())
    await tool.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('{path}')",
        "select * from '{path}'",
        "copy (select 1) to '{path}'",
        "attach '{path}.db'",
        "load httpfs",
        "set enable_external_access = true",
        "set memory_limit = '99GB'",
        "select * from statements",
    ],
)
async def test_nothing_outside_is_touched(fail, tmp_path, query):
    path = tmp_path / "secret.csv"
    path.write_text("a\nsecret\n")
    error = await fail(query.format(path=path))
    assert error.kind in ("auth", "schema")
    assert path.read_text() == "a\nsecret\n"


@pytest.mark.asyncio
async def test_outside_when_the_task_says_so(run, tmp_path):
    (tmp_path / "a.csv").write_text("a\n5\n")
    data = await run(f"select a from read_csv('{tmp_path}/a.csv')", external=True)
    assert data["rows"] == [{"a": 5}]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("selec 1", "parse"),
        ("select * from nothing", "schema"),
        ("select cast('x' as int)", "schema"),
        ("create table t (a int primary key); insert into t values (1), (1)", "db_constraint"),
    ],
)
async def test_kinds_of_errors(fail, query, kind):
    error = await fail(query)
    assert (error.kind, error.retryable) == (kind, False)
    assert "LINE" not in error.message


@pytest.mark.asyncio
async def test_a_failure_keeps_what_was_before(fail):
    error = await fail("select 1 as a; select * from nothing; select 2")
    assert error.message.startswith("statement 2 of 3: ")
    assert error.details["statement_index"] == 1
    assert error.data["command_0"]["rows"] == [{"a": 1}]
    assert error.data["status"] == "error"


@pytest.mark.asyncio
async def test_memory_is_bounded(bench):
    tool = DuckdbTool(memory_mb=32)
    with pytest.raises(ToolError, match="Memory"):
        await tool.run(
            {"query": "select count(distinct range) from range(5000000)"}, bench.context()
        )
    await tool.close()


@pytest.mark.asyncio
async def test_a_timeout_interrupts(fail, run):
    error = await fail(f"select 1 as a; {ENDLESS}", timeout=0.2)
    assert (error.kind, error.retryable) == ("db_timeout", True)
    assert error.message == "the SQL ran longer than 0.2 s and was interrupted"
    assert error.data["command_0"]["rows"] == [{"a": 1}]
    assert (await run("select 1 as a"))["rows"] == [{"a": 1}]


@pytest.mark.asyncio
async def test_cancelling_interrupts(run):
    task = asyncio.create_task(run(ENDLESS))
    await asyncio.sleep(0.05)
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.asyncio
@pytest.mark.parametrize("config", [{}, {"query": " -- none\n;"}])
async def test_missing_sql(bench, config):
    tool = DuckdbTool()
    with pytest.raises(ToolError, match="needs SQL"):
        await tool.run(config, bench.context())
    await tool.close()


@pytest.mark.asyncio
async def test_credentials_are_not_taken(fail):
    assert "takes no `auth`" in (await fail("select 1", auth="pg")).message


@pytest.mark.asyncio
async def test_stored_results_are_tables(bench):
    store = Artifacts(
        ResultStore(MemoryObjects(), Placement(), offload_bytes=None), Scope(), lambda: Redactor(())
    )
    rows = [{"i": i, "t": "x" * 40} for i in range(4_000)]
    record = await store.put("orders", {"rows": rows, "status": "ok"})
    tool = DuckdbTool()

    async def ask(query, **given):
        context = bench.context(artifacts=store)
        return (await tool.run({"query": query, "input": given}, context)).data["rows"]

    uri = record["ref"]
    count = [{"n": 4_000}]
    assert await ask(f'SELECT count(*) AS n FROM "{uri}"') == count
    assert await ask(f"SELECT count(*) AS n from \n'{uri}'") == count
    assert await ask("SELECT count(*) AS n FROM o", o=record) == count
    assert await ask("SELECT count(*) AS n FROM o", o=uri) == count
    assert await ask("SELECT count(*) AS n FROM o", o={"rows": rows[:3], "row_count": 3}) == [
        {"n": 3}
    ]
    joined = f'SELECT max(a.i) AS i FROM "{uri}" a JOIN o ON a.i = o.i'
    assert await ask(joined, o=[{"i": 7}]) == [{"i": 7}]
    assert await ask("SELECT 'noetl://x' AS t") == [{"t": "noetl://x"}]

    with pytest.raises(ToolError) as caught:
        await ask("SELECT 1 FROM o", o=uri[:-1] + ("0" if uri[-1] != "0" else "1"))
    assert (caught.value.kind, caught.value.retryable) == ("not_found", True)
    assert caught.value.details["code"] == "REFERENCE_NOT_AVAILABLE"
    text = await store.put("text", "no table")
    with pytest.raises(ToolError) as caught:
        await ask("SELECT 1 FROM o", o=text)
    assert caught.value.kind == "schema"
    with pytest.raises(ToolError, match="no store"):
        await tool.run({"query": "SELECT 1", "input": {"o": record}}, bench.context())
    await tool.close()
