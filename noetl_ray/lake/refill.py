"""A lake built anew when parts of the log are only in the archive.

Owns the first commit of such a lake, which holds what segments hold, and telling which records the
log and the archive both have: the last ones of trimmed subjects. Everything else is the build's.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import EnvelopeError, UsageError
from noetl_ray.lake.archive import read_manifests, segment_keys, spread
from noetl_ray.lake.commits import Part, make_commit
from noetl_ray.lake.files import Files
from noetl_ray.lake.parts import tables_of, write_part
from noetl_ray.lake.rows import Rows
from noetl_ray.lake.tier import opened
from noetl_ray.lake.trim import verify
from noetl_ray.replay.archive import Archive, decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.lake.commits import Snapshot
    from noetl_ray.lake.tier import TierPlace
    from noetl_ray.wal.port import Recorded

Archived = dict[tuple[str, str, int], int]
"""By tenant, organization and execution: the last archived position."""


def refill(
    spark: Any, lake: dict[str, str], tier: TierPlace, before: Snapshot
) -> tuple[Snapshot, Archived]:
    """Make the first commit of an empty lake from the archive; nothing when there is none.

    Raises:
        UsageError: the lake is not empty, so it may hold the same records already.
    """
    if before.number:
        msg = "--from-archive is for a lake that is built anew; remove its folder first"
        raise UsageError(msg)
    keys = [key for key, _ in asyncio.run(segment_keys(tier))]
    if not keys:
        return before, {}
    name = uuid.uuid4().hex[:8]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for key in batch.column(0).to_pylist():
                parts = write_archived(lake, tier, key, name)
                told = [msgspec.json.encode(part).decode() for part in parts]
                yield pa.RecordBatch.from_arrays([pa.array(told, pa.string())], ["part"])

    rows = spread(spark, keys).mapInArrow(work, "part string").collect()
    parts = [msgspec.json.decode(row["part"], type=Part) for row in rows]
    archived = {
        (manifest.tenant_id, manifest.organization_id, one.execution_id): one.last_position
        for manifest in asyncio.run(read_manifests(tier, keys))
        for one in manifest.executions
    }
    made = make_commit(
        Files(lake), before, what="archive", position=before.position, added=parts, made_at=""
    )
    return made, archived


def write_archived(lake: dict[str, str], tier: TierPlace, key: str, name: str) -> list[Part]:
    """Runs on an executor: the rows of one segment.

    Raises:
        StoreError: the segment is corrupt; the lake is not built without it.
    """

    async def fetch() -> bytes:
        async with opened(tier) as (objects, placement):
            manifest = await Archive(objects, placement).read_manifest(key)
            data = await objects.get(key)
        verify(manifest, data)
        return data

    rows = Rows()
    records = decode_records(asyncio.run(fetch()))
    for recorded in records:
        rows.add(recorded)
    label = f"{records[0].position:012d}-{records[-1].position:012d}-{name}"
    files = Files(lake)
    return [write_part(files, partition, label, table) for partition, table in tables_of(rows)]


def is_archived(recorded: Recorded, archived: Archived) -> bool:
    """Whether a record of the log is in the archive too."""
    if not archived:
        return False
    try:
        event = recorded.record.events[0]
    except EnvelopeError:
        return False
    key = (event.tenant_id, event.organization_id, event.execution_id)
    return recorded.position <= archived.get(key, 0)
