"""The schema on a real Postgres: migrations, isolation beneath queries, events that only grow."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
import pytest_asyncio

from noetl_ray.errors import StoreError, StoreUnavailableError
from noetl_ray.readmodel.postgres_queries import PostgresQueries
from noetl_ray.readmodel.postgres_store import PostgresProjectionStore
from noetl_ray.readmodel.records import ProjectionBatch
from noetl_ray.readmodel.schema import Migration, drop_schema, migrate, migrations
from noetl_ray.testing.contract_business_objects import stated
from noetl_ray.testing.readmodel_samples import (
    HOME,
    OTHER_TENANT,
    execution,
    line,
    mark,
    projection,
    rows_of,
)
from noetl_ray.testing.samples import sample_event

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def store(postgres_dsn):
    store = await PostgresProjectionStore.open(postgres_dsn)
    yield store
    await store.close()


@pytest_asyncio.fixture
async def connection(postgres_dsn):
    connection = await asyncpg.connect(postgres_dsn)
    yield connection
    await connection.close()


async def test_migrating_twice_changes_nothing(postgres_dsn, connection):
    before = await connection.fetch("SELECT * FROM noetl.schema_version")
    assert await migrate(postgres_dsn) == len(migrations())
    assert await connection.fetch("SELECT * FROM noetl.schema_version") == before


async def test_many_may_migrate_at_once(empty_postgres_dsn):
    versions = await asyncio.gather(*(migrate(empty_postgres_dsn) for _ in range(5)))
    assert set(versions) == {len(migrations())}


async def test_a_newer_schema_is_refused(postgres_dsn):
    newer = [*migrations(), Migration(version=900, name="later", sql="SELECT 1")]
    assert await migrate(postgres_dsn, newer) == 900
    with pytest.raises(StoreError, match="schema 900, this code knows"):
        await migrate(postgres_dsn)


async def test_a_changed_migration_is_refused(postgres_dsn):
    changed = [Migration(version=1, name="base", sql="SELECT 2"), *migrations()[1:]]
    with pytest.raises(StoreError, match="other text"):
        await migrate(postgres_dsn, changed)


async def test_a_broken_migration_leaves_nothing(empty_postgres_dsn):
    following = len(migrations()) + 1
    bad = Migration(version=following, name="bad", sql="CREATE TABLE noetl.event (a)")
    broken = [*migrations(), bad]
    with pytest.raises(StoreError):
        await migrate(empty_postgres_dsn, broken)
    assert await migrate(empty_postgres_dsn) == len(migrations())


async def test_a_store_makes_its_tables_and_makes_them_again(empty_postgres_dsn):
    queries = await PostgresQueries.open(empty_postgres_dsn)
    with pytest.raises(StoreUnavailableError):
        await queries.executions(HOME)
    store = await PostgresProjectionStore.open(empty_postgres_dsn)
    assert await store.position("check") == 0
    assert await queries.executions(HOME) == []
    await drop_schema(empty_postgres_dsn)
    with pytest.raises(StoreUnavailableError):
        await store.position("check")
    await store.commit(ProjectionBatch(checkpoints=(mark(3),), executions=(execution(3),)))
    assert await queries.execution(HOME, 7) == execution(3)
    await store.close()
    await queries.close()


async def test_dropping_what_is_not_there_is_no_error(empty_postgres_dsn):
    await drop_schema(empty_postgres_dsn)


async def test_a_missing_server_is_unavailable(tmp_path):
    with pytest.raises(StoreUnavailableError):
        await migrate(f"postgresql://noetl@/noetl?host={tmp_path}")
    queries = await PostgresQueries.open(f"postgresql://noetl@/noetl?host={tmp_path}")
    with pytest.raises(StoreUnavailableError):
        await queries.executions(HOME)
    await queries.close()


async def test_ten_3_a_connection_sees_only_the_scope_it_states(store, connection):
    await store.commit(
        ProjectionBatch(
            checkpoints=(mark(3),),
            events=rows_of(3, sample_event(1)),
            executions=(execution(3), execution(3, scope=OTHER_TENANT)),
            projections=(projection(3),),
            lines=(line(1, "x"),),
            objects=(stated(3),),
        )
    )
    tables = ("event", "execution", "projection", "task_log", "business_object")

    async def seen():
        return [
            await connection.fetchval(f"SELECT count(*) FROM noetl.{table}")
            for table in (*tables, "business_object_history")
        ]

    assert await seen() == [0, 0, 0, 0, 0, 0], "no scope, no rows"
    await connection.execute(
        "SELECT set_config('noetl.tenant_id', 'default', false), "
        "set_config('noetl.organization_id', 'default', false)"
    )
    assert await seen() == [1, 1, 1, 1, 1, 1]
    await connection.execute("SELECT set_config('noetl.organization_id', 'other', false)")
    assert await seen() == [0, 0, 0, 0, 0, 0]
    await connection.execute("SET noetl.operator = 'on'")
    assert await seen() == [1, 2, 1, 1, 1, 1]


async def test_a_connection_for_queries_cannot_write(connection):
    await connection.execute(
        "SELECT set_config('noetl.tenant_id', 'default', false), "
        "set_config('noetl.organization_id', 'default', false)"
    )
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(
            "INSERT INTO noetl.playbook (tenant_id, organization_id, path, version, digest, "
            "position, registered_at) VALUES ('default', 'default', 'p', 1, 'd', 1, now())"
        )


async def test_env_10_events_are_never_changed(store, connection):
    await store.commit(ProjectionBatch(checkpoints=(mark(3),), events=rows_of(3, sample_event(1))))
    await connection.execute("SET noetl.operator = 'on'")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("UPDATE noetl.event SET producer = 'x'")
    triggers = await connection.fetchval(
        "SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'noetl'"
    )
    assert triggers == 0


@pytest.mark.parametrize("column", ["stage_id", "frame_id", "command_id"])
async def test_env_13_lineage_is_read_through_an_index(connection, column):
    await connection.execute("SET enable_seqscan = off")
    plan = await connection.fetch(
        f"EXPLAIN SELECT * FROM noetl.event WHERE execution_id = 7 AND {column} = 'x' "
        "ORDER BY position DESC LIMIT 5"
    )
    text = "\n".join(row[0] for row in plan)
    assert f"event_{column.removesuffix('_id')}" in text
    assert "Sort" not in text


async def test_prs_2_out_of_order_delivery_ends_like_in_order(store):
    order = [5, 1, 9, 3, 9, 7, 2]
    for version in order:
        await store.save_projection(projection(version))
    assert await store.load_projection(projection(9).key) == projection(9)
    assert store.stale == 5


async def test_prj_13_an_execution_is_one_row_found_by_its_key(postgres_dsn, store, connection):
    rows = tuple(execution(3, execution_id=number) for number in range(1, 2001))
    await store.commit(ProjectionBatch(checkpoints=(mark(3),), executions=rows))
    queries = await PostgresQueries.open(postgres_dsn)
    for number in (1, 1000, 2000):
        assert await queries.execution(HOME, number) == rows[number - 1]
    await queries.close()
    plan = await connection.fetch(
        "EXPLAIN SELECT * FROM noetl.execution "
        "WHERE tenant_id = 'default' AND organization_id = 'default' AND execution_id = 1000"
    )
    assert "Seq Scan" not in "\n".join(row[0] for row in plan)


async def test_ten_3_every_table_with_a_tenant_is_behind_row_level_security(connection):
    """Forced, so that it binds the owner too, and with a policy that asks for the scope."""
    open_tables = await connection.fetch(
        """
        SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'noetl' AND c.relkind IN ('r', 'p')
          AND EXISTS (SELECT FROM pg_attribute a
                      WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
          AND NOT (c.relrowsecurity AND c.relforcerowsecurity
                   AND EXISTS (SELECT FROM pg_policies p WHERE p.schemaname = 'noetl'
                               AND p.tablename = c.relname
                               AND p.qual LIKE '%noetl.tenant_id%'
                               AND p.qual LIKE '%noetl.organization_id%'))
        """
    )
    assert [row["relname"] for row in open_tables] == []


async def test_sec_2_the_projector_writes_rows_of_the_read_model_and_nothing_else(postgres_dsn):
    store = await PostgresProjectionStore.open(postgres_dsn)
    await store.commit(ProjectionBatch(checkpoints=(mark(3),), executions=(execution(3),)))
    async with store._pool.acquire() as as_projector:
        assert await as_projector.fetchval("SELECT current_user") == "noetl_projector"
        for refused in (
            "CREATE TABLE noetl.mine (a int)",
            "CREATE TABLE public.mine (a int)",
            "DROP TABLE noetl.execution",
            "ALTER TABLE noetl.execution DISABLE ROW LEVEL SECURITY",
            "UPDATE noetl.event SET payload = '{}'",
            "DELETE FROM noetl.schema_version",
            "CREATE SCHEMA mine",
            "CREATE DATABASE mine",
            "CREATE ROLE mine",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await as_projector.execute(refused)
    await store.close()


async def test_sec_2_who_answers_questions_writes_nothing(postgres_dsn):
    queries = await PostgresQueries.open(postgres_dsn)
    assert await queries.executions(HOME) == []
    async with queries._pool.acquire() as as_reader:
        assert await as_reader.fetchval("SELECT current_user") == "noetl_reader"
        for refused in (
            "DELETE FROM noetl.execution",
            "INSERT INTO noetl.schema_version VALUES (1)",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await as_reader.execute(refused)
    await queries.close()
