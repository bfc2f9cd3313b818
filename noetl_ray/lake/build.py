"""The build job: what the log has since the last commit becomes rows of the lake.

Owns windows and their order. Executors read ranges of the log themselves and write Parquet
themselves; only the names of files come back. A window becomes visible by one commit. A build that
is killed leaves files nobody names; one that comes second finds its commit made, throws its own
files away and goes on after it.
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import ConflictError
from noetl_ray.lake.commits import Part, Snapshot, make_commit, read_snapshot
from noetl_ray.lake.files import Files
from noetl_ray.lake.parts import tables_of, write_part
from noetl_ray.lake.refill import is_archived, refill
from noetl_ray.lake.rows import Rows
from noetl_ray.lake.source import last_position, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.lake.refill import Archived
    from noetl_ray.wal.port import Recorded

SPLIT_RECORDS = 20_000
EVEN_RECORDS_MIN = 2_000
"""Ranges are not made smaller than this only to give every core one."""
WINDOW_SPLITS = 64
"""What one commit covers at most, so that a lost build loses little."""
WRITTEN = pa.schema([("part", pa.string()), ("counts", pa.string())])


def build(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Drain the log into the lake, up to where it ended when the job began.

    Args:
        spark: The session.
        arguments: ``lake`` and ``log`` places; ``split_records``; ``to`` to stop earlier;
            ``archive``, the place of the tier, for an empty lake whose log was trimmed.

    Returns:
        ``position``, ``commits``, ``records``, ``events``, ``unreadable``, ``files``, ``rows`` by
        table.
    """
    files = Files(arguments["lake"])
    end = int(arguments.get("to") or last_position(arguments["log"]))
    split = int(arguments.get("split_records") or SPLIT_RECORDS)
    began = time.monotonic()
    done: dict[str, Any] = {
        "commits": 0, "records": 0, "events": 0, "unreadable": 0, "files": 0, "rows": {},
    }  # fmt: skip
    snapshot = read_snapshot(files)
    archived: Archived = {}
    if arguments.get("archive"):
        snapshot, archived = refill(spark, arguments["lake"], arguments["archive"], snapshot)
    while snapshot.position < end:
        last = min(end, snapshot.position + split * WINDOW_SPLITS)
        written = _window(spark, arguments, snapshot.position + 1, last, split, archived)
        parts, counts = _gathered(written)
        try:
            snapshot = _commit(files, snapshot, last, parts, counts)
        except ConflictError:
            for part in parts:
                files.delete(part.key)
            snapshot = read_snapshot(files)
            continue
        done["commits"] += 1
        done["files"] += len(parts)
        for name, value in counts.items():
            done[name] += value
        for part in parts:
            done["rows"][part.table] = done["rows"].get(part.table, 0) + part.rows
    return {"position": snapshot.position, "took_s": round(time.monotonic() - began, 3), **done}


def _window(
    spark: Any, arguments: dict[str, Any], first: int, last: int, split: int, archived: Archived
) -> list[tuple[str, str]]:
    """Let executors turn ranges of positions into files; gives their names and counts."""
    # A window of few ranges would leave cores idle at its end.
    even = -(-(last - first + 1) // spark.sparkContext.defaultParallelism)
    split = max(1, min(split, max(even, EVEN_RECORDS_MIN)))
    starts = list(range(first, last + 1, split))
    name = uuid.uuid4().hex[:8]
    lake, log = arguments["lake"], arguments["log"]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in batch.column(0).to_pylist():
                end = min(last, start + split - 1)
                yield write_range(lake, log, start, end, name, archived)

    # One task per range: a range is minutes of work at most, and is lost as a whole.
    ranges = spark.sparkContext.parallelize([(start,) for start in starts], len(starts))
    frame = spark.createDataFrame(ranges, "start long").mapInArrow(
        work, "part string, counts string"
    )
    return [(row["part"], row["counts"]) for row in frame.collect()]


def write_range(
    lake: dict[str, str],
    log: dict[str, Any],
    first: int,
    last: int,
    name: str,
    archived: Archived | None = None,
) -> pa.RecordBatch:
    """Runs on an executor: read one range of the log and write its files."""
    rows = Rows()

    def take(recorded: Recorded) -> None:
        if not archived or not is_archived(recorded, archived):
            rows.add(recorded)

    read_range(log, first, last, take)
    files = Files(lake)
    label = f"{first:012d}-{last:012d}-{name}"
    parts = [
        msgspec.json.encode(write_part(files, partition, label, table)).decode()
        for partition, table in tables_of(rows)
    ]
    counts = {"records": rows.records, "events": rows.events, "unreadable": rows.unreadable}
    told = msgspec.json.encode(counts).decode()
    columns = [[*parts, ""], [*("" for _ in parts), told]]
    return pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=WRITTEN)


def _gathered(written: list[tuple[str, str]]) -> tuple[list[Part], dict[str, int]]:
    parts = [msgspec.json.decode(part, type=Part) for part, _ in written if part]
    counts = {"records": 0, "events": 0, "unreadable": 0}
    for _, told in written:
        if told:
            for key, value in msgspec.json.decode(told, type=dict[str, int]).items():
                counts[key] += value
    return parts, counts


def _commit(
    files: Files, before: Snapshot, last: int, parts: list[Part], counts: dict[str, int]
) -> Snapshot:
    return make_commit(
        files,
        before,
        what="build",
        position=last,
        added=parts,
        made_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        counts=counts,
    )
