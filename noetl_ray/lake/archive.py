"""The archive job and the compactor: finished executions into segments, then out of log and tables.

Two jobs, so that nothing is lost before it is proven to be kept (P7, TN-1). ``archive`` writes
segments of executions that ended before the retention time; ``trim`` takes segments that are there,
checks them once more, and removes what they hold from the log, but for the last record of each
subject, and from the read model's table of events. Both may be killed anywhere and run again.
"""

from __future__ import annotations

import asyncio
import time
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import NoetlError
from noetl_ray.lake.histories import KEYS, executions, held, histories, window
from noetl_ray.lake.query import table_view
from noetl_ray.lake.tier import opened
from noetl_ray.locator.keys import mint_date
from noetl_ray.replay.archive import Archive
from noetl_ray.replay.archiving import archived, write_segment
from noetl_ray.scope import scope_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noetl_ray.lake.histories import Key
    from noetl_ray.lake.tier import TierPlace
    from noetl_ray.replay.archive import ArchivedExecution, SegmentManifest
    from noetl_ray.wal.port import Recorded

SEGMENT_RECORDS = 50_000
LISTED_MAX = 1_000
DAY_MS = 86_400_000
_TOLD = pa.schema([("kind", pa.string()), ("told", pa.string())])
_SCHEMA = "kind string, told string"


def archive(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Write segments of every execution of the lake that ended before a moment.

    Args:
        spark: The session.
        arguments: ``lake`` and ``tier`` places; ``before_ms``, the moment; ``first_day``,
            ``last_day`` and ``tenant`` bound the window.

    Returns:
        ``segments``, ``executions``, ``records``, ``events``, ``bytes``, ``kept_back`` (those that
        could not be proven, with ``problems``), ``took_s``, ``events_per_second``.
    """
    began = time.monotonic()
    lake, tier = arguments["lake"], arguments["tier"]
    bounds = {name: str(arguments.get(name) or "") for name in ("first_day", "last_day", "tenant")}
    parts = window(held(lake), **bounds)
    done = {"segments": 0, "executions": 0, "records": 0, "events": 0, "bytes": 0}
    problems: list[dict[str, Any]] = []
    if parts:
        wanted = _due(spark, lake, tier, int(arguments["before_ms"]))

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield told_batch(write_all(tier, executions(batches)))

        for row in histories(spark, lake, parts, wanted).mapInArrow(work, _SCHEMA).collect():
            told = msgspec.json.decode(row["told"])
            if row["kind"] == "problem":
                problems.append(told)
                continue
            done["segments"] += 1
            for name in ("records", "events", "bytes", "executions"):
                done[name] += told[name]
    return {
        **done,
        "kept_back": len(problems),
        "problems": problems[:LISTED_MAX],
        **pace(began, done),
    }


def _due(spark: Any, lake: Any, tier: TierPlace, before_ms: int) -> Any:
    """The keys of executions that ended before the moment and are in no segment."""
    from pyspark.sql import functions as F

    ended = (
        table_view(spark, lake, "executions")
        .where(F.col("ended_at") < F.timestamp_millis(F.lit(before_ms)))
        .select(*KEYS)
    )
    keys = [key for key, _ in asyncio.run(segment_keys(tier))]
    if not keys:
        return ended

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for manifest in asyncio.run(read_manifests(tier, batch.column(0).to_pylist())):
                ids = [one.execution_id for one in manifest.executions]
                columns = [
                    pa.array([manifest.tenant_id] * len(ids), pa.string()),
                    pa.array([manifest.organization_id] * len(ids), pa.string()),
                    pa.array(ids, pa.int64()),
                ]
                yield pa.RecordBatch.from_arrays(columns, list(KEYS))

    schema = "tenant_id string, organization_id string, execution_id long"
    known = spread(spark, keys).mapInArrow(work, schema)
    return ended.join(known, list(KEYS), "left_anti")


def write_all(
    tier: TierPlace, given: Iterable[tuple[Key, list[Recorded]]]
) -> list[tuple[str, str]]:
    """Runs on an executor: segments of whole executions, each of one scope and day."""
    told: list[tuple[str, str]] = []

    def where(pair: tuple[Key, list[Recorded]]) -> tuple[str, str, str]:
        return (*pair[0][:2], mint_date(pair[0][2]))

    async def run() -> None:
        async with opened(tier) as (objects, placement):
            for (tenant, organization, day), group in groupby(given, key=where):
                scope = scope_of(tenant, organization)
                ready: list[tuple[ArchivedExecution, list[Recorded]]] = []
                held_records = 0
                for key, records in group:
                    try:
                        ready.append((archived(records), records))
                    except NoetlError as error:
                        told.append(_problem(key, error))
                        continue
                    held_records += len(records)
                    if held_records >= SEGMENT_RECORDS:
                        made = await write_segment(objects, placement, scope, day, ready)
                        told.append(_segment(made))
                        ready, held_records = [], 0
                if ready:
                    made = await write_segment(objects, placement, scope, day, ready)
                    told.append(_segment(made))

    asyncio.run(run())
    return told


def _segment(made: SegmentManifest) -> tuple[str, str]:
    counts = {
        "records": made.records,
        "events": made.events,
        "bytes": made.bytes,
        "executions": len(made.executions),
    }
    return "segment", msgspec.json.encode(counts).decode()


def _problem(key: Key, error: NoetlError) -> tuple[str, str]:
    told = {"tenant_id": key[0], "execution_id": key[2], "reason": error.message}
    return "problem", msgspec.json.encode(told).decode()


def told_batch(told: list[tuple[str, str]]) -> pa.RecordBatch:
    """What a task tells the driver: kinds, and JSON."""
    columns = [pa.array([row[at] for row in told], pa.string()) for at in (0, 1)]
    return pa.RecordBatch.from_arrays(columns, schema=_TOLD)


def spread(spark: Any, keys: list[str]) -> Any:
    """Keys of segments, one to a task."""
    rows = spark.sparkContext.parallelize([(key,) for key in keys], len(keys))
    return spark.createDataFrame(rows, "key string")


async def segment_keys(tier: TierPlace) -> list[tuple[str, bool]]:
    """Keys of all segments, and whether each was trimmed."""
    async with opened(tier) as (objects, placement):
        return await Archive(objects, placement).segments()


async def read_manifests(tier: TierPlace, keys: list[str]) -> list[SegmentManifest]:
    """The manifests of some segments."""
    async with opened(tier) as (objects, placement):
        archive_ = Archive(objects, placement)
        return [await archive_.read_manifest(key) for key in keys]


def pace(began: float, done: dict[str, int]) -> dict[str, Any]:
    """How long it took, and how many events that is per second."""
    took = time.monotonic() - began
    return {"took_s": round(took, 3), "events_per_second": round(done["events"] / max(took, 1e-9))}
