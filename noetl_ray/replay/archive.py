"""The archive: records of finished executions in segments, and what is known of each (CMP-1, P7).

A segment is two objects beside each other: the records as Parquet, and a manifest with their
checksum and a summary of every execution. The manifest is written last, after the records were read
back, so what has a manifest may be lost elsewhere. Segments lie by tenant, organization and the day
an execution was made, so one is found by its id alone. Refuses bytes that are not the ones named.
"""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from noetl_ray.errors import ObjectMissingError, StoreError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.locator.keys import ROOT, Placement, mint_date
from noetl_ray.locator.segments import encode_segment
from noetl_ray.wal.port import Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.scope import Scope

MANIFESTS_KEPT = 8
_FOR_EVER_MS = (1 << 63) - 1
SCHEMA = pa.schema(
    [
        ("execution_id", pa.int64()),
        ("position", pa.int64()),
        ("subject", pa.string()),
        ("time_ms", pa.int64()),
        ("data", pa.binary()),
    ]
)
_ROW_GROUP = 4_096
_RECORDS, _MANIFEST, _TRIMMED = ".parquet", ".json", ".trimmed"


class ArchivedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One link of the reference chain: what a step or a call gave, without the bytes."""

    position: int
    event_id: int
    event_type: str
    step: str | None = None
    visit: int | None = None
    status: str | None = None
    command_id: str | None = None
    frame_id: str | None = None
    reference: dict[str, Any] | None = None
    """Where the value lies; None when it was small and lies in the event."""


class ArchivedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One finished execution."""

    execution_id: int
    shard: int
    path: str | None
    status: str
    started_at: str | None
    ended_at: str | None
    first_position: int
    last_position: int
    records: int
    events: int
    checksums: dict[str, str]
    """The six surfaces, as a replay of the archived records gives them (VAL-1)."""
    registry_digest: str
    steps: list[ArchivedStep]
    trim: dict[str, int]
    """By subject with several records: the last one's position, which stays in the log (P7)."""


class SegmentManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment holds."""

    tenant_id: str
    organization_id: str
    day: str
    key: str
    sha256: str
    bytes: int
    records: int
    events: int
    executions: list[ArchivedExecution]
    expires_ms: int | None = None
    """Until when what its records name is kept, once they are trimmed; None for ever (TN-20)."""


_decoder = msgspec.json.Decoder(SegmentManifest)


def archive_prefix(placement: Placement, scope: Scope, day: str) -> str:
    """The folder of a scope's segments of one day."""
    return (
        f"{archive_root(placement)}/tenant={encode_segment(scope.tenant_id)}"
        f"/org={encode_segment(scope.organization_id)}/date={day}"
    )


def archive_root(placement: Placement) -> str:
    """The folder of all segments."""
    return f"{ROOT}/env={encode_segment(placement.env)}/archive"


def encode_records(executions: Sequence[tuple[int, Sequence[Recorded]]]) -> bytes:
    """The records of executions, in order of their ids, as Parquet."""
    rows = [
        (execution_id, one.position, one.subject, one.time_ms, one.data)
        for execution_id, records in executions
        for one in records
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=SCHEMA),
        sink,
        compression="zstd",
        compression_level=1,
        row_group_size=_ROW_GROUP,
        write_statistics=["execution_id", "position"],
        use_dictionary=["subject"],
    )
    return sink.getvalue()


def decode_records(data: bytes, execution_id: int | None = None) -> list[Recorded]:
    """Records of a segment in order of position, of one execution or of all."""
    only = None if execution_id is None else [("execution_id", "=", execution_id)]
    table = pq.read_table(pa.BufferReader(data), filters=only)
    columns = [table.column(name).to_pylist() for name in SCHEMA.names[1:]]
    found = [
        Recorded(position=position, subject=subject, time_ms=time_ms, data=record)
        for position, subject, time_ms, record in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda one: one.position)


def segment_key(prefix: str, executions: Sequence[int], sha256: str) -> str:
    """The key of a segment's records; equal records have one key, however often they are made."""
    return f"{prefix}/{min(executions):019d}-{max(executions):019d}-{sha256[:16]}{_RECORDS}"


def manifest_key(key: str) -> str:
    """The key of the manifest beside a segment's records."""
    return key.removesuffix(_RECORDS) + _MANIFEST


def trimmed_key(key: str) -> str:
    """The key of the note that log and read model have let go of a segment's records."""
    return key.removesuffix(_RECORDS) + _TRIMMED


class Archive:
    """Finished executions of an object store, by id."""

    def __init__(self, objects: ObjectStore, placement: Placement) -> None:
        """Bind; nothing is asked yet."""
        self._objects = objects
        self._placement = placement
        self._kept: OrderedDict[str, SegmentManifest] = OrderedDict()

    async def manifest(self, scope: Scope, execution_id: int) -> ArchivedExecution | None:
        """What is known of an archived execution of this scope; None when it is not archived."""
        found = await self._find(scope, execution_id)
        return None if found is None else found[1]

    async def records(self, scope: Scope, execution_id: int) -> list[Recorded] | None:
        """Its records in order of position; None when it is not archived.

        Raises:
            StoreError: the segment's bytes are not the ones that were verified.
        """
        found = await self._find(scope, execution_id)
        if found is None:
            return None
        segment, _ = found
        data = await self._objects.get(segment.key)
        return await asyncio.to_thread(self._checked, segment, data, execution_id)

    async def kept_until(self, scope: Scope) -> dict[int, int]:
        """Archived executions of a scope, and until when each is kept (TN-20)."""
        found: dict[int, int] = {}
        async for segment, until_ms in self._of_scope(scope):
            for one in segment.executions:
                found[one.execution_id] = max(until_ms, found.get(one.execution_id, 0))
        return found

    async def every_record(self, scope: Scope, now_ms: int) -> AsyncIterator[bytes]:
        """The bytes of archived records of a scope that are kept now, for who asks what they name.

        Raises:
            StoreError: a segment is corrupt, so nobody can say.
        """
        async for segment, until_ms in self._of_scope(scope):
            if until_ms <= now_ms:
                continue
            data = await self._objects.get(segment.key)
            if sha256_hex(data) != segment.sha256:
                msg = f"the archive segment {segment.key} is corrupt: its checksum does not fit"
                raise StoreError(msg)
            for recorded in await asyncio.to_thread(decode_records, data):
                yield recorded.data

    async def _of_scope(self, scope: Scope) -> AsyncIterator[tuple[SegmentManifest, int]]:
        """Segments, and until when each is kept: what the log still has never expires here."""
        prefix = archive_prefix(self._placement, scope, "").rpartition("/")[0]
        for key, trimmed in await self.segments(prefix):
            segment = await self.read_manifest(key)
            expires_ms = segment.expires_ms if trimmed else None
            yield segment, _FOR_EVER_MS if expires_ms is None else expires_ms

    async def segments(self, prefix: str = "") -> list[tuple[str, bool]]:
        """Keys of the records of all complete segments, and whether each was trimmed."""
        root = prefix or archive_root(self._placement)
        names = {info.key async for info in self._objects.list(root)}
        keys = sorted(name for name in names if name.endswith(_RECORDS))
        return [(key, trimmed_key(key) in names) for key in keys if manifest_key(key) in names]

    async def read_manifest(self, key: str) -> SegmentManifest:
        """The manifest of a segment, by the key of its records."""
        kept = self._kept.get(key)
        if kept is None:
            data = await self._objects.get(manifest_key(key))
            try:
                kept = await asyncio.to_thread(_decoder.decode, data)
            except msgspec.DecodeError as error:
                msg = f"the manifest {manifest_key(key)} cannot be read: {error}"
                raise StoreError(msg) from None
            self._kept[key] = kept
            while len(self._kept) > MANIFESTS_KEPT:
                self._kept.popitem(last=False)
        return kept

    async def _find(
        self, scope: Scope, execution_id: int
    ) -> tuple[SegmentManifest, ArchivedExecution] | None:
        prefix = archive_prefix(self._placement, scope, mint_date(execution_id))
        for key, _ in await self.segments(prefix):
            first, last, _ = key.rpartition("/")[2].split("-")
            if not int(first) <= execution_id <= int(last):
                continue
            try:
                segment = await self.read_manifest(key)
            except ObjectMissingError:
                continue
            for one in segment.executions:
                if one.execution_id == execution_id:
                    return segment, one
        return None

    @staticmethod
    def _checked(segment: SegmentManifest, data: bytes, execution_id: int) -> list[Recorded]:
        if sha256_hex(data) != segment.sha256:
            msg = f"the archive segment {segment.key} is corrupt: its checksum does not fit"
            raise StoreError(msg)
        return decode_records(data, execution_id)
