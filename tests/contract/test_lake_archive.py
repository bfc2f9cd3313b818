"""The archive and the compactor over a real log and read model: nothing is lost or comes twice.

Named after P7 and CMP: verified before it is removed, terminal records stay, replay and a rebuilt
read model have everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from actors.projector import Projector
from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import Settings, SparkSettings
from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.errors import StoreError, UsageError, VersionConflictError
from noetl_ray.lake.files import Files
from noetl_ray.lake.query import ask
from noetl_ray.lake.session import LocalSpark
from noetl_ray.lake.source import open_log
from noetl_ray.lake.tier import opened, store_of, tier_place
from noetl_ray.locator.keys import Placement
from noetl_ray.readmodel.postgres_queries import PostgresQueries
from noetl_ray.readmodel.postgres_store import PostgresProjectionStore
from noetl_ray.readmodel.schema import drop_schema
from noetl_ray.replay.archive import Archive, manifest_key
from noetl_ray.replay.reading import read_execution
from noetl_ray.replay.surfaces import bundle_of, rows_of_records, surfaces_of
from noetl_ray.scope import Scope
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.testing.samples import sample_record
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.subjects import control_subject

pytestmark = [
    pytest.mark.contract,
    pytest.mark.timeout(240),
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BUILD, ARCHIVE = "noetl_ray.lake.build:build", "noetl_ray.lake.archive:archive"
TRIM, AUDIT = "noetl_ray.lake.trim:trim", "noetl_ray.lake.audit:audit"
EXECUTION = 264905531850760193
STEP = 1 << 22
FINISHED = 24
SCOPE = Scope()
LATER_MS = 4_000_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    running = start_nats(
        tmp_path_factory.mktemp("nats"),
        token="archive-tests-token",
        durability="process",
        detached=False,
    )
    yield running
    stop_nats(running)


@pytest.fixture(scope="module")
def spark() -> Iterator[LocalSpark]:
    made = LocalSpark(SparkSettings(master="local[2]"))
    yield made
    made.stop()


class World:
    """A log with finished executions and an open one, a read model, a lake and an archive."""

    def __init__(self, spark: LocalSpark, server: NatsProcess, dsn: str, folder: Path) -> None:
        self._spark = spark
        self.dsn = dsn
        self.log_place = {
            "url": server.url,
            "token": server.token,
            "stream": "noetl_events",
            "durability": "process",
        }
        self.settings = replace(Settings(), data_dir=str(folder))
        self.tier = tier_place(self.settings, SCOPE)
        lake = (folder / "lake").as_uri()
        self.lake = {"url": lake, "endpoint_url": "", "access_key": "", "secret_key": ""}
        self.archive = Archive(store_of(self.settings), Placement())

    async def run(self, job: str, **more: Any) -> dict[str, Any]:
        arguments = {
            "lake": self.lake,
            "log": self.log_place,
            "tier": self.tier,
            "dsn": self.dsn,
            "before_ms": LATER_MS,
            **more,
        }
        return await asyncio.to_thread(self._spark.run, job, arguments)

    async def log(self) -> JetStreamLog:
        return await open_log(self.log_place)

    async def project(self) -> None:
        log = await self.log()
        store = await PostgresProjectionStore.open(self.dsn)
        projector = Projector(
            log, store, None, SystemClock(), shards=[0], shard_count=1, archive=self.archive
        )
        await projector.start()
        while projector.summary()["position"] < await log.last_position():
            await projector.step()
        assert (projector.summary()["errors"], projector.summary()["fold_errors"]) == (0, 0)
        await projector.stop()
        await store.close()
        await log.close()

    async def count(self, sql: str) -> int:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute("SET noetl.operator = 'on'")
            return int(await connection.fetchval(sql))
        finally:
            await connection.close()


@pytest_asyncio.fixture
async def world(spark: LocalSpark, server: NatsProcess, postgres_dsn: str, tmp_path: Path) -> Any:
    made = World(spark, server, postgres_dsn, tmp_path)
    log = await made.log()
    writer = HistoryWriter(log)
    for number in range(FINISHED):
        await writer.run(EXECUTION + number * STEP)
    still_open = EXECUTION + FINISHED * STEP
    await writer.begin(still_open, await writer.request(still_open))
    await log.close()
    await made.project()
    await made.run(BUILD)
    yield made
    log = await made.log()
    await log._api.call("STREAM.DELETE.noetl_events", {})
    await log.close()


async def test_p7_what_is_archived_and_trimmed_is_still_answered(world: World) -> None:
    log = await world.log()
    victim = EXECUTION + 5 * STEP
    before = await read_execution(log, SCOPE, victim)
    events = await world.count("SELECT count(*) FROM noetl.event")

    done = await world.run(ARCHIVE)
    assert (done["executions"], done["records"], done["kept_back"]) == (FINISHED, FINISHED * 5, 0)
    assert (await world.run(ARCHIVE))["executions"] == 0, "each is archived once"
    assert len(await read_execution(log, SCOPE, victim)) == len(before), "nothing is removed yet"

    trimmed = await world.run(TRIM)
    assert (trimmed["failed"], trimmed["executions"]) == (0, FINISHED)
    # Of five records three are the last of their subjects.
    assert trimmed["purged"] == FINISHED * 2
    assert trimmed["deleted"] == FINISHED * 8
    assert await world.count("SELECT count(*) FROM noetl.event") == events - FINISHED * 8
    assert (await world.run(TRIM))["segments"] == 0
    left = [recorded async for recorded in log.read(">")]
    assert len(left) == FINISHED * 3 + 2, "the open execution keeps all of its records"

    # A zombie is refused, because the terminal record keeps the version of the subject.
    subject = control_subject(0, SCOPE, victim)
    with pytest.raises(VersionConflictError):
        await log.append(subject, sample_record(99), expected_version=0)
    after = await read_execution(log, SCOPE, victim, world.archive)
    assert [one.position for one in after] == [one.position for one in before]
    known = await world.archive.manifest(SCOPE, victim)
    assert known is not None
    rows = rows_of_records(after)
    assert rows is not None
    assert known.checksums == bundle_of(surfaces_of(rows))
    assert [step.event_type for step in known.steps] == [
        "call.done", "step.exit", "playbook.completed",
    ]  # fmt: skip
    assert await world.archive.records(Scope(tenant_id="other"), victim) is None
    audited = await world.run(AUDIT)
    assert (audited["matched"], audited["mismatches"]) == (FINISHED + 1, [])
    await log.close()


async def test_p1_a_read_model_built_anew_has_what_was_trimmed(world: World) -> None:
    await world.run(ARCHIVE)
    await world.run(TRIM)
    await drop_schema(world.dsn)
    await world.project()
    audited = await world.run(AUDIT)
    assert (audited["matched"], audited["mismatches"]) == (FINISHED + 1, [])
    queries = await PostgresQueries.open(world.dsn)
    row = await queries.execution(SCOPE, EXECUTION)
    await queries.close()
    assert row is not None
    assert (row.status, row.path, row.event_count) == ("COMPLETED", "demo/hello", 8)


async def test_a_corrupt_segment_loses_nothing_and_is_named(world: World) -> None:
    await world.run(ARCHIVE)
    async with opened(world.tier) as (objects, _):
        (key, _), *rest = await world.archive.segments()
        data = await objects.get(key)
        await objects.put(key, data[:-9] + bytes(9))
    log = await world.log()
    before = len([one async for one in log.read(">")])
    done = await world.run(TRIM)
    assert (done["failed"], done["segments"]) == (1, len(rest))
    assert "is corrupt: its checksum does not fit" in done["problems"][0]["reason"]
    manifest = await world.archive.read_manifest(key)
    kept = before - 2 * (FINISHED - len(manifest.executions))
    assert len([one async for one in log.read(">")]) == kept
    with pytest.raises(StoreError, match="is corrupt"):
        await world.archive.records(SCOPE, manifest.executions[0].execution_id)
    await log.close()


async def test_a_killed_archive_job_leaves_nothing_that_counts(world: World) -> None:
    await world.run(ARCHIVE)
    async with opened(world.tier) as (objects, _):
        keys = [key for key, _ in await world.archive.segments()]
        # The records were written, the manifest was not yet.
        for key in keys:
            await objects.delete(manifest_key(key))
    assert await world.archive.segments() == []
    assert (await world.run(TRIM))["segments"] == 0
    again = Archive(store_of(world.settings), Placement())
    assert await again.manifest(SCOPE, EXECUTION) is None
    assert (await world.run(ARCHIVE))["executions"] == FINISHED


async def test_a_lake_built_anew_takes_from_the_archive_what_the_log_lost(world: World) -> None:
    asked = "SELECT position, execution_id, data FROM records ORDER BY position"
    before = await asyncio.to_thread(ask, Files(world.lake), asked)
    await world.run(ARCHIVE)
    await world.run(TRIM)
    with pytest.raises(UsageError, match="built anew"):
        await world.run(BUILD, archive=world.tier)
    world.lake = {**world.lake, "url": world.lake["url"] + "-anew"}
    poor = {**world.lake, "url": world.lake["url"] + "-poor"}
    await world.run(BUILD, lake=poor)
    await world.run(BUILD, archive=world.tier)
    assert (await asyncio.to_thread(ask, Files(world.lake), asked)).equals(before)
    assert (await asyncio.to_thread(ask, Files(poor), asked)).num_rows == FINISHED * 3 + 2
    assert (await world.run(AUDIT))["matched"] == FINISHED + 1


async def test_what_is_young_or_open_is_not_archived(world: World) -> None:
    assert (await world.run(ARCHIVE, before_ms=1_000))["executions"] == 0
    assert (await world.run(ARCHIVE, first_day="2030-01-01"))["executions"] == 0
