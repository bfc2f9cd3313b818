"""The ``spark`` kind on plain PySpark: names in, a table in parts out, causes instead of pages."""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import Settings, SparkSettings
from noetl_ray.credentials.crypto import load_key
from noetl_ray.credentials.port import Credential
from noetl_ray.errors import StoreUnavailableError, ToolError
from noetl_ray.lake.commits import Snapshot, make_commit
from noetl_ray.lake.files import Files, lake_place
from noetl_ray.lake.parts import write_part
from noetl_ray.lake.schemas import TABLES
from noetl_ray.lake.session import LocalSpark
from noetl_ray.lake.tool_tasks import JobTasks
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.opening import open_objects
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.spark import SparkTool

pytestmark = [
    pytest.mark.contract,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ORDERS = [{"city": "Bonn" if n % 3 else "Kiel", "amount": n, "note": None} for n in range(300)]


@pytest.fixture(scope="module")
def spark() -> Iterator[LocalSpark]:
    made = LocalSpark(SparkSettings(master="local[2]"))
    yield made
    made.stop()


class Bench:
    """A tool over a store of its own, and what it printed."""

    def __init__(self, spark: LocalSpark, folder: Path, tenant: str = "default") -> None:
        self.settings = Settings(data_dir=str(folder))
        self.tool = SparkTool(JobTasks(spark, self.settings))
        self.scope = Scope(tenant_id=tenant, organization_id="default")
        objects = open_objects(
            self.settings, SystemClock(), load_key(self.settings.credentials, folder)
        )
        self.store = ResultStore(objects, Placement())
        self.artifacts = Artifacts(self.store, self.scope, lambda: Redactor(()))
        self.lines: list[str] = []

    def run(self, **config: Any) -> dict[str, Any]:
        return asyncio.run(self.begin(**config))

    def get(self, ref: Any) -> Any:
        return asyncio.run(self.artifacts.get(ref))

    def table(self, ref: Any) -> pa.Table:
        return asyncio.run(self.artifacts.table(ref))

    def put(self, rows: Any) -> Any:
        return asyncio.run(self.artifacts.put("orders", rows))

    async def begin(self, **config: Any) -> dict[str, Any]:
        async def credential(name: str) -> Credential:
            raise AssertionError(name)

        context = ToolContext(
            execution_id=1,
            step="s",
            task="t",
            attempt=1,
            idempotency_key="k",
            timeout_s=None,
            credential=credential,
            log=lambda _stream, line: self.lines.append(line),
            artifacts=self.artifacts,
            scope=self.scope,
        )
        data: dict[str, Any] = (await self.tool.run(config, context)).data
        return data


@pytest.fixture
def bench(spark: LocalSpark, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


def test_sql_over_rows_gives_a_table_by_name(bench: Bench) -> None:
    sql = "SELECT city, sum(amount) AS total FROM orders GROUP BY city ORDER BY city"
    found = bench.run(sql=sql, input={"orders": ORDERS})
    wanted = [{"city": "Bonn", "total": 30000}, {"city": "Kiel", "total": 14850}]
    assert found["rows"] == wanted
    assert (found["row_count"], found["columns"]) == (2, ["city", "total"])
    assert found["schema"][1] == {"name": "total", "type": "int64"}
    assert found["tasks"] > 0
    assert bench.lines[-1].startswith("spark: ")
    assert bench.get(found["result_ref"]) == wanted


def test_a_result_of_one_task_is_the_input_of_the_next(bench: Bench) -> None:
    stored = bench.put(ORDERS)
    sql = "SELECT amount, note, city FROM orders WHERE amount >= 10"
    first = bench.run(sql=sql, input={"orders": stored}, partitions=3)
    assert "rows" not in first, "more rows than the answer holds are only in the tier"
    assert first["row_count"] == 290
    asked = {"sql": "SELECT count(*) AS n, count(note) AS notes FROM a", "input": {"a": first}}
    assert bench.run(**asked)["rows"] == [{"n": 290, "notes": 0}]
    again = bench.run(sql=sql, input={"orders": stored}, partitions=3)
    assert again["parts"] == first["parts"], "equal work gives equal parts in equal order"
    assert again["result_ref"]["ref"] == first["result_ref"]["ref"]
    table = bench.table(first["result_ref"])
    assert table.column("amount").to_pylist() == list(range(10, 300))


def test_parts_keep_the_order_of_the_rows(bench: Bench) -> None:
    found = bench.run(sql="SELECT id FROM range(0, 10000, 1, 7) WHERE id % 2 = 0", partitions=4)
    assert 1 < len(found["parts"]) <= 4
    table = bench.table(found["result_ref"])
    assert table.column("id").to_pylist() == list(range(0, 10_000, 2))


def test_a_table_without_rows_keeps_its_columns(bench: Bench) -> None:
    none = bench.run(sql="SELECT 1 AS a, 'x' AS b WHERE false")
    assert (none["row_count"], none["rows"], none["parts"]) == (0, [], [])
    again = bench.run(sql="SELECT a, b FROM t", input={"t": none["result_ref"]})
    assert again["columns"] == ["a", "b"]


def test_code_gets_the_session_and_the_inputs_it_names(bench: Bench) -> None:
    code = """
from pyspark.sql import functions as F

def shout(batches):
    for batch in batches:
        yield batch

def main(spark, orders, limit=1):
    print("rows:", orders.count())
    return orders.groupBy("city").agg(F.max("amount").alias("most")).orderBy("city").mapInArrow(
        shout, "city string, most long")
"""
    found = bench.run(code=code, input={"orders": ORDERS})
    assert found["rows"] == [{"city": "Bonn", "most": 299}, {"city": "Kiel", "most": 297}]
    assert "rows: 300" in bench.lines
    value = bench.run(code="result = {'n': spark.range(9).count()}")
    assert value["value"] == {"n": 9}


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"sql": "SELECT nothing FROM orders"}, "schema", "Spark: .*nothing"),
        ({"sql": "SELEC 1"}, "parse", "Spark: .*SELEC"),
        ({"sql": "SELECT 1", "code": "x"}, "schema", "either `sql` or `code`"),
        ({"sql": "SELECT 1 AS a, 2 AS a"}, "schema", "names of their own: a, a"),
        ({"code": "def main(spark, other): pass"}, "schema", r"main\(\) wants 'other'"),
        ({"code": "x = 1\nraise KeyError('gone')"}, "unknown", r"KeyError: 'gone' \(line 2"),
        ({"code": "import os; os._exit(3)"}, "unknown", r"ended by itself \(exit 3\)"),
        (
            {
                "code": "def main(spark, orders):\n  def bad(b):\n    raise ValueError('row 7')\n"
                "  return orders.mapInArrow(bad, 'n long')"
            },
            "unknown",
            "Spark: ValueError: row 7$",
        ),
        ({"sql": "SELECT 1", "input": {"a-b": ORDERS}}, "schema", "cannot name a table"),
        ({"sql": "SELECT 1", "input": {"a": 5}}, "schema", "no data Spark can read"),
        ({"sql": "SELECT 1", "input": {"a": {"path": "none.csv"}}}, "schema", "names no file"),
        ({"sql": "SELECT 1", "input": {"a": {"path": "../x.csv"}}}, "schema", "leaves the folder"),
        ({"sql": "SELECT 1", "input": {"a": {"table": "lake.x"}}}, "schema", "no table 'x'"),
        ({"sql": "SELECT 1", "partitions": 0}, "schema", "from 1 to 4096"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(
    bench: Bench, config: dict[str, Any], kind: str, message: str
) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        bench.run(**{"input": {"orders": ORDERS}, **config})
    assert caught.value.kind == kind
    assert len(caught.value.message) < 600


def test_files_and_tables_of_the_lake_are_inputs(bench: Bench) -> None:
    folder = Path(bench.settings.data_dir) / "files"
    folder.mkdir()
    for part in range(2):
        with (folder / f"{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["k", "v"], [part, part * 10]])
    sql = "SELECT sum(v) AS v FROM files"
    found = bench.run(sql=sql, input={"files": {"path": "*.csv"}})
    assert found["rows"] == [{"v": 10}]
    _lake_with_two_tenants(Files(lake_place(bench.settings)))
    sql = "SELECT tenant_id, count(*) AS n FROM errors GROUP BY 1"
    found = bench.run(sql=sql, input={"errors": {"table": "lake.errors"}})
    assert found["rows"] == [{"tenant_id": "default", "n": 1}]


def _lake_with_two_tenants(files: Files) -> None:
    schema = TABLES["errors"].schema
    parts = []
    for tenant in ("default", "other"):
        row = dict.fromkeys(schema.names) | {"tenant_id": tenant, "organization_id": "default"}
        rows = pa.Table.from_pylist([row], schema=schema)
        parts.append(write_part(files, ("errors", tenant, "2026-01-01", ""), "1-2-x", rows))
    make_commit(files, Snapshot(), what="build", position=2, added=parts, made_at="")


def test_another_tenants_result_does_not_exist(bench: Bench, spark: LocalSpark) -> None:
    stored = bench.put(ORDERS)
    other = Bench(spark, Path(bench.settings.data_dir), tenant="other")
    with pytest.raises(ToolError, match=r"no value|no payload") as caught:
        other.run(sql="SELECT 1 FROM o", input={"o": stored})
    assert "Bonn" not in caught.value.message


@pytest.mark.parametrize("work", ["sql", "code"])
def test_time_limit_and_cancel_end_the_job(bench: Bench, work: str) -> None:
    slow = (
        {"sql": "SELECT sum(a.id * b.id) AS x FROM range(10000000) a CROSS JOIN range(10000000) b"}
        if work == "sql"
        else {"code": "import time\nprint('on', flush=True)\ntime.sleep(100)"}
    )
    with pytest.raises(ToolError, match="ran longer than 2 s") as caught:
        bench.run(**slow, timeout=2)
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)

    async def cancelled() -> None:
        running = asyncio.ensure_future(bench.begin(**slow))
        await asyncio.sleep(1.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    deadline = time.monotonic() + 30
    # The session is free again only when the job has ended.
    jobs = bench.tool._tasks._jobs  # type: ignore[union-attr]
    while jobs.describe()["running"]:
        assert time.monotonic() < deadline, "the job went on"
        time.sleep(0.1)


def test_too_little_memory_is_said_and_the_next_task_runs(bench: Bench) -> None:
    hungry = "SELECT size(collect_list(repeat(cast(id AS string), 200))) AS n FROM range(3000000)"
    # Where Spark survives it, the task fails; where its JVM ends, the session does.
    with pytest.raises((ToolError, StoreUnavailableError), match=r"memory") as caught:
        bench.run(sql=hungry)
    assert "spark.executor_memory_mb" in caught.value.message
    assert bench.run(sql="SELECT 1 AS a")["rows"] == [{"a": 1}]
