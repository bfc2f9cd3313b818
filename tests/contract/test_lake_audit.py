"""The bulk audit over a real read model: what was planted is found, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import SparkSettings
from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import Record
from noetl_ray.lake.files import Files
from noetl_ray.lake.filling import fill_lake, fill_readmodel
from noetl_ray.lake.session import LocalSpark
from noetl_ray.readmodel.postgres_store import PostgresProjectionStore
from noetl_ray.replay import decode_history
from noetl_ray.scope import Scope
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.port import Recorded

pytestmark = [
    pytest.mark.contract,
    pytest.mark.timeout(240),
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
AUDIT = "noetl_ray.lake.audit:audit"
EXECUTION = 264905531850760193
EXECUTIONS = 300
GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture(scope="module")
def spark() -> Iterator[LocalSpark]:
    made = LocalSpark(SparkSettings(master="local[2]"))
    yield made
    made.stop()


async def histories() -> list[Recorded]:
    """Executions of two tenants, and every golden one, at positions of one log."""
    log = MemoryLog(SystemClock())
    for first, tenant in ((1, "default"), (1_000_000, "other")):
        writer = HistoryWriter(log, scope=Scope(tenant_id=tenant), first_event_id=first)
        for number in range(EXECUTIONS // 2):
            await writer.run(EXECUTION + number * (1 << 22))
    found = [moved(recorded, 0) async for recorded in log.read(">")]
    for path in sorted(GOLDEN.glob("*/events.jsonl")):
        # They share one execution id, so each is a tenant of its own.
        tenant, base = path.parent.name.replace("_", "-"), found[-1].position
        found += [moved(recorded, base, tenant) for recorded in decode_history(path.read_bytes())]
    return found


def moved(recorded: Recorded, by: int, tenant: str = "") -> Recorded:
    """The record at a later position, and perhaps of another tenant."""
    events = tuple(
        msgspec.structs.replace(event, tenant_id=tenant or event.tenant_id)
        for event in recorded.record.events
    )
    consumed = tuple(position + by for position in recorded.record.consumed)
    return Recorded(
        position=recorded.position + by,
        subject=recorded.subject.replace(".default.", f".{tenant}.", 1)
        if tenant
        else recorded.subject,
        time_ms=recorded.time_ms,
        data=canonical_json(Record(events=events, consumed=consumed)),
    )


class Both:
    """A lake and a read model of the same log."""

    def __init__(self, spark: LocalSpark, dsn: str, folder: Path) -> None:
        self.place = {
            "url": folder.as_uri(),
            "endpoint_url": "",
            "access_key": "",
            "secret_key": "",
        }
        self.dsn = dsn
        self._spark = spark

    async def audit(self, **bounds: Any) -> dict[str, Any]:
        arguments = {"lake": self.place, "dsn": self.dsn, **bounds}
        return await asyncio.to_thread(self._spark.run, AUDIT, arguments)

    async def change(self, sql: str, *values: Any) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute("SET noetl.operator = 'on'")
            assert (await connection.execute(sql, *values)).endswith(" 1"), "one row is planted"
        finally:
            await connection.close()


@pytest_asyncio.fixture
async def both(spark: LocalSpark, postgres_dsn: str, tmp_path: Path) -> Both:
    made = Both(spark, postgres_dsn, tmp_path / "lake")
    records = await histories()
    await asyncio.to_thread(fill_lake, Files(made.place), records, per_part=500)
    store = await PostgresProjectionStore.open(postgres_dsn)
    await fill_readmodel(store, records)
    await store.close()
    return made


async def test_what_was_planted_is_found_with_its_event_and_nothing_else(both: Both) -> None:
    clean = await both.audit()
    assert clean["matched"] == clean["executions"] > EXECUTIONS
    assert (clean["mismatches"], clean["problems"], clean["differing"]) == ([], [], 0)

    victim = EXECUTION + 77 * (1 << 22)
    await both.change(
        "UPDATE noetl.command SET worker_id = 'w2' WHERE tenant_id = 'other' AND execution_id = $1",
        victim,
    )
    found = await both.audit()
    (only,) = found["mismatches"]
    assert found["matched"] == clean["matched"] - 1
    assert (only["tenant_id"], only["execution_id"]) == ("other", victim)
    assert only["surfaces"] == ["commands"]
    assert (only["path"], only["replay"], only["live"]) == ("[0].worker_id", "w1", "w2")
    assert only["event_type"] == "command.claimed"
    # Bounds of the window.
    assert (await both.audit(tenant="default"))["mismatches"] == []
    assert (await both.audit(first_day="2026-01-02"))["executions"] < clean["executions"]


async def test_rows_that_stayed_behind_name_the_first_event_they_missed(both: Both) -> None:
    victim = EXECUTION + 3 * (1 << 22)
    await both.change(
        "UPDATE noetl.execution SET status = 'RUNNING' WHERE tenant_id = 'default' "
        "AND execution_id = $1",
        victim,
    )
    await both.change(
        "DELETE FROM noetl.command WHERE tenant_id = 'default' AND execution_id = $1",
        victim + (1 << 22),
    )
    await both.change(
        "DELETE FROM noetl.execution WHERE tenant_id = 'other' AND execution_id = $1", victim
    )
    found = await both.audit()
    behind, lost, gone = found["mismatches"]
    assert (behind["path"], behind["live"], behind["event_type"]) == (
        "status", "RUNNING", "playbook.completed",
    )  # fmt: skip
    assert (lost["surfaces"], lost["event_type"]) == (["commands"], "command.issued")
    assert (gone["tenant_id"], gone["replay"], gone["live"]) == ("other", "there", None)
    assert (found["missing"], found["differing"]) == (1, 2)


async def test_what_the_lake_does_not_have_yet_is_not_called_a_mismatch(both: Both) -> None:
    await both.change(
        "UPDATE noetl.execution SET last_position = 1000000, status = 'FAILED' "
        "WHERE tenant_id = 'default' AND execution_id = $1",
        EXECUTION,
    )
    found = await both.audit()
    assert (found["ahead"], found["mismatches"]) == (1, [])
