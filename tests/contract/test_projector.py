"""The projector over a real Postgres: many events, restarts of the server, parity with memory."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from actors.projector import Projector
from noetl_ray.clock import SystemClock
from noetl_ray.embedded.postgres import start_postgres, stop_postgres
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.readmodel.postgres_queries import PostgresQueries
from noetl_ray.readmodel.postgres_store import PostgresProjectionStore
from noetl_ray.readmodel.projecting import state_key
from noetl_ray.readmodel.schema import drop_schema, migrate
from noetl_ray.replay import decode_history
from noetl_ray.replay.reading import read_execution
from noetl_ray.replay.surfaces import bundle_of, first_difference, rows_of_records, surfaces_of
from noetl_ray.scope import Scope
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.memory import MemoryLog

pytestmark = pytest.mark.contract
SCOPE = Scope()
GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def projector_of(log, store, **more):
    return Projector(
        log, store, None, SystemClock(), shards=[0], shard_count=1, batch_window_ms=5, **more
    )


async def catch_up(projector, log, *, limit_s=30.0):
    end = time.monotonic() + limit_s
    target = await log.last_position()
    while projector.summary()["position"] < target:
        assert time.monotonic() < end, projector.summary()
        await projector.step()


@pytest_asyncio.fixture
async def postgres(postgres_dsn):
    store = await PostgresProjectionStore.open(postgres_dsn)
    queries = await PostgresQueries.open(postgres_dsn)
    yield store, queries
    await store.close()
    await queries.close()


@pytest.mark.asyncio
async def test_prj_3_ten_thousand_events_on_one_execution(postgres):
    store, queries = postgres
    log = MemoryLog(SystemClock())
    write = HistoryWriter(log)
    await write.begin(7, await write.request(7))
    for index in range(10_000):
        await write.loop_item(7, index % 50, index)
    projector = projector_of(log, store)
    await projector.start()
    await catch_up(projector, log)
    await projector.stop()
    row = await queries.execution(SCOPE, 7)
    assert (row.event_count, row.status) == (10_004, "RUNNING")
    summary = projector.summary()
    assert (summary["errors"], summary["fold_errors"], summary["stale"]) == (0, 0, 0)


@pytest.mark.asyncio
async def test_postgres_and_memory_hold_the_same_after_the_same_log(postgres):
    store, queries = postgres
    log = MemoryLog(SystemClock())
    write = HistoryWriter(log)
    for number in range(1, 21):
        await write.run(number)
    await write.begin(50, await write.request(50))
    memory = MemoryReadModel()
    for target in (store, memory):
        projector = projector_of(log, target, batch_size=7)
        await projector.start()
        await catch_up(projector, log)
        await projector.stop()
    for number in (1, 20, 50):
        ours, theirs = await queries.execution(SCOPE, number), await memory.execution(SCOPE, number)
        assert ours.checksum == theirs.checksum
        assert await queries.commands(SCOPE, number) == await memory.commands(SCOPE, number)
        assert await queries.events(SCOPE, number) == await memory.events(SCOPE, number)
        key = state_key(("default", "default", number))
        kept = await store.load_projection(key)
        assert kept.state == (await memory.load_projection(key)).state


@pytest.mark.asyncio
async def test_val_1_what_postgres_holds_has_the_six_checksums_of_the_log(postgres):
    """Recorded stories, one record a commit: every merge on the way is Postgres's own."""
    store, queries = postgres
    for shift, path in enumerate(sorted(GOLDEN.glob("*/events.jsonl"))):
        log = MemoryLog(SystemClock())
        records = decode_history(path.read_bytes())
        scope = Scope(tenant_id=path.parent.name)
        for recorded in records:
            events = tuple(
                msgspec.structs.replace(
                    event, tenant_id=scope.tenant_id, event_id=event.event_id + shift
                )
                for event in recorded.record.events
            )
            await log.append(
                recorded.subject.replace(".default.default.", f".{scope.tenant_id}.default."),
                msgspec.structs.replace(recorded.record, events=events),
                expected_version=None,
            )
        projector = Projector(
            log, store, None, SystemClock(), shards=range(16), shard_count=16, batch_size=1,
            batch_window_ms=5,
        )  # fmt: skip
        await projector.start()
        await catch_up(projector, log)
        await projector.stop()
        for row in await queries.executions(scope):
            live = await queries.whole_execution(scope, row.execution_id)
            again = rows_of_records(await read_execution(log, scope, row.execution_id))
            assert first_difference(surfaces_of(again), surfaces_of(live)) is None, path.parent.name
            assert bundle_of(surfaces_of(again)) == bundle_of(surfaces_of(live))
            assert await queries.whole_execution(SCOPE, row.execution_id) is None
        async with store._pool.acquire() as connection:
            await connection.execute("DELETE FROM noetl.projection_checkpoint")


@pytest.mark.asyncio
async def test_jetstream_to_postgres(nats_connection, postgres):
    store, queries = postgres
    log = await JetStreamLog.open(nats_connection)
    write = HistoryWriter(log)
    projector = projector_of(log, store)
    await projector.start()
    await write.register("a/b", 1)
    for number in range(1, 11):
        await write.run(number)
        await projector.step()
    await catch_up(projector, log)
    await projector.stop()
    rows = await queries.executions(SCOPE)
    assert [(row.status, row.event_count) for row in rows] == [("COMPLETED", 8)] * 10
    again = projector_of(log, store)
    await again.start()
    await again.step()
    assert again.summary()["records"] == 0, "nothing is taken twice"
    await again.stop()
    await log.close()
    assert [row.path for row in await queries.playbooks(SCOPE)] == ["a/b"]


@pytest.mark.asyncio
async def test_p1_a_dropped_schema_is_built_anew_by_a_running_projector(postgres_dsn, postgres):
    store, queries = postgres
    log = MemoryLog(SystemClock())
    write = HistoryWriter(log)
    await write.run(7)
    projector = projector_of(log, store)
    await projector.start()
    await catch_up(projector, log)
    before = await queries.execution(SCOPE, 7)
    await drop_schema(postgres_dsn)
    await write.run(8)
    await projector.step()
    assert projector.summary()["errors"] == 1
    await catch_up(projector, log)
    await projector.stop()
    assert (await queries.execution(SCOPE, 8)).status == "COMPLETED"
    after = await queries.execution(SCOPE, 7)
    assert after.checksum == before.checksum
    assert len(await queries.events(SCOPE, 7)) == 8


@pytest.mark.asyncio
async def test_p30_postgres_may_go_away_and_come_back():
    directory = Path(tempfile.mkdtemp(prefix="noetl-pg-away-"))
    directory.chmod(0o711)
    try:
        server = start_postgres(directory, detached=False)
        await migrate(server.dsn)
        store = await PostgresProjectionStore.open(server.dsn)
        queries = await PostgresQueries.open(server.dsn)
        log = MemoryLog(SystemClock())
        write = HistoryWriter(log)
        projector = projector_of(log, store)
        await projector.start()
        await write.run(7)
        await catch_up(projector, log)
        stop_postgres(directory)
        await write.run(8)
        for _ in range(3):
            await projector.step()
        assert projector.summary()["errors"] == 3
        assert projector.summary()["connected"] is False
        start_postgres(directory, detached=False)
        await catch_up(projector, log)
        rows = await queries.executions(SCOPE)
        assert [(row.execution_id, row.event_count) for row in rows] == [(8, 8), (7, 8)]
        await projector.stop()
        await store.close()
        await queries.close()
    finally:
        stop_postgres(directory)
        shutil.rmtree(directory, ignore_errors=True)
