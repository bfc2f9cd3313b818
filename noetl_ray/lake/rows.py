"""From records of the log to rows of the lake: pure, one record at a time.

Owns which event says what about which table. A record this version cannot read costs a row in
``unreadable``, never the build. Rows lie by partition: tenant, the day the execution was minted
(so that everything about an execution lies together), and for events the first word of the type.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.errors import EnvelopeError
from noetl_ray.events.envelope import Event, decode_record
from noetl_ray.events.types import EXECUTION_TERMINAL
from noetl_ray.events.types import EventType as E
from noetl_ray.lake.summaries import Summaries, moment, number, text
from noetl_ray.locator.keys import mint_date
from noetl_ray.wal.subjects import parse_event_subject

if TYPE_CHECKING:
    from noetl_ray.wal.port import Recorded

SYSTEM_SHARD = -1
MESSAGE_CHARS_MAX = 2_000
NO_TENANT = "-"

Partition = tuple[str, str, str, str]
"""Table, tenant, day, type; the type is empty where a table has none."""

_payload_json = msgspec.json.Encoder(order="deterministic")


class Rows:
    """Rows of some records, by partition."""

    def __init__(self) -> None:
        self.facts: dict[Partition, list[tuple[Any, ...]]] = {}
        self.summaries = Summaries()
        self.records = 0
        self.events = 0
        self.unreadable = 0

    def add(self, recorded: Recorded) -> None:
        """Take one record in."""
        self.records += 1
        try:
            record = decode_record(recorded.data)
        except EnvelopeError as error:
            self._refuse(recorded, str(error))
            return
        first = record.events[0]
        scope = (first.tenant_id, first.organization_id, first.execution_id)
        day = day_of(first.execution_id, recorded.time_ms)
        self._put(
            ("records", first.tenant_id, day, ""),
            (
                recorded.position,
                *scope,
                recorded.subject,
                recorded.time_ms,
                len(record.events),
                recorded.data,
            ),
        )
        shard = _shard(recorded.subject)
        for ordinal, event in enumerate(record.events):
            self.events += 1
            self._event(event, recorded.position, ordinal, shard, day)
        if first.execution_id:
            self.summaries.counted(first, day, recorded.position, record, len(recorded.data))

    def _event(self, event: Event, position: int, ordinal: int, shard: int, day: str) -> None:
        tenant = event.tenant_id
        payload = event.payload
        place = (position, ordinal, tenant, event.organization_id, event.execution_id)
        step, visit = text(payload.get("step")), number(payload.get("visit"))
        at = moment(event.event_time)
        kind = event.event_type
        self._put(
            ("events", tenant, day, kind.partition(".")[0]),
            (
                *place,
                event.event_id,
                kind,
                at,
                shard,
                event.aggregate_type,
                event.aggregate_id,
                step,
                visit,
                event.stage_id,
                event.frame_id,
                event.command_id,
                event.causation_id,
                event.idempotency_key,
                event.producer,
                event.schema_version,
                event.envelope_checksum,
                _payload_json.encode(payload).decode(),
            ),
        )
        if payload.get("error"):
            self._put(("errors", tenant, day, ""), _error(event, place, at, step, visit))
        for reference, tier in _references(event):
            self._put(
                ("results", tenant, day, ""),
                _result(event, place, at, step, visit, reference, tier),
            )
        if kind is E.BUSINESS_OBJECT_RECORDED:
            self._put(("business_objects", tenant, day, ""), _object(event, place, at, step, visit))
        if event.execution_id:
            self.summaries.add(event, day, position)

    def _refuse(self, recorded: Recorded, reason: str) -> None:
        """Keep the bytes, and say why nobody reads them."""
        self.unreadable += 1
        try:
            parsed = parse_event_subject(recorded.subject)
        except ValueError:
            parsed = None
        tenant = parsed.scope.tenant_id if parsed else NO_TENANT
        organization = parsed.scope.organization_id if parsed else NO_TENANT
        execution = int(parsed.execution) if parsed and parsed.execution.isdecimal() else 0
        day = day_of(execution, recorded.time_ms)
        start = (recorded.position, tenant, organization, execution)
        where = (recorded.subject, recorded.time_ms)
        self._put(("records", tenant, day, ""), (*start, *where, 0, recorded.data))
        self._put(("unreadable", tenant, day, ""), (*start, *where, reason[:MESSAGE_CHARS_MAX]))

    def _put(self, partition: Partition, row: tuple[Any, ...]) -> None:
        rows = self.facts.get(partition)
        if rows is None:
            rows = self.facts[partition] = []
        rows.append(row)


def day_of(execution_id: int, time_ms: int) -> str:
    """The UTC day of a partition: an execution's own, else when the record arrived."""
    return mint_date(execution_id) if execution_id else _day(time_ms // 86_400_000)


@lru_cache(maxsize=512)
def _day(days: int) -> str:
    return f"{datetime.fromtimestamp(days * 86_400, UTC):%Y-%m-%d}"


@lru_cache(maxsize=4096)
def _shard(subject: str) -> int:
    parsed = parse_event_subject(subject)
    return SYSTEM_SHARD if parsed is None else parsed.shard


def _error(
    event: Event, place: tuple[Any, ...], at: int, step: str | None, visit: int | None
) -> tuple[Any, ...]:
    given = event.payload["error"]
    error: dict[str, Any] = given if isinstance(given, dict) else {"message": str(given)}
    retryable = error.get("retryable")
    return (
        *place,
        event.event_type,
        at,
        step or text(error.get("step")),
        visit,
        text(event.payload.get("task") or error.get("task")),
        event.command_id,
        event.frame_id,
        text(error.get("kind")),
        text(error.get("code")),
        (text(error.get("message")) or "")[:MESSAGE_CHARS_MAX],
        retryable if isinstance(retryable, bool) else None,
        number(error.get("status_code")),
        number(event.payload.get("attempt")),
    )


def _references(event: Event) -> list[tuple[dict[str, Any], str | None]]:
    """The results an event names, each with its tier; a step's exit only repeats its call's."""
    if event.event_type is E.STEP_EXIT or event.event_type in EXECUTION_TERMINAL:
        return []
    found: list[tuple[dict[str, Any], str | None]] = []
    result = event.payload.get("result")
    if isinstance(result, dict) and isinstance(result.get("reference"), dict):
        found.append((result["reference"], text(result.get("tier"))))
    output = event.payload.get("output_ref")
    if isinstance(output, dict):
        found.append((output, "frame"))
    return found


def _result(
    event: Event,
    place: tuple[Any, ...],
    at: int,
    step: str | None,
    visit: int | None,
    reference: dict[str, Any],
    tier: str | None,
) -> tuple[Any, ...]:
    return (
        *place,
        event.event_type,
        at,
        step,
        visit,
        event.command_id,
        event.frame_id,
        text(reference.get("uri")),
        tier,
        text(reference.get("media_type")),
        number(reference.get("bytes")),
        number(reference.get("rows")),
        text(reference.get("sha256") or reference.get("digest")),
        text(reference.get("store")),
    )


def _object(
    event: Event, place: tuple[Any, ...], at: int, step: str | None, visit: int | None
) -> tuple[Any, ...]:
    payload = event.payload
    return (
        *place,
        at,
        text(payload["type"]),
        text(payload["id"]),
        text(payload.get("status")),
        _payload_json.encode(payload.get("attributes") or {}).decode(),
        step,
        visit,
        text(payload.get("task")),
        event.command_id,
    )
