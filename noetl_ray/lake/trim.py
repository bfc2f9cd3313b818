"""The compactor's second half: what the archive holds goes from the log and the table of events.

Owns the order: the segment's bytes are read and compared with their checksum, then with what is
asked to go; then the log forgets each subject below its last archived record, then the read model
its events, then a note says so. A segment that fails any of it is left alone and named.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.errors import NoetlError, StoreError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.lake.archive import pace, segment_keys, spread, told_batch
from noetl_ray.lake.source import open_log
from noetl_ray.lake.tier import opened
from noetl_ray.readmodel.postgres_pool import close_pool, open_pool
from noetl_ray.replay.archive import Archive, decode_records, trimmed_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from noetl_ray.lake.source import LogPlace
    from noetl_ray.lake.tier import TierPlace
    from noetl_ray.readmodel.postgres_pool import Connection
    from noetl_ray.replay.archive import SegmentManifest
    from noetl_ray.wal.jetstream import JetStreamLog

PURGES_AT_ONCE = 64
DELETED_AT_ONCE = 1_000
LISTED_MAX = 1_000


def trim(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Let log and read model forget what verified segments hold.

    Args:
        spark: The session.
        arguments: ``tier`` and ``log`` places, ``dsn`` of the read model, empty for none.

    Returns:
        ``segments``, ``executions``, ``events`` of those, ``purged`` records of the log,
        ``deleted`` rows of the read model, ``failed`` segments with ``problems``, ``took_s``,
        ``events_per_second``.
    """
    began = time.monotonic()
    tier, log, dsn = arguments["tier"], arguments["log"], arguments["dsn"]
    keys = [key for key, trimmed in asyncio.run(segment_keys(tier)) if not trimmed]
    done = {"segments": 0, "executions": 0, "events": 0, "purged": 0, "deleted": 0}
    problems: list[dict[str, Any]] = []
    if keys:

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for key in batch.column(0).to_pylist():
                    yield told_batch([trim_segment(tier, log, dsn, key)])

        for row in spread(spark, keys).mapInArrow(work, "kind string, told string").collect():
            told = msgspec.json.decode(row["told"])
            if row["kind"] == "problem":
                problems.append(told)
                continue
            done["segments"] += 1
            for name, value in told.items():
                done[name] += value
    return {
        **done,
        "failed": len(problems),
        "problems": problems[:LISTED_MAX],
        **pace(began, done),
    }


def trim_segment(tier: TierPlace, log: LogPlace, dsn: str, key: str) -> tuple[str, str]:
    """Runs on an executor: one segment, or why it was left alone."""
    try:
        counts = asyncio.run(_trim(tier, log, dsn, key))
    except NoetlError as error:
        told = {"segment": key, "reason": error.message}
        return "problem", msgspec.json.encode(told).decode()
    return "trimmed", msgspec.json.encode(counts).decode()


async def _trim(tier: TierPlace, log_place: LogPlace, dsn: str, key: str) -> dict[str, int]:
    async with opened(tier) as (objects, placement):
        manifest = await Archive(objects, placement).read_manifest(key)
        verify(manifest, await objects.get(key))
        log = await open_log(log_place)
        try:
            purged = await _purge(log, manifest)
        finally:
            await log.close()
        deleted = await _delete(dsn, manifest) if dsn else 0
        await objects.put(trimmed_key(key), b"{}")
    return {
        "executions": len(manifest.executions),
        "events": manifest.events,
        "purged": purged,
        "deleted": deleted,
    }


def verify(manifest: SegmentManifest, data: bytes) -> None:
    """That a segment holds every record that is to go.

    Raises:
        StoreError: its bytes are not those of the manifest, or a record is missing.
    """
    if sha256_hex(data) != manifest.sha256:
        msg = f"the archive segment {manifest.key} is corrupt: its checksum does not fit"
        raise StoreError(msg)
    there: dict[str, int] = {}
    records = decode_records(data)
    for recorded in records:
        there[recorded.subject] = recorded.position
    asked = {s: p for one in manifest.executions for s, p in one.trim.items()}
    if len(records) != manifest.records or any(there.get(s) != p for s, p in asked.items()):
        msg = f"the archive segment {manifest.key} does not hold what its manifest says"
        raise StoreError(msg)


async def _purge(log: JetStreamLog, manifest: SegmentManifest) -> int:
    """The last archived record of each subject stays: a purged subject begins anew (P7)."""
    limit = asyncio.Semaphore(PURGES_AT_ONCE)

    async def one(subject: str, last: int) -> int:
        async with limit:
            return await log.purge(subject, below=last)

    several = [
        one(subject, last)
        for execution in manifest.executions
        for subject, last in execution.trim.items()
    ]
    return sum(await asyncio.gather(*several))


async def _delete(dsn: str, manifest: SegmentManifest) -> int:
    ids = [one.execution_id for one in manifest.executions]
    pool = await open_pool(dsn, size_max=1, operator=True)
    deleted = 0
    try:
        async with pool.acquire() as connection:
            for start in range(0, len(ids), DELETED_AT_ONCE):
                deleted += await _delete_some(
                    connection, manifest, ids[start : start + DELETED_AT_ONCE]
                )
    finally:
        await close_pool(pool)
    return deleted


async def _delete_some(connection: Connection, manifest: SegmentManifest, ids: list[int]) -> int:
    done = await connection.execute(
        "DELETE FROM noetl.event WHERE tenant_id = $1 AND organization_id = $2 "
        "AND execution_id = ANY($3::bigint[])",
        manifest.tenant_id,
        manifest.organization_id,
        ids,
    )
    return int(done.rpartition(" ")[2])
