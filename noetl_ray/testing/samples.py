"""Small valid events and records for tests of everything that handles them.

Owns no meaning: the events say as little as the envelope allows. Refuses nothing itself; an
override that breaks the envelope is refused by the envelope's own check.
"""

from __future__ import annotations

from typing import Any

import msgspec

from noetl_ray.events.envelope import Event, Record, seal
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.scope import Scope
from noetl_ray.wal.subjects import control_subject

SAMPLE_TIME = "2026-01-02T03:04:05.678Z"


def sample_event(event_id: int = 1, **overrides: Any) -> Event:
    """A sealed ``step.enter`` of execution 7; any field may be given another value."""
    fields: dict[str, Any] = {
        "event_id": event_id,
        "tenant_id": "default",
        "organization_id": "default",
        "execution_id": 7,
        "stream_id": "execution-7",
        "aggregate_id": "7",
        "aggregate_type": AggregateType.EXECUTION,
        "event_type": EventType.STEP_ENTER,
        "event_time": SAMPLE_TIME,
        "producer": "sample",
        "payload": {"step": "start", "visit": 1},
    }
    return seal(Event(**(fields | overrides)))


def sample_record(
    first_event_id: int = 1, *, events: int = 1, consumed: tuple[int, ...] = (), **overrides: Any
) -> Record:
    """A record of consecutive sample events; its message id is the first event id."""
    made = tuple(sample_event(first_event_id + index, **overrides) for index in range(events))
    return Record(events=made, consumed=consumed)


def sample_record_of_bytes(first_event_id: int, size: int) -> Record:
    """A record whose encoding is a little over ``size`` bytes."""
    event = sample_event(first_event_id)
    padded = msgspec.structs.replace(event, payload={**event.payload, "padding": "x" * size})
    return Record(events=(seal(padded),))


def sample_subject(execution_id: int = 7, *, shard: int = 0) -> str:
    """The control subject of an execution of the default tenant."""
    return control_subject(shard, Scope(), execution_id)
