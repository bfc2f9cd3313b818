"""The postgres kind against a real server."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
import pytest_asyncio

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ToolError
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.postgres import PostgresTool

pytestmark = pytest.mark.contract


class Database:
    """Runs tasks against one fresh database."""

    def __init__(self, dsn: str, tool: PostgresTool) -> None:
        self.dsn = dsn
        self.tool = tool

    async def _credential(self, name):
        return Credential(name=name, type="postgres", data={"dsn": self.dsn})

    def context(self, timeout_s=None):
        return ToolContext(
            execution_id=1,
            step="s",
            task="t",
            attempt=1,
            idempotency_key="k",
            timeout_s=timeout_s,
            credential=self._credential,
            log=lambda stream, line: None,
        )

    async def result(self, sql, **config):
        config = {"auth": "pg", "query": sql, **config}
        return await self.tool.run(config, self.context())

    async def run(self, sql, **config):
        return (await self.result(sql, **config)).data

    async def fail(self, sql, **config) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await self.run(sql, **config)
        return caught.value


@pytest_asyncio.fixture
async def db(empty_postgres_dsn):
    tool = PostgresTool(connections_max=2, idle_s=30)
    yield Database(empty_postgres_dsn, tool)
    await tool.close()


@pytest.mark.asyncio
async def test_rows(db):
    result = await db.result("select 1 as a, 'x' as b union select 2, null order by 1")
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    only = {"status": "success", "columns": ["a", "b"], "rows": rows, "row_count": 2}
    assert result.data == {**only, "statement_count": 1, "command_0": only}
    assert result.meta == {"code": "00000", "sqlstate": "00000", "row_count": 2}


@pytest.mark.asyncio
async def test_no_rows_still_have_columns(db):
    data = await db.run("select 1 as a where false")
    assert (data["columns"], data["rows"], data["row_count"]) == (["a"], [], 0)


@pytest.mark.asyncio
async def test_types(db):
    data = await db.run(
        """
        select 9007199254740993::bigint as big, 1.50::numeric as dec, 'NaN'::numeric as nan,
               date '2020-01-02' as day, timestamptz '2020-01-02 03:04:05+00' as moment,
               '{"a": [1, null]}'::jsonb as jb, '[1]'::json as js, array['{"k":1}'::jsonb] as jbs,
               '00000000-0000-0000-0000-000000000001'::uuid as id, '\\x6162'::bytea as raw,
               array[1, 2] as list, array[1.5]::numeric[] as decs, true as yes, null::int as none,
               int4range(1, 5) as span, '10.0.0.1'::inet as ip
        """
    )
    assert data["rows"] == [
        {
            "big": 9007199254740993,
            "dec": 1.5,
            "nan": None,
            "day": "2020-01-02",
            "moment": "2020-01-02T03:04:05+00:00",
            "jb": {"a": [1, None]},
            "js": [1],
            "jbs": [{"k": 1}],
            "id": "00000000-0000-0000-0000-000000000001",
            "raw": "YWI=",
            "list": [1, 2],
            "decs": [1.5],
            "yes": True,
            "none": None,
            "span": "[1,5)",
            "ip": "10.0.0.1",
        }
    ]


@pytest.mark.asyncio
async def test_types_made_by_the_user(db):
    await db.run("create type mood as enum ('sad', 'ok'); create type pair as (a int, b numeric)")
    data = await db.run("select 'ok'::mood as m, row(1, 2.5)::pair as p")
    assert data["rows"] == [{"m": "ok", "p": {"a": 1, "b": 2.5}}]


@pytest.mark.asyncio
async def test_the_last_statement_is_the_result_and_the_others_are_kept(db):
    data = await db.run(
        "create table t (id int primary key, v text); -- it's; a comment\n"
        "insert into t values (1, 'a;b'), (2, $$c;d$$);\n"
        "update t set v = v || '!' returning v;"
    )
    assert data["rows"] == [{"v": "a;b!"}, {"v": "c;d!"}]
    assert data["statement_count"] == 3
    assert data["command_0"]["message"] == "CREATE TABLE"
    assert data["command_1"]["affected_rows"] == 2
    assert data["command_2"]["rows"] == data["rows"]


@pytest.mark.asyncio
async def test_statements_without_rows(db):
    await db.run("create table t (id int)")
    data = await db.run("insert into t select generate_series(1, 5)")
    only = {"status": "success", "row_count": 5, "affected_rows": 5, "message": "INSERT 0 5"}
    assert data == {**only, "statement_count": 1, "command_0": only}
    assert (await db.run("delete from t where id > 3"))["affected_rows"] == 2


@pytest.mark.asyncio
async def test_the_first_failure_stops_and_what_was_before_stays(db):
    await db.run("create table t (id int primary key)")
    error = await db.fail(
        "insert into t values (1); insert into t values (1); insert into t values (2)"
    )
    assert str(error).startswith("statement 2 of 3: duplicate key")
    assert (error.kind, error.retryable) == ("db_constraint", False)
    assert error.details["sqlstate"] == error.details["pg_code"] == "23505"
    assert error.details["statement_index"] == 1
    assert error.data["status"] == "error"
    assert error.data["command_0"]["affected_rows"] == 1
    assert (await db.run("select count(*) as n from t"))["rows"] == [{"n": 1}]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("sql", "kind", "state"),
    [
        ("selec 1", "parse", "42601"),
        ("select * from nowhere", "schema", "42P01"),
        ("select 'x'::int", "schema", "22P02"),
        ("do $$ begin raise exception using errcode = '40001'; end $$", "db_deadlock", "40001"),
    ],
)
async def test_kinds_of_failure(db, sql, kind, state):
    error = await db.fail(sql)
    assert (error.kind, error.details["sqlstate"]) == (kind, state)
    assert (await db.run("select 1 as a"))["rows"] == [{"a": 1}]


@pytest.mark.asyncio
async def test_statements_that_refuse_a_transaction(db):
    await db.run("create table t (id int)")
    data = await db.run(
        "vacuum t; create database extra; drop database extra;create index concurrently i on t (id)"
    )
    assert data["message"] == "CREATE INDEX"
    body = "begin insert into t values (1); commit; insert into t values (2); rollback; end"
    await db.run(f"create procedure p() language plpgsql as $$ {body} $$; call p()")
    assert (await db.run("select count(*) as n from t"))["rows"] == [{"n": 1}]


@pytest.mark.asyncio
async def test_a_playbooks_own_transaction(db):
    await db.run("create table t (id int)")
    await db.run("begin; insert into t values (1); commit")
    error = await db.fail("begin; insert into t values (2)")
    assert "add COMMIT" in str(error)
    assert (await db.run("select count(*) as n from t"))["rows"] == [{"n": 1}]


@pytest.mark.asyncio
async def test_time_over_cancels_on_the_server(db):
    error = await db.fail("select pg_sleep(20) /* slow one */", timeout=0.2)
    assert (error.kind, error.retryable) == ("db_timeout", True)
    running = "select count(*) as n from pg_stat_activity where state = 'active' and query like "
    async with asyncio.timeout(5):
        while (await db.run(running + "'%slow ' || 'one%'"))["rows"][0]["n"]:
            await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_cancelling_passes_through(db):
    await db.run("select 1")
    task = asyncio.create_task(db.run("select pg_sleep(20)"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await db.run("select 1 as a"))["rows"] == [{"a": 1}]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("leave", "look", "expected"),
    [
        (
            "prepare p as select 1",
            "select count(*) as n from pg_prepared_statements where name = 'p'",
            {"n": 0},
        ),
        ("set statement_timeout = 77", "show statement_timeout", {"statement_timeout": "0"}),
        (
            "create temp table tt (a int)",
            "select to_regclass('tt') is null as gone",
            {"gone": True},
        ),
        ("select pg_advisory_lock(7)", "select pg_try_advisory_lock(7) as free", {"free": True}),
    ],
)
async def test_nothing_of_one_session_is_left_for_the_next(db, leave, look, expected):
    await db.run(leave)
    results = await asyncio.gather(db.run(look), db.run("select pg_sleep(0.02)"))
    assert results[0]["rows"] == [expected]


@pytest.mark.asyncio
async def test_a_lost_session_fails_one_task_only(db):
    error = await db.fail("select pg_terminate_backend(pg_backend_pid())")
    assert (error.kind, error.retryable) == ("db_connection", True)
    assert (await db.run("select 1 as a"))["rows"] == [{"a": 1}]


@pytest.mark.asyncio
async def test_connections_are_bounded_and_waiters_served(db):
    found = await asyncio.gather(
        *(db.run("select pg_sleep(0.01), pg_backend_pid() as pid") for _ in range(8))
    )
    assert len({data["rows"][0]["pid"] for data in found}) <= 2


@pytest.mark.asyncio
async def test_idle_pools_are_closed(empty_postgres_dsn):
    tool = PostgresTool(connections_max=1, idle_s=0.05)
    task = Database(empty_postgres_dsn, tool)
    pid = (await task.run("select pg_backend_pid() as pid"))["rows"][0]["pid"]
    watcher = await asyncpg.connect(empty_postgres_dsn)
    try:
        async with asyncio.timeout(5):
            while await watcher.fetchval("select 1 from pg_stat_activity where pid = $1", pid):
                await asyncio.sleep(0.02)
    finally:
        await watcher.close()
        await tool.close()


@pytest.mark.asyncio
async def test_many_rows_let_others_run(db):
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    data = await db.run("select i, i::text as t from generate_series(1, 20000) as i")
    beside.cancel()
    assert data["row_count"] == 20000
    assert data["rows"][-1] == {"i": 20000, "t": "20000"}
    assert turns > 5


@pytest.mark.asyncio
async def test_a_wrong_database_is_named_without_the_password(db):
    error = await db.fail("select 1", database="nowhere")
    assert error.kind == "not_found"
    assert "nowhere" in str(error)


# exactly_once


@pytest.mark.asyncio
async def test_exactly_once_gives_the_first_result_back_and_does_nothing(db):
    await db.run("CREATE TABLE paid (id int)")
    sql = "INSERT INTO paid VALUES (1); SELECT count(*) AS n FROM paid"
    first = await db.result(sql, exactly_once=True)
    again = await db.result(sql, exactly_once=True)
    assert first.data["rows"] == again.data["rows"] == [{"n": 1}]
    assert (first.meta["adopted"], again.meta["adopted"]) == (False, True)
    assert (await db.run("SELECT count(*) AS n FROM paid"))["rows"] == [{"n": 1}]


@pytest.mark.asyncio
async def test_exactly_once_rolls_effect_and_mark_back_together(db):
    await db.run("CREATE TABLE paid (id int)")
    await db.fail("INSERT INTO paid VALUES (1); SELECT 1/0", exactly_once=True)
    assert (await db.run("SELECT count(*) AS n FROM paid"))["rows"] == [{"n": 0}]
    await db.run("INSERT INTO paid VALUES (2)", exactly_once=True)
    assert (await db.run("SELECT id FROM paid"))["rows"] == [{"id": 2}]


@pytest.mark.asyncio
async def test_exactly_once_holds_for_runs_at_the_same_time(db):
    await db.run("CREATE TABLE paid (id int)")
    sql = "INSERT INTO paid VALUES (1); SELECT pg_sleep(0.2)"
    runs = await asyncio.gather(*(db.result(sql, exactly_once=True) for _ in range(2)))
    assert sorted(run.meta["adopted"] for run in runs) == [False, True]
    assert (await db.run("SELECT count(*) AS n FROM paid"))["rows"] == [{"n": 1}]


@pytest.mark.asyncio
async def test_exactly_once_refuses_what_cannot_be_in_a_transaction(db):
    error = await db.fail("VACUUM", exactly_once=True)
    assert error.kind == "schema"
    assert "exactly_once" in error.message
