"""Builds the envelopes roles append outside decisions.

About workers, and on commands' own subjects.
"""

from __future__ import annotations

from typing import Any

from noetl_ray.clock import iso_utc
from noetl_ray.events.envelope import Event, seal
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.scope import DEFAULT, Scope
from noetl_ray.wal.subjects import command_subject, worker_subject


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
) -> Event:
    """An event on a command's own subject."""
    return seal(
        Event(
            event_id=event_id,
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            execution_id=execution_id,
            stream_id=command_subject(shard, scope, execution_id, command_id),
            aggregate_id=f"command/{command_id}",
            aggregate_type=AggregateType.COMMAND,
            event_type=kind,
            event_time=iso_utc(now_ms),
            producer=producer,
            payload=payload,
            causation_id=causation_id,
            correlation_id=str(execution_id),
            idempotency_key=f"{command_id}/{attempt}/{kind.value}",
            prev_event_id=prev_event_id,
            command_id=command_id,
        )
    )
