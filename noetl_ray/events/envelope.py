"""The event envelope (ENV-1) and the record: the one message that carries all events of an append.

An envelope is checked when it is built and again when it is read; an incomplete one never reaches
the log. ``producer`` and ``ingest_time`` say who and when and stay outside the content checksum, so
that the same content written elsewhere has the same checksum.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from noetl_ray.errors import EnvelopeError
from noetl_ray.events.canonical import canonical_ordered, sha256_hex
from noetl_ray.events.types import (
    NEEDS_COMMAND_ID,
    NEEDS_FRAME_ID,
    NEEDS_IDEMPOTENCY_KEY,
    REQUIRED_PAYLOAD,
    RESULT_BEARING,
    AggregateType,
    EventType,
)
from noetl_ray.events.upcast import SCHEMA_NAME, SCHEMA_VERSION, UpcasterRegistry, registry

EVENTS_PER_RECORD_MAX = 256
RECORD_BYTES_MAX = 900_000
BIGINT_MAX = (1 << 63) - 1

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_REQUIRED = ("tenant_id", "organization_id", "stream_id", "aggregate_id", "producer")


class PayloadRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Immutable bytes outside the log that belong to an event."""

    # Fields in the order of their names, for `canonical_ordered`: here and in the next two.
    bytes: int | None = None
    media_type: str
    sha256: str
    uri: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One fact. ``execution_id`` 0 means the event is about the system, not about an execution."""

    aggregate_id: str
    aggregate_type: AggregateType
    causation_id: int | None = None
    command_id: str | None = None
    correlation_id: str | None = None
    envelope_checksum: str = ""
    event_id: int
    event_time: str
    event_type: EventType
    execution_id: int
    frame_id: str | None = None
    idempotency_key: str | None = None
    ingest_time: str | None = None
    meta: dict[str, Any] = {}
    organization_id: str
    payload: dict[str, Any]
    payload_ref: PayloadRef | None = None
    prev_event_id: int | None = None
    producer: str
    schema_name: str = SCHEMA_NAME
    schema_version: int = SCHEMA_VERSION
    stage_id: str | None = None
    stream_id: str
    tenant_id: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One append: its events, and the log positions the decision consumed (P4)."""

    consumed: tuple[int, ...] = ()
    events: tuple[Event, ...]
    v: int = 1


class _RawRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose events are of any version."""

    events: tuple[dict[str, Any], ...]
    consumed: tuple[int, ...] = ()
    v: int = 1


_decoder = msgspec.json.Decoder(Record)
_raw_decoder = msgspec.json.Decoder(_RawRecord)


def checksum_of(event: Event) -> str:
    """SHA-256 over the canonical content of an event, without who wrote it and when it arrived."""
    bare = msgspec.structs.replace(event, envelope_checksum="", ingest_time=None, producer="")
    return sha256_hex(canonical_ordered(bare))


def seal(event: Event) -> Event:
    """Check an event just made, stamp its checksum and give it back.

    Raises:
        EnvelopeError: the envelope is incomplete or contradicts itself.
    """
    check_envelope(event)
    # Nobody else has seen it yet, and a copy would cost as much as the checksum.
    msgspec.structs.force_setattr(event, "envelope_checksum", checksum_of(event))
    return event


def check_envelope(event: Event) -> None:
    """Refuse an incomplete envelope, naming the field."""
    kind = event.event_type
    if not 0 < event.event_id <= BIGINT_MAX:
        _refuse(event, "event_id", "must be a positive BIGINT")
    if not 0 <= event.execution_id <= BIGINT_MAX:
        _refuse(event, "execution_id", "must be a BIGINT")
    if not (
        event.tenant_id
        and event.organization_id
        and event.stream_id
        and event.aggregate_id
        and event.producer
    ):
        empty = next(name for name in _REQUIRED if not getattr(event, name))
        _refuse(event, empty, "is required")
    if not _is_time(event.event_time):
        _refuse(event, "event_time", "must be UTC with milliseconds")
    for key in REQUIRED_PAYLOAD.get(kind, ()):
        if key not in event.payload:
            _refuse(event, f"payload.{key}", "is required")
    if kind in NEEDS_COMMAND_ID and not event.command_id:
        _refuse(event, "command_id", "is required")
    if kind in NEEDS_FRAME_ID:
        for name in ("frame_id", "stage_id", "command_id"):
            if not getattr(event, name):
                _refuse(event, name, "is required")
    if kind in NEEDS_IDEMPOTENCY_KEY and not event.idempotency_key:
        _refuse(event, "idempotency_key", "is required")
    if kind in RESULT_BEARING and "result" in event.payload:
        _check_result(event)
    if event.payload_ref is not None and not event.payload_ref.uri.startswith("noetl://"):
        _refuse(event, "payload_ref.uri", "must name a durable noetl:// object")


def encode_record(record: Record) -> bytes:
    """Canonical bytes of a record, refused when over the limits of one message (P6)."""
    if not 0 < len(record.events) <= EVENTS_PER_RECORD_MAX:
        msg = f"a record holds 1..{EVENTS_PER_RECORD_MAX} events, not {len(record.events)}"
        raise EnvelopeError(msg)
    data = canonical_ordered(record)
    if len(data) > RECORD_BYTES_MAX:
        msg = f"a record of {len(data)} bytes is over {RECORD_BYTES_MAX}; bodies belong in the tier"
        raise EnvelopeError(msg)
    return data


def decode_record(data: bytes | msgspec.Raw, upcasters: UpcasterRegistry | None = None) -> Record:
    """Read a record back, its events lifted to their newest version (UPC-1).

    Args:
        data: What was stored.
        upcasters: Another registry than that of this process.

    Raises:
        EnvelopeError: the bytes are not a record of this schema.
    """
    known = registry() if upcasters is None else upcasters
    try:
        record = _decoder.decode(data)
    except msgspec.DecodeError as error:
        # Perhaps only this version cannot read it: its type may have another name today.
        return _lifted(data, known, error)
    for event in record.events:
        if not known.is_newest(event.schema_name, event.schema_version):
            return _lifted(data, known, None)
    return record


def _lifted(
    data: bytes | msgspec.Raw, known: UpcasterRegistry, error: msgspec.DecodeError | None
) -> Record:
    """The slow way: event by event, from plain mappings."""
    try:
        raw = _raw_decoder.decode(data)
        events = [known.lift(event) for event in raw.events]
        changed = any(new is not old for new, old in zip(events, raw.events, strict=True))
        if error is not None and not changed:
            raise error
        return Record(
            events=tuple(msgspec.convert(event, Event) for event in events),
            consumed=raw.consumed,
            v=raw.v,
        )
    except msgspec.DecodeError as problem:
        msg = f"not an event record: {problem}"
        raise EnvelopeError(msg) from None


@lru_cache(maxsize=256)
def _is_time(text: str) -> bool:
    """Events of one decision share their time, and those of one moment too."""
    return _TIME.fullmatch(text) is not None


def _check_result(event: Event) -> None:
    result = event.payload["result"]
    if not isinstance(result, dict) or "status" not in result or "reference" not in result:
        _refuse(event, "payload.result", "must hold status and reference")
    reference = result["reference"]
    if isinstance(reference, dict) and "uri" not in reference:
        _refuse(event, "payload.result.reference", "an IPC hint alone is not durable")


def _refuse(event: Event, field: str, reason: str) -> None:
    msg = f"{event.event_type} refused: {field} {reason}"
    raise EnvelopeError(msg)
