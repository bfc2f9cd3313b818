"""Business objects as rows: from the events that speak of them, pure, for every adapter alike.

An object may be spoken of by many executions, on shards that are projected apart and out of step.
So every statement stands for itself: the newest one, by its version, is the object as it is, and
the order in which they arrive does not matter (PRS-2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.events.types import EventType
from noetl_ray.readmodel.records import BusinessObjectRow, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.events.envelope import Event
    from noetl_ray.scope import Scope

ORDINAL_BITS = 8
"""A record holds at most 256 events."""


def version_of(position: int, ordinal: int) -> int:
    """The version a statement at this place of the log gives its object."""
    return position << ORDINAL_BITS | ordinal


def object_row(event: Event, position: int, ordinal: int) -> BusinessObjectRow | None:
    """The row of a statement about an object; None for any other event."""
    if event.event_type is not EventType.BUSINESS_OBJECT_RECORDED:
        return None
    payload = event.payload
    return BusinessObjectRow(
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        object_type=payload["type"],
        object_id=payload["id"],
        version=version_of(position, ordinal),
        status=payload.get("status"),
        attributes=payload.get("attributes") or {},
        recorded_at=event.event_time,
        event_id=event.event_id,
        execution_id=event.execution_id,
        command_id=event.command_id or "",
        step=payload.get("step"),
        visit=payload.get("visit"),
        task=payload.get("task"),
        reference=payload.get("reference"),
    )


def newest_objects(rows: Iterable[BusinessObjectRow]) -> tuple[BusinessObjectRow, ...]:
    """One row per object out of many statements: the fold of business objects (RPL-3)."""
    newest: dict[tuple[str, str, str, str], BusinessObjectRow] = {}
    for row in rows:
        key = (row.tenant_id, row.organization_id, row.object_type, row.object_id)
        held = newest.get(key)
        if held is None or held.version < row.version:
            newest[key] = row
    return tuple(newest.values())


def is_about(
    row: BusinessObjectRow,
    scope: Scope,
    object_type: str | None,
    object_id: str | None,
    before: int | None,
) -> bool:
    """Whether a statement is one of those asked for; None asks for all."""
    return (
        scope_of(row) == scope
        and object_type in (None, row.object_type)
        and object_id in (None, row.object_id)
        and (before is None or row.version < before)
    )
