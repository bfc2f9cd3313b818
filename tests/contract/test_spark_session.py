"""The session port on plain PySpark: started once, used again, stopped when idle."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from noetl_ray.config.settings import SparkSettings
from noetl_ray.errors import ToolError, UsageError
from noetl_ray.lake.session import LocalSpark

pytestmark = [
    pytest.mark.contract,
    pytest.mark.timeout(180),
    # PySpark leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PING = "noetl_ray.lake.probe:ping"


@pytest.fixture(scope="module")
def spark() -> Iterator[LocalSpark]:
    made = LocalSpark(SparkSettings(master="local[2]", idle_stop_s=2))
    yield made
    made.stop()


def test_a_session_starts_with_the_first_job_and_is_used_again(spark: LocalSpark) -> None:
    assert spark.describe()["state"] == "down"
    assert spark.run(PING, {"rows": 10})["total"] == 45
    first = spark.describe()
    assert spark.run(PING, {"rows": 4})["total"] == 6
    assert spark.describe()["application"] == first["application"]


def test_the_cause_of_a_failure_comes_back_in_one_line(spark: LocalSpark) -> None:
    with pytest.raises(ToolError, match="Spark: ValueError: no such thing") as caught:
        spark.run("noetl_ray.lake.probe:fail", {"message": "no such thing"})
    assert len(caught.value.message) < 100


def test_only_jobs_of_ours_run(spark: LocalSpark) -> None:
    with pytest.raises(UsageError, match="names no job"):
        spark.run("os:system", {})


def test_an_idle_session_stops_and_the_next_job_starts_another(spark: LocalSpark) -> None:
    spark.run(PING, {})
    before = spark.describe()["application"]
    deadline = time.monotonic() + 30
    while spark.describe()["state"] == "up":
        assert time.monotonic() < deadline, "it never stopped"
        time.sleep(0.1)
    spark.run(PING, {})
    assert spark.describe()["application"] != before
