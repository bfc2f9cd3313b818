"""Whole executions out of the lake: the records of a window, together by execution and in order.

Owns the shuffle. Records of one execution lie in files of several builds; here a task gets all of
them, one execution after the other, and never more than one in memory. Jobs that look at whole
executions (the audit, the archive) say only what is done with each.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from noetl_ray.lake.commits import Snapshot, read_snapshot
from noetl_ray.lake.files import Files
from noetl_ray.lake.query import spark_table
from noetl_ray.lake.schemas import TABLES
from noetl_ray.wal.port import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from noetl_ray.lake.commits import Part
    from noetl_ray.lake.files import Place

COLUMNS = ["tenant_id", "organization_id", "execution_id", "position", "subject", "time_ms", "data"]
KEYS = ("tenant_id", "organization_id", "execution_id")
TASK_RECORDS = 100_000
"""About so many records go to one task, so that a lost one costs little."""

Key = tuple[str, str, int]
"""Tenant, organization and execution."""


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


def histories(spark: Any, place: Place, parts: list[Part], only: Any = None) -> Any:
    """A DataFrame of records where a task has whole executions, in order of position.

    Args:
        spark: The session.
        place: The lake.
        parts: Its files of records to look at.
        only: A DataFrame with the keys of the executions wanted; None takes all.
    """
    raw = spark_table(spark, place, TABLES["records"], parts, COLUMNS).where("execution_id <> 0")
    if only is not None:
        raw = raw.join(only, list(KEYS), "left_semi")
    rows = sum(part.rows for part in parts)
    tasks = max(spark.sparkContext.defaultParallelism, -(-rows // TASK_RECORDS))
    return raw.select(*COLUMNS).repartition(tasks, *KEYS).sortWithinPartitions(*KEYS, "position")


def executions(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Key, list[Recorded]]]:
    """Runs on an executor: one execution after the other out of the batches of a task."""
    for key, rows in groupby(_rows(batches), key=itemgetter(0, 1, 2)):
        yield (
            key,
            [
                Recorded(position=position, subject=subject, time_ms=time_ms, data=data)
                for _, _, _, position, subject, time_ms, data in rows
            ],
        )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        yield from zip(*columns, strict=True)


def held(place: Place) -> Snapshot:
    """What the lake holds now."""
    return read_snapshot(Files(place))
