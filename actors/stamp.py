"""Builds the envelopes roles append outside decisions.

About workers, and on commands' own subjects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.clock import iso_utc
from noetl_ray.events.envelope import Event, PayloadRef, seal
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.results.redact import mask
from noetl_ray.scope import DEFAULT, Scope
from noetl_ray.wal.subjects import command_subject, frame_subject, worker_subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl_ray.results.redact import Redactor
    from noetl_ray.tools.business_object import BusinessObject


def system_event(
    kind: EventType,
    worker_id: str,
    payload: dict[str, Any],
    *,
    event_id: int,
    now_ms: int,
    producer: str,
    prev_event_id: int | None = None,
) -> Event:
    """An event about a worker; it belongs to no execution."""
    return seal(
        Event(
            event_id=event_id,
            tenant_id=DEFAULT,
            organization_id=DEFAULT,
            execution_id=0,
            stream_id=worker_subject(worker_id),
            aggregate_id=f"worker/{worker_id}",
            aggregate_type=AggregateType.WORKER,
            event_type=kind,
            event_time=iso_utc(now_ms),
            producer=producer,
            payload=payload,
            prev_event_id=prev_event_id,
            correlation_id=payload.get("incarnation"),
        )
    )


def shard_event(
    kind: EventType,
    shard: int,
    subject: str,
    payload: dict[str, Any],
    *,
    event_id: int,
    now_ms: int,
    producer: str,
    prev_event_id: int | None = None,
) -> Event:
    """An event about a shard: who owns it, or up to where it is kept."""
    return seal(
        Event(
            event_id=event_id,
            tenant_id=DEFAULT,
            organization_id=DEFAULT,
            execution_id=0,
            stream_id=subject,
            aggregate_id=f"shard/{shard}",
            aggregate_type=AggregateType.SHARD,
            event_type=kind,
            event_time=iso_utc(now_ms),
            producer=producer,
            payload=payload,
            prev_event_id=prev_event_id,
        )
    )


def command_event(
    kind: EventType,
    payload: dict[str, Any],
    *,
    scope: Scope,
    shard: int,
    execution_id: int,
    command_id: str,
    attempt: int,
    event_id: int,
    now_ms: int,
    producer: str,
    prev_event_id: int,
    causation_id: int | None = None,
    payload_ref: PayloadRef | None = None,
    stage_id: str | None = None,
) -> Event:
    """An event on a command's own subject, or with a stage on that of a frame.

    What a task says about an object is about that object.
    """
    subject = command_subject if stage_id is None else frame_subject
    aggregate = AggregateType.COMMAND if stage_id is None else AggregateType.FRAME
    name = f"{aggregate.value}/{command_id}"
    key = f"{command_id}/{attempt}/{kind.value}"
    if kind is EventType.BUSINESS_OBJECT_RECORDED:
        aggregate = AggregateType.BUSINESS_OBJECT
        name = f"business_object/{payload['type']}/{payload['id']}"
        key = f"{key}/{payload['ordinal']}"
    return seal(
        Event(
            event_id=event_id,
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            execution_id=execution_id,
            stream_id=subject(shard, scope, execution_id, command_id),
            aggregate_id=name,
            aggregate_type=aggregate,
            event_type=kind,
            event_time=iso_utc(now_ms),
            producer=producer,
            payload=payload,
            causation_id=causation_id,
            correlation_id=str(execution_id),
            idempotency_key=key,
            prev_event_id=prev_event_id,
            command_id=command_id,
            payload_ref=payload_ref,
            stage_id=stage_id,
            frame_id=command_id if stage_id is not None else None,
        )
    )


def object_events(
    objects: Sequence[BusinessObject],
    base: Mapping[str, Any],
    reference: Mapping[str, Any] | None,
    shown: Redactor,
) -> list[tuple[EventType, dict[str, Any]]]:
    """The payloads of a command's statements, without secrets; ``base`` says step and visit."""
    return [
        (
            EventType.BUSINESS_OBJECT_RECORDED,
            {
                **base,
                "type": shown.text(each.type),
                "id": shown.text(each.id),
                "status": None if each.status is None else shown.text(each.status),
                "attributes": mask(shown.value(each.attributes)),
                "task": each.task,
                "ordinal": ordinal,
                "reference": reference,
            },
        )
        for ordinal, each in enumerate(objects)
    ]
