"""Whole executions out of the lake: who reads which, without moving a record between tasks.

Records of one execution lie in files of several builds. Ids of executions grow with time, and so do
positions, so a task that takes a range of ids needs few files and few row groups of them; every
file says which ids it holds. Owns that plan and the reading of one range. Jobs that look at whole
executions (the audit, the archive) say only what is done with each.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from noetl_ray.lake.commits import Part, Snapshot, read_snapshot
from noetl_ray.lake.files import Files
from noetl_ray.wal.port import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from noetl_ray.lake.files import Place

COLUMNS = ["tenant_id", "organization_id", "execution_id", "position", "subject", "time_ms", "data"]
TASK_RECORDS = 100_000
"""About so many records go to one task: what it holds, and what is lost with it."""
BATCH_ROWS = 10_000
_EVERY = (1, (1 << 63) - 1)
"""All ids of executions; 0 stands for what belongs to none."""

Key = tuple[str, str, int]
"""Tenant, organization and execution."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Executions of one tenant and day, from one id to another, and the files they lie in."""

    tenant: str
    day: str
    first: int
    last: int
    parts: list[Part]


def window(
    snapshot: Snapshot, *, first_day: str = "", last_day: str = "", tenant: str = ""
) -> list[Part]:
    """The files with the records of executions made in these days, both included."""
    return [
        part
        for part in snapshot.of("records")
        if (not first_day or part.day >= first_day)
        and (not last_day or part.day <= last_day)
        and (not tenant or part.tenant == tenant)
    ]


def ranges(parts: Iterable[Part], cores: int) -> list[Range]:
    """Cut the executions of some files into ranges of about equal work.

    Args:
        parts: Files of one table.
        cores: How many tasks run at once; no fewer ranges than that, where there is work.
    """
    by_day: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        by_day.setdefault((part.tenant, part.day), []).append(part)
    rows = sum(part.rows for several in by_day.values() for part in several)
    wanted = max(1, min(TASK_RECORDS, -(-rows // max(1, cores))))
    found: list[Range] = []
    for (tenant, day), several in sorted(by_day.items()):
        cuts = _cuts(several, wanted)
        for first, after in pairwise(cuts):
            held = [part for part in several if _overlaps(part, first, after - 1)]
            if held:
                one = Range(tenant=tenant, day=day, first=first, last=after - 1, parts=held)
                found.append(one)
    return sorted(found, key=lambda one: -sum(part.rows for part in one.parts))


def _cuts(parts: list[Part], wanted: int) -> list[int]:
    """Ids at which a day is cut: between files where that will do, within them by even steps."""
    cuts = {_EVERY[0], _EVERY[1]}
    held = 0
    for part in sorted(parts, key=lambda one: one.executions or _EVERY):
        if part.executions is None:
            continue
        first, last = max(1, part.executions[0]), part.executions[1]
        left = part.rows
        at = first
        while held + left >= wanted and last > at:
            step = max(1, int((last - at) * (wanted - held) / left))
            at = min(last, at + step)
            # A cut after the last id of a file leaves nothing of it to the next range.
            cuts.add(at + (at == last))
            left -= wanted - held
            held = 0
        held += max(0, left)
    newest = max((part.executions or _EVERY)[1] for part in parts)
    return [cut for cut in sorted(cuts) if cut <= newest or cut == _EVERY[1]]


def _overlaps(part: Part, first: int, last: int) -> bool:
    held = part.executions or _EVERY
    return held[0] <= last and held[1] >= first


def over_ranges(
    spark: Any, given: list[Range], schema: str, work: Callable[[Range], pa.RecordBatch]
) -> list[Any]:
    """Run ``work`` on executors, one task to a range; the rows it told."""
    if not given:
        return []

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for told in batch.column(0).to_pylist():
                yield work(msgspec.json.decode(told, type=Range))

    told = [(msgspec.json.encode(one).decode(),) for one in given]
    source = spark.createDataFrame(spark.sparkContext.parallelize(told, len(told)), "range string")
    rows: list[Any] = source.mapInArrow(each, schema).collect()
    return rows


def read_ids(place: Place, one: Range, columns: list[str]) -> pa.Table:
    """Runs on an executor: rows of a range's files that lie in the range."""
    files = Files(place)
    system = None if place["url"].startswith("file:") else files.filesystem()
    only = [("execution_id", ">=", one.first), ("execution_id", "<=", one.last)]
    tables = [
        pq.read_table(
            files.path(part.key),
            columns=columns,
            filters=only,
            filesystem=system,
            partitioning=None,
            # One task is one core; its neighbours have theirs.
            use_threads=False,
        )
        for part in one.parts
    ]
    return pa.concat_tables(tables)


def executions(place: Place, one: Range) -> Iterator[tuple[Key, list[Recorded]]]:
    """Runs on an executor: the executions of a range, each with its records in order."""
    order = [(name, "ascending") for name in COLUMNS[:4]]
    table = read_ids(place, one, COLUMNS).sort_by(order)
    for key, rows in groupby(_rows(table), key=itemgetter(0, 1, 2)):
        yield (
            key,
            [
                Recorded(position=position, subject=subject, time_ms=time_ms, data=data)
                for _, _, _, position, subject, time_ms, data in rows
            ],
        )


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        yield from zip(*columns, strict=True)


def held(place: Place) -> Snapshot:
    """What the lake holds now."""
    return read_snapshot(Files(place))
