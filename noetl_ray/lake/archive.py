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

from noetl_ray.config.convert import from_dict
from noetl_ray.errors import NoetlError
from noetl_ray.lake.histories import executions, held, over_ranges, ranges, read_ids, window
from noetl_ray.lake.tier import opened
from noetl_ray.locator.keys import mint_date
from noetl_ray.locator.segments import encode_segment
from noetl_ray.replay.archive import Archive
from noetl_ray.replay.archiving import archived, write_segment
from noetl_ray.scope import scope_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.lake.commits import Part
    from noetl_ray.lake.files import Place
    from noetl_ray.lake.histories import Key, Range
    from noetl_ray.lake.tier import TierPlace
    from noetl_ray.replay.archive import ArchivedExecution, SegmentManifest
    from noetl_ray.wal.port import Recorded

SEGMENT_RECORDS = 50_000
KEYS = ("tenant_id", "organization_id", "execution_id")
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
    snapshot = held(lake)
    before_ms = int(arguments["before_ms"])
    ends = snapshot.of("executions")
    known = [key for key, _ in asyncio.run(segment_keys(tier))]
    done = {"segments": 0, "executions": 0, "records": 0, "events": 0, "bytes": 0}
    problems: list[dict[str, Any]] = []

    def work(one: Range) -> pa.RecordBatch:
        day = [part for part in ends if (part.tenant, part.day) == (one.tenant, one.day)]
        wanted = due(lake, tier, one, day, known, before_ms)
        if not wanted:
            return told_batch([])
        chosen = ((key, found) for key, found in executions(lake, one) if key in wanted)
        return told_batch(write_all(tier, chosen))

    cut = ranges(window(snapshot, **bounds), spark.sparkContext.defaultParallelism)
    for row in over_ranges(spark, cut, _SCHEMA, work):
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


def due(
    lake: Place, tier: TierPlace, one: Range, ends: list[Part], known: list[str], before_ms: int
) -> set[Key]:
    """Runs on an executor: executions of a range that ended before the moment, in no segment."""
    if not ends:
        return set()
    there = msgspec.structs.replace(one, parts=ends)
    rows = read_ids(lake, there, [*KEYS, "ended_at"]).to_pylist()
    found: set[Key] = set()
    for row in rows:
        ended = row["ended_at"]
        if ended is not None and ended.timestamp() * 1_000 < before_ms:
            found.add((row["tenant_id"], row["organization_id"], row["execution_id"]))
    place = f"/tenant={encode_segment(one.tenant)}/"
    keys = [key for key in known if place in key and f"/date={one.day}/" in key]
    for manifest in asyncio.run(read_manifests(tier, keys)):
        scope = (manifest.tenant_id, manifest.organization_id)
        found -= {(*scope, archived_.execution_id) for archived_ in manifest.executions}
    return found


def write_all(
    tier: TierPlace, given: Iterable[tuple[Key, list[Recorded]]]
) -> list[tuple[str, str]]:
    """Runs on an executor: segments of whole executions, each of one scope and day."""
    told: list[tuple[str, str]] = []
    days = from_dict(tier["settings"]).lake.archive_days
    expires_ms = int(time.time() * 1_000) + days * DAY_MS if days else None

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
                        made = await write_segment(
                            objects, placement, scope, day, ready, expires_ms=expires_ms
                        )
                        told.append(_segment(made))
                        ready, held_records = [], 0
                if ready:
                    made = await write_segment(
                        objects, placement, scope, day, ready, expires_ms=expires_ms
                    )
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
