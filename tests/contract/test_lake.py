"""The event lake over a real log: every position once, whatever is killed or comes twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noetl_ray.config.settings import SparkSettings
from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.errors import ToolError, UsageError
from noetl_ray.lake.commits import Snapshot, make_commit, read_snapshot, vacuum
from noetl_ray.lake.files import Files
from noetl_ray.lake.parts import write_part
from noetl_ray.lake.query import ask
from noetl_ray.lake.schemas import TABLES
from noetl_ray.lake.session import LocalSpark
from noetl_ray.lake.source import open_log
from noetl_ray.testing.histories import HistoryWriter
from tests.contract.fixtures_s3 import ACCESS_KEY, SECRET_KEY, S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [
    pytest.mark.contract,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BUILD = "noetl_ray.lake.build:build"
COMPACT = "noetl_ray.lake.compact:compact"
EXECUTION = 264905531850760193
STEP = 1 << 22


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    running = start_nats(
        tmp_path_factory.mktemp("nats"),
        token="lake-tests-token",
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
    """One log and one lake of a test's own."""

    def __init__(self, server: NatsProcess, folder: Path, name: str) -> None:
        self.log_place = {
            "url": server.url,
            "token": server.token,
            "stream": "noetl_events",
            "durability": "process",
        }
        self.folder = folder

    def lake(self, name: str = "lake") -> dict[str, str]:
        url = (self.folder / name).as_uri()
        return {"url": url, "endpoint_url": "", "access_key": "", "secret_key": ""}

    def files(self, name: str = "lake") -> Files:
        return Files(self.lake(name))

    def arguments(self, name: str = "lake", **more: Any) -> dict[str, Any]:
        return {"lake": self.lake(name), "log": self.log_place, **more}

    def write(self, first: int, last: int) -> None:
        async def run() -> None:
            log = await open_log(self.log_place)
            writer = HistoryWriter(log, shard=3, first_event_id=first * 1000 + 1)
            for number in range(first, last):
                await writer.run(EXECUTION + number * STEP)
            await log.close()

        asyncio.run(run())


@pytest.fixture
def world(server: NatsProcess, tmp_path: Path) -> Iterator[World]:
    made = World(server, tmp_path, "noetl_events")
    yield made

    async def clean() -> None:
        log = await open_log(made.log_place)
        await log._api.call("STREAM.DELETE.noetl_events", {})
        await log.close()

    asyncio.run(clean())


def rows(world: World, table: str, lake: str = "lake") -> list[dict[str, Any]]:
    keys = ", ".join(TABLES[table].keys)
    found: pa.Table = ask(world.files(lake), f"SELECT * FROM {table} ORDER BY {keys}")
    return found.to_pylist()


def test_every_position_once_in_any_windows_and_compacted_or_not(
    world: World, spark: LocalSpark
) -> None:
    world.write(0, 20)
    first = spark.run(BUILD, world.arguments(split_records=30))
    assert (first["records"], first["events"], first["unreadable"]) == (100, 160, 0)
    world.write(20, 30)
    second = spark.run(BUILD, world.arguments())
    assert second["records"] == 50
    again = spark.run(BUILD, world.arguments())
    assert (again["commits"], again["records"]) == (0, 0)
    at_once = spark.run(BUILD, world.arguments("other"))
    assert at_once["records"] == 150
    before = {table: rows(world, table) for table in TABLES}
    assert before == {table: rows(world, table, "other") for table in TABLES}
    assert len(before["events"]) == 240
    assert len(before["executions"]) == len(before["steps"]) == len(before["tool_calls"]) == 30
    assert {row["status"] for row in before["executions"]} == {"COMPLETED"}
    assert {row["worker_id"] for row in before["tool_calls"]} == {"w1"}

    compacted = spark.run(COMPACT, world.arguments(parts=2, kept_s=0))
    assert compacted["before"] > compacted["after"] > 0
    assert {table: rows(world, table) for table in TABLES} == before
    snapshot = read_snapshot(world.files())
    assert {key for key, _ in world.files().list("tables")} == set(snapshot.parts)
    raw = snapshot.of("executions")
    assert sum(part.rows for part in raw) == 30, "a compacted summary has one row per key"


def test_a_killed_build_leaves_nothing_visible(world: World, spark: LocalSpark) -> None:
    world.write(0, 4)
    arguments = world.arguments()
    broken = {**arguments, "log": {**world.log_place, "token": "wrong"}}
    with pytest.raises(ToolError):
        spark.run(BUILD, {**broken, "to": 20})
    # Files were written and the process ended before its commit.
    world.files().put("tables/events/tenant=default/day=2026-01-01/type=step/1-2-dead.parquet", b"")
    assert rows(world, "events") == []
    assert spark.run(BUILD, arguments)["records"] == 20
    assert len(rows(world, "events")) == 32
    assert vacuum(world.files())["removed"] == 0, "somebody may still be writing it"
    assert vacuum(world.files(), kept_s=0)["removed"] == 1


def test_two_builds_at_once_add_each_position_once(world: World, spark: LocalSpark) -> None:
    world.write(0, 12)
    answers: list[dict[str, Any]] = []

    def run() -> None:
        answers.append(spark.run(BUILD, world.arguments(split_records=10)))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum(answer["records"] for answer in answers) == 60
    assert len(rows(world, "events")) == 96
    listed = {key for key, _ in world.files().list("tables")}
    assert listed == set(read_snapshot(world.files()).parts), "the second threw its files away"


def test_a_record_of_an_unknown_schema_is_kept_and_named(world: World, spark: LocalSpark) -> None:
    world.write(0, 2)

    async def append() -> None:
        log = await open_log(world.log_place)
        recorded = await log.get(1)
        assert recorded is not None
        newer = recorded.data.replace(b'"schema_version":1', b'"schema_version":9')
        await log._connection.jetstream().publish(recorded.subject, newer)
        await log._connection.jetstream().publish("noetl.system.worker.x", b"no record")
        await log.close()

    asyncio.run(append())
    world.write(2, 3)
    done = spark.run(BUILD, world.arguments())
    assert (done["records"], done["unreadable"]) == (17, 2)
    reasons = [row["reason"] for row in rows(world, "unreadable")]
    assert "v9 was written by a newer version" in reasons[0]
    assert len(rows(world, "records")) == 17, "their bytes are kept"
    assert len(rows(world, "executions")) == 3


def test_the_same_question_on_spark_and_on_duckdb(world: World, spark: LocalSpark) -> None:
    world.write(0, 3)
    spark.run(BUILD, world.arguments())
    sql = "SELECT status, count(*) AS n, min(day) AS day FROM executions GROUP BY status"
    there = spark.run("noetl_ray.lake.query:run_sql", {"lake": world.lake(), "sql": sql})
    assert there["rows"] == [["COMPLETED", 3, "2026-01-01"]]
    here = ask(world.files(), sql)
    assert [list(row.values()) for row in here.to_pylist()] == there["rows"]
    for wrong in ("DROP VIEW events", "SELECT * FROM read_csv('/etc/passwd')", "SELECT nothing"):
        with pytest.raises(UsageError, match="cannot answer"):
            ask(world.files(), wrong)


def test_an_empty_log_and_an_empty_lake(world: World, spark: LocalSpark) -> None:
    world.write(0, 0)
    assert spark.run(BUILD, world.arguments())["commits"] == 0
    assert spark.run(COMPACT, world.arguments())["partitions"] == 0
    for table in TABLES:
        assert rows(world, table) == []


def test_a_commit_is_made_by_the_first_and_read_from_the_last_whole_one(tmp_path: Path) -> None:
    files = Files(
        {"url": tmp_path.as_uri(), "endpoint_url": "", "access_key": "", "secret_key": ""}
    )
    snapshot = Snapshot()
    for number in range(1, 40):
        snapshot = make_commit(
            files, snapshot, what="build", position=number * 10, added=(), made_at=""
        )
    assert read_snapshot(files) == snapshot
    with pytest.raises(Exception, match="somebody else"):
        make_commit(files, Snapshot(number=38), what="build", position=1, added=(), made_at="")


def test_only_the_first_of_two_writers_creates_an_object_of_s3(s3_server: S3Server) -> None:
    place = {
        "url": f"s3://{s3_server.bucket}/lake",
        "endpoint_url": s3_server.endpoint_url,
        "access_key": ACCESS_KEY,
        "secret_key": SECRET_KEY,
    }
    one, other = Files(place), Files(place)
    assert one.create("commits/1.json", b"one")
    assert not other.create("commits/1.json", b"other")
    assert other.get("commits/1.json") == b"one"
    part = write_part(one, ("errors", "t", "2026-01-01", ""), "1-2-x", _no_rows("errors"))
    make_commit(one, Snapshot(), what="build", position=2, added=[part], made_at="")
    assert ask(other, "SELECT count(*) AS n FROM errors").to_pylist() == [{"n": 0}]


def _no_rows(table: str) -> pa.Table:
    return TABLES[table].schema.empty_table()
