"""Parquet files of the lake: rows in, named files out, and back.

Owns the layout ``tables/<table>/tenant=…/day=…/type=…/<first>-<last>-<build>.parquet`` and the
options of Parquet. A file is written whole and is never changed.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from noetl_ray.lake.commits import Part
from noetl_ray.lake.schemas import TABLES, merged
from noetl_ray.locator.segments import encode_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noetl_ray.lake.files import Files
    from noetl_ray.lake.rows import Partition, Rows

ROW_GROUP = 65_536


def part_key(partition: Partition, name: str) -> str:
    """Where a file of a partition lies."""
    table, tenant, day, kind = partition
    folder = f"tables/{table}/tenant={encode_segment(tenant)}/day={day}"
    if kind:
        folder += f"/type={encode_segment(kind)}"
    return f"{folder}/{name}.parquet"


def write_part(files: Files, partition: Partition, name: str, rows: pa.Table) -> Part:
    """Write rows as one file."""
    table, tenant, day, kind = partition
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        compression_level=1,
        row_group_size=ROW_GROUP,
        # What readers filter by; long texts would only bloat the footers.
        write_statistics=[c for c in rows.column_names if c not in ("data", "payload")],
        use_dictionary=[c for c in rows.column_names if c not in ("data", "payload")],
    )
    key = part_key(partition, name)
    data = sink.getvalue()
    ids = rows.column("execution_id") if rows.num_rows else None
    ends = None if ids is None else pc.min_max(ids).as_py()
    files.put(key, data)
    return Part(
        key=key,
        table=table,
        tenant=tenant,
        day=day,
        kind=kind,
        rows=rows.num_rows,
        bytes=len(data),
        # Rows of the system belong to no execution; a part of nothing else has no range.
        executions=None if ends is None or ends["min"] is None else (ends["min"], ends["max"]),
    )


def read_part(files: Files, key: str, columns: list[str] | None = None) -> pa.Table:
    """Read one file back, without columns from its path."""
    return pq.read_table(pa.BufferReader(files.get(key)), columns=columns, partitioning=None)


def tables_of(rows: Rows) -> Iterator[tuple[Partition, pa.Table]]:
    """Collected rows as Arrow tables, partition by partition, in order."""
    for partition in sorted(rows.facts):
        schema = TABLES[partition[0]].schema
        yield partition, _table(schema, zip(*rows.facts[partition], strict=True))
    for name, tenant, day in sorted(rows.summaries.rows):
        table = TABLES[name]
        made = [
            (*key, *(row[column] for column in table.merges))
            for key, row in rows.summaries.rows[name, tenant, day].items()
        ]
        yield (name, tenant, day, ""), merged(table, _table(table.schema, zip(*made, strict=True)))


def _table(schema: pa.Schema, columns: Iterable[Iterable[Any]]) -> pa.Table:
    arrays = [
        pa.array(list(values), type=column.type)
        for column, values in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
