"""The transfer kind against a real Postgres."""

from __future__ import annotations

import json

import asyncpg
import pytest
import pytest_asyncio

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ToolError
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.transfer import TransferTool

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


class Bench:
    """Runs transfers with one fresh database and one folder."""

    def __init__(self, dsn, folder, tool) -> None:
        self.dsn = dsn
        self.folder = folder
        self.tool = tool

    async def _credential(self, name):
        return Credential(name=name, type="postgres", data={"dsn": self.dsn})

    async def run(self, source, target, timeout_s=None, **config):
        context = ToolContext(
            execution_id=1,
            step="s",
            task="t",
            attempt=1,
            idempotency_key="k",
            timeout_s=timeout_s,
            credential=self._credential,
            log=lambda stream, line: None,
        )
        config = {"source": source, "target": target, **config}
        return (await self.tool.run(config, context)).data

    async def fail(self, source, target, **config) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await self.run(source, target, **config)
        return caught.value

    async def sql(self, text):
        connection = await asyncpg.connect(self.dsn)
        try:
            return [dict(row) for row in await connection.fetch(text)]
        finally:
            await connection.close()

    def lines(self, rows):
        (self.folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"type": "file", "path": "in.jsonl"}


@pytest_asyncio.fixture
async def db(empty_postgres_dsn, tmp_path):
    tool = TransferTool(data_root=tmp_path)
    yield Bench(empty_postgres_dsn, tmp_path, tool)
    await tool.close()


def query(text):
    return {"type": "postgres", "auth": "pg", "query": text}


def table(name, **more):
    return {"tool": "postgres", "auth": "pg", "table": name, **more}


async def test_from_table_to_table_without_loss(db):
    await db.sql(
        """
        create table a as select n as id, n * 1.10 as price, 'it''s "n", ' || n as name,
            case when n % 2 = 0 then null else '' end as maybe, n % 2 = 0 as even,
            date '2020-01-01' + n::int as day, timestamptz '2020-01-01 00:00:00+00' as moment,
            jsonb_build_object('n', array[n, null]) as doc, '\\x00ff'::bytea as raw,
            ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid as uid,
            n::float8 / 3 as share, '10.0.0.1'::inet as ip, interval '90 minutes' as span
        from generate_series(1, 2500) n
        """
    )
    await db.sql("create table b (like a)")
    data = await db.run(query("select * from a"), table("public.b"), chunk_size=1000)
    assert data == {"status": "success", "rows_read": 2500, "rows_written": 2500, "chunks": 3}
    left = await db.sql("select * from (table a except all table b) x")
    assert left == []


async def test_through_a_file_and_back(db):
    await db.sql("create table a (id int, name text, price numeric, day date)")
    await db.sql("insert into a values (1, 'x', 1.10, '2020-01-02'), (2, null, null, null)")
    await db.sql("create table b (like a)")
    for name in ("a.parquet", "a.feather", "a.csv", "a.jsonl"):
        await db.run(query("select * from a"), {"type": "file", "path": name})
        await db.run({"type": "file", "path": name}, table("b"), mode="replace")
        assert await db.sql("select * from b order by id") == await db.sql("select * from a")


async def test_modes(db):
    await db.sql('create table t (id int primary key, "a ""b" text, kept text default \'k\')')
    target = table("t", mapping={"id": "id", 'a "b': "v"})
    await db.run(db.lines([{"id": 1, "v": "one"}]), target)
    await db.run(db.lines([{"id": 2, "v": "two"}]), target, mode="append")
    error = await db.fail(db.lines([{"id": 3, "v": "x"}, {"id": 1, "v": "x"}]), target)
    assert error.kind == "db_constraint"
    rows = [{"id": 2, "v": "old"}, {"id": 3, "v": "three"}, {"id": 2, "v": "zwei"}]
    data = await db.run(db.lines(rows), target, mode="upsert", key="id")
    assert data == {"status": "success", "rows_read": 3, "rows_written": 2, "chunks": 1}
    await db.run(db.lines(rows[::-1]), target, mode="upsert", key=["id"], chunk_size=1)
    found = await db.sql("select * from t order by id")
    assert [tuple(row.values()) for row in found] == [
        (1, "one", "k"),
        (2, "old", "k"),
        (3, "three", "k"),
    ]
    await db.run(db.lines([{"id": 9, "v": "nine"}]), target, mode="replace")
    assert [row["id"] for row in await db.sql("select id from t")] == [9]


async def test_only_keys_can_be_upserted(db):
    await db.sql("create table t (a int, b int, primary key (a, b))")
    for _ in range(2):
        source = db.lines([{"a": 1, "b": 2}])
        await db.run(source, table("t", key="a, b"), mode="upsert")
    assert await db.sql("select * from t") == [{"a": 1, "b": 2}]


async def test_a_failure_in_a_later_chunk_undoes_all(db):
    await db.sql("create table t (id int)")
    await db.sql("insert into t values (0)")
    source = db.lines([{"id": 1}, {"id": 2}, {"id": "three"}])
    error = await db.fail(source, table("t"), mode="replace", chunk_size=1)
    assert error.kind == "schema"
    assert error.message.startswith("writing the target: invalid input syntax")
    assert await db.sql("select * from t") == [{"id": 0}]


async def test_a_timeout_undoes_all(db):
    await db.sql("create table t (id int)")
    source = query(
        "select n, pg_sleep(case when n = 3 then 30 else 0 end)::text from generate_series(1, 5) n"
    )
    target = table("t", mapping={"id": "n"})
    error = await db.fail(source, target, chunk_size=1, timeout=0.3)
    assert error.kind == "timeout"
    assert await db.sql("select * from t") == []
    assert (await db.run(query("select 1 as id"), table("t")))["rows_written"] == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("select 1; select 2", "schema"),
        ("", "schema"),
        ("selec 1", "parse"),
        ("select * from nothing", "schema"),
        ("select 1 as id, 2 as id", "schema"),
        ("delete from t returning id", "unknown"),
        ("select 1.0000000001::numeric as id", "schema"),
    ],
)
async def test_a_bad_source(db, text, kind):
    await db.sql("create table t (id int)")
    await db.sql("insert into t values (0)")
    assert (await db.fail(query(text), table("t"))).kind == kind
    assert await db.sql("select * from t") == [{"id": 0}]


@pytest.mark.parametrize(
    ("name", "kind"), [("absent", "schema"), ("no.t", "schema"), ('t"; drop table t; --', "schema")]
)
async def test_a_bad_target(db, name, kind):
    await db.sql("create table t (id int)")
    assert (await db.fail(query("select 1 as id"), table(name))).kind == kind
    assert await db.sql("select * from t") == []


async def test_a_key_must_be_moved_too(db):
    await db.sql("create table t (id int primary key, v int)")
    error = await db.fail(query("select 1 as v"), table("t", key="id"), mode="upsert")
    assert "key column 'id'" in error.message
