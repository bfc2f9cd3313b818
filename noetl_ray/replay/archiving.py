"""Finished executions on their way into the archive: what is kept of each, and the proof of it.

Owns the summary of an execution and the order of writing: records, read back and compared, then the
manifest. Refuses executions that have not ended, whose events do not fit their checksums, or whose
records contradict each other: those stay where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl_ray.errors import EnvelopeError, StoreError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.events.envelope import checksum_of
from noetl_ray.events.types import EXECUTION_TERMINAL, EventType
from noetl_ray.replay.archive import (
    ArchivedExecution,
    ArchivedStep,
    SegmentManifest,
    archive_prefix,
    decode_records,
    encode_records,
    manifest_key,
    segment_key,
)
from noetl_ray.replay.surfaces import bundle_of, rows_of_records, surfaces_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.events.envelope import Event
    from noetl_ray.locator.keys import Placement
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Recorded

_CHAIN = frozenset(
    {
        EventType.CALL_DONE,
        EventType.CALL_ERROR,
        EventType.TASK_DONE,
        EventType.STEP_EXIT,
        EventType.FRAME_COMMITTED,
        EventType.FRAME_FAILED,
        *EXECUTION_TERMINAL,
    }
)
"""What the reference chain is made of."""


def archived(records: Sequence[Recorded]) -> ArchivedExecution:
    """The summary of one execution.

    Args:
        records: All its records, in order of position.

    Raises:
        EnvelopeError: it has not ended, or an event does not fit its checksum.
        InternalError: the records contradict each other.
    """
    for recorded in records:
        for event in recorded.record.events:
            if checksum_of(event) != event.envelope_checksum:
                msg = f"the checksum of event {event.event_id} does not fit"
                raise EnvelopeError(msg)
    rows = rows_of_records(records)
    if rows is None or rows.execution.ended_at is None:
        msg = "the execution has not ended"
        raise EnvelopeError(msg)
    row = rows.execution
    last = {recorded.subject: recorded.position for recorded in records}
    # A subject with one record has nothing to lose.
    several = {
        recorded.subject for recorded in records if recorded.position != last[recorded.subject]
    }
    return ArchivedExecution(
        execution_id=row.execution_id,
        shard=row.shard,
        path=row.path,
        status=row.status,
        started_at=row.started_at,
        ended_at=row.ended_at,
        first_position=records[0].position,
        last_position=records[-1].position,
        records=len(records),
        events=sum(len(recorded.record.events) for recorded in records),
        checksums=bundle_of(surfaces_of(rows)),
        registry_digest=rows.registry_digest,
        steps=[
            _link(recorded.position, event)
            for recorded in records
            for event in recorded.record.events
            if event.event_type in _CHAIN
        ],
        trim={subject: last[subject] for subject in sorted(several)},
    )


def _link(position: int, event: Event) -> ArchivedStep:
    payload = event.payload
    result = payload.get("result")
    reference = result.get("reference") if isinstance(result, dict) else payload.get("output_ref")
    status = payload.get("status") or (result.get("status") if isinstance(result, dict) else None)
    step = payload.get("step") or payload.get("final_step")
    return ArchivedStep(
        position=position,
        event_id=event.event_id,
        event_type=str(event.event_type),
        step=step if isinstance(step, str) else None,
        visit=payload.get("visit"),
        status=status if isinstance(status, str) else None,
        command_id=event.command_id,
        frame_id=event.frame_id,
        reference=reference if isinstance(reference, dict) else None,
    )


async def write_segment(
    objects: ObjectStore,
    placement: Placement,
    scope: Scope,
    day: str,
    executions: Sequence[tuple[ArchivedExecution, Sequence[Recorded]]],
    *,
    expires_ms: int | None = None,
) -> SegmentManifest:
    """Store a segment, prove that it can be read back, and only then say that it is there.

    Raises:
        StoreError: what was read back is not what was written; nothing counts as archived.
    """
    ordered = sorted(executions, key=lambda pair: pair[0].execution_id)
    data = encode_records([(known.execution_id, records) for known, records in ordered])
    sha256 = sha256_hex(data)
    prefix = archive_prefix(placement, scope, day)
    key = segment_key(prefix, [known.execution_id for known, _ in ordered], sha256)
    await objects.put(key, data)
    again = await objects.get(key)
    wanted = sorted((one.position, one.data) for _, records in ordered for one in records)
    if (
        sha256_hex(again) != sha256
        or [(o.position, o.data) for o in decode_records(again)] != wanted
    ):
        msg = f"the archive segment {key} was not read back as it was written"
        raise StoreError(msg)
    manifest = SegmentManifest(
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        day=day,
        key=key,
        sha256=sha256,
        bytes=len(data),
        records=sum(known.records for known, _ in ordered),
        events=sum(known.events for known, _ in ordered),
        executions=[known for known, _ in ordered],
        expires_ms=expires_ms,
    )
    await objects.put(manifest_key(key), msgspec.json.encode(manifest))
    return manifest
