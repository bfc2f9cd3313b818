"""Snapshots of long executions, so that a replay need not begin at the beginning (SNP-1, SNP-2).

A snapshot is what the records up to one position come to, made from the log and nothing else, with
the position, the digests of upcasters and code, and a checksum. It is an accelerator and never an
authority: one that does not fit is passed over, and the whole log is folded. Snapshots lie beside
the read model and vanish with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl_ray.errors import StoreError
from noetl_ray.events.canonical import digest, sha256_hex
from noetl_ray.events.upcast import registry
from noetl_ray.readmodel.records import (
    ExecutionRows,
    ProjectionKey,
    ProjectionRecord,
    ProjectionSnapshot,
)
from noetl_ray.replay.reading import read_after, read_execution
from noetl_ray.replay.surfaces import bundle_of, checksum_of_bundle, rows_of_records, surfaces_of
from noetl_ray.shards.versions import FOLD, code_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.replay.archive import Archive
    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Log, Recorded

REPLAY_STATE = "replay_state"
"""Projection type of snapshots."""
_ROWS = (*FOLD, "noetl_ray.readmodel")
_decode = msgspec.json.Decoder(ExecutionRows).decode


class SnapshotStore(Protocol):
    """Where snapshots are kept; a part of the projection store."""

    async def save_snapshot(self, snapshot: ProjectionSnapshot) -> bool:
        """Keep a snapshot beside those of other versions."""
        ...

    async def load_snapshot(
        self, key: ProjectionKey, *, at_or_before: int | None = None
    ) -> ProjectionSnapshot | None:
        """The newest snapshot, or the newest not after a position."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a replay begins: at a snapshot, or with the first record."""

    rows: ExecutionRows | None = None
    told: dict[str, Any] | None = None
    """What is shown of the snapshot that was found, used or not."""
    payloads: str = ""


async def newest_start(
    store: SnapshotStore | None, scope: Scope, execution_id: int, *, as_of: int | None = None
) -> Start:
    """The newest valid snapshot not past a position; a full fold where there is none."""
    if store is None:
        return Start()
    try:
        found = await store.load_snapshot(_key(scope, execution_id), at_or_before=as_of)
    except StoreError:
        # The read model is away; what it only makes faster is not worth an error.
        return Start()
    if found is None:
        return Start()
    record = found.record
    why = _misfit(record)
    told = {
        "aggregate_type": REPLAY_STATE,
        "aggregate_id": f"execution/{execution_id}/all",
        "position": record.version,
        "checksum": record.checksum,
        "taken_at": record.updated_at,
        **record.meta,
        "used": not why,
    }
    if why:
        return Start(told=told | {"ignored": why})
    return Start(rows=_decode(record.state), told=told, payloads=str(record.meta["payloads"]))


async def read_from(
    log: Log, scope: Scope, execution_id: int, start: Start, archive: Archive | None = None
) -> list[Recorded]:
    """The records after a start; all of them when there is no snapshot."""
    if start.rows is None:
        return await read_execution(log, scope, execution_id, archive)
    return await read_after(log, scope, execution_id, start.rows.position)


async def take_snapshot(
    log: Log,
    store: SnapshotStore,
    scope: Scope,
    execution_id: int,
    *,
    taken_at: str,
    archive: Archive | None = None,
) -> int:
    """Fold on from the newest snapshot to the end of the log and keep what it comes to.

    Returns:
        The position reached.

    Raises:
        StoreError: it cannot be kept.
        LogError: the log cannot be read.
    """
    start = await newest_start(store, scope, execution_id)
    records = await read_from(log, scope, execution_id, start, archive)
    made = await asyncio.to_thread(_made, scope, execution_id, start, records, taken_at)
    if made is None:
        return 0
    await store.save_snapshot(made)
    return made.record.version


def _made(
    scope: Scope, execution_id: int, start: Start, records: Sequence[Recorded], taken_at: str
) -> ProjectionSnapshot | None:
    rows = rows_of_records(records, start=start.rows)
    if rows is None:
        return None
    data = msgspec.json.encode(rows)
    last = max((r.time_ms for r in records), default=0)
    return ProjectionSnapshot(
        record=ProjectionRecord(
            key=_key(scope, execution_id),
            version=rows.position,
            state=data,
            checksum=sha256_hex(data),
            source_event_id=rows.execution.last_event_id,
            meta={
                "event_count": rows.execution.event_count,
                "as_of_ms": last or (start.told or {}).get("as_of_ms", 0),
                "code_version": code_version(_ROWS),
                "upcaster_registry_digest": registry().digest,
                "fold_checksum": checksum_of_bundle(bundle_of(surfaces_of(rows))),
                "payloads": _payloads(start.payloads, records),
            },
            updated_at=taken_at,
        )
    )


def _payloads(before: str, records: Sequence[Recorded]) -> str:
    """One digest over those of all payloads that were referred to, in order."""
    found = [
        event.payload_ref.sha256
        for recorded in records
        for event in recorded.record.events
        if event.payload_ref is not None
    ]
    return digest([before, *found]) if found else before


def _misfit(record: ProjectionRecord) -> str:
    if record.meta.get("upcaster_registry_digest") != registry().digest:
        return "made under another upcaster registry"
    if record.meta.get("code_version") != code_version(_ROWS):
        return "made by another version of this program"
    if sha256_hex(record.state) != record.checksum:
        return "its checksum does not fit"
    return ""


def _key(scope: Scope, execution_id: int) -> ProjectionKey:
    return ProjectionKey(
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        projection_type=REPLAY_STATE,
        execution_id=execution_id,
    )
