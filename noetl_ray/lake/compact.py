"""The compaction job: many small files of a partition become one, and summaries one row per key.

Owns which partitions are worth it. A compaction is a commit like any other: readers see the old
files or the new one, never both. The old files stay an hour for those who still read them.
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import ConflictError
from noetl_ray.lake.commits import KEPT_S, Part, make_commit, read_snapshot, vacuum
from noetl_ray.lake.files import Files
from noetl_ray.lake.parts import read_part, write_part
from noetl_ray.lake.schemas import TABLES, merged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.lake.commits import Snapshot

PARTS_MAX = 8
BYTES_MAX = 128 << 20
"""Files this large are left alone; together with others they would not fit an executor."""
TRIES = 5


def compact(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Compact every partition with more than ``parts`` small files.

    Args:
        spark: The session.
        arguments: ``lake`` place; ``parts`` a partition may keep; ``kept_s`` for old files.

    Returns:
        ``partitions``, ``before`` and ``after`` as counts of files, ``rows`` read, ``vacuumed``.
    """
    files = Files(arguments["lake"])
    allowed = int(arguments.get("parts") or PARTS_MAX)
    began = time.monotonic()
    for _ in range(TRIES):
        snapshot = read_snapshot(files)
        groups = _groups(snapshot, allowed)
        if not groups:
            made: list[Part] = []
            break
        made = _merge(spark, arguments["lake"], groups)
        try:
            make_commit(
                files,
                snapshot,
                what="compact",
                position=snapshot.position,
                added=made,
                removed=[part.key for group in groups for part in group],
                made_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            )
            break
        except ConflictError:
            for part in made:
                files.delete(part.key)
    else:
        msg = f"the lake changed during each of {TRIES} compactions; try again when no build runs"
        raise ConflictError(msg)
    return {
        "partitions": len(groups),
        "before": sum(len(group) for group in groups),
        "after": len(made),
        "rows": sum(part.rows for group in groups for part in group),
        "vacuumed": vacuum(files, kept_s=float(arguments.get("kept_s", KEPT_S))),
        "took_s": round(time.monotonic() - began, 3),
    }


def _groups(snapshot: Snapshot, allowed: int) -> list[list[Part]]:
    """Small files by partition, bounded by what one task can hold."""
    by_partition: dict[tuple[str, str, str, str], list[Part]] = {}
    for key in sorted(snapshot.parts):
        part = snapshot.parts[key]
        if part.bytes < BYTES_MAX:
            by_partition.setdefault(part.partition, []).append(part)
    groups: list[list[Part]] = []
    for _, parts in sorted(by_partition.items()):
        if len(parts) <= allowed:
            continue
        group: list[Part] = []
        size = 0
        for part in parts:
            if group and size + part.bytes > BYTES_MAX:
                groups.append(group)
                group, size = [], 0
            group.append(part)
            size += part.bytes
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _merge(spark: Any, lake: dict[str, str], groups: list[list[Part]]) -> list[Part]:
    name = uuid.uuid4().hex[:8]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            parts = [
                msgspec.json.encode(merge_group(lake, msgspec.json.decode(group), name)).decode()
                for group in batch.column(0).to_pylist()
            ]
            yield pa.RecordBatch.from_arrays([pa.array(parts, pa.string())], ["part"])

    # The largest first, so that no core ends with the longest piece of work.
    ordered = sorted(groups, key=lambda group: -sum(part.bytes for part in group))
    told = [(msgspec.json.encode(group).decode(),) for group in ordered]
    slices = min(len(told), spark.sparkContext.defaultParallelism * 4)
    source = spark.createDataFrame(spark.sparkContext.parallelize(told, slices), "parts string")
    rows = source.mapInArrow(work, "part string").collect()
    return [msgspec.json.decode(row["part"], type=Part) for row in rows]


def merge_group(lake: dict[str, str], group: list[dict[str, Any]], name: str) -> Part:
    """Runs on an executor: several files of one partition as one."""
    files = Files(lake)
    parts = [msgspec.convert(part, Part) for part in group]
    table = TABLES[parts[0].table]
    rows = pa.concat_tables([read_part(files, part.key) for part in parts])
    stems = sorted(part.key.rpartition("/")[2].removesuffix(".parquet") for part in parts)
    first = stems[0].split("-")[0]
    last = max(stem.split("-")[1] for stem in stems)
    return write_part(files, parts[0].partition, f"{first}-{last}-{name}", merged(table, rows))
