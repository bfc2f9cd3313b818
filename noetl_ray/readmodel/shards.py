"""Who owns a shard and how far it is kept, from the events that say so (PRJ-6, CKP-1).

A row is a projection and nothing else: owners are settled by the table of owners and by the log.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from noetl_ray.clock import iso_utc
from noetl_ray.events.types import EventType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.events.envelope import Event


class ShardRow(msgspec.Struct, frozen=True, kw_only=True):
    """A shard: its newest lease, and its newest checkpoint."""

    shard_id: int
    position: int
    """Where the newest of the events behind this row lies."""
    status: str | None = None
    """``leased`` or ``free``."""
    owner_runtime_id: str | None = None
    owner_instance: str | None = None
    epoch: int | None = None
    claimed_at: str | None = None
    leased_until: str | None = None
    """As the claim said; heartbeats are not events."""
    reason: str | None = None
    checkpoint_position: int | None = None
    checkpoint_event_id: int | None = None
    checkpoint_executions: int | None = None
    committed_at: str | None = None
    updated_at: str | None = None


def shard_row(event: Event, position: int) -> ShardRow | None:
    """What an event says of a shard; None for any other event."""
    payload = event.payload
    kind = event.event_type
    if kind is EventType.CHECKPOINT_COMMITTED and "shard" in payload:
        return ShardRow(
            shard_id=payload["shard"],
            position=position,
            checkpoint_position=payload["position"],
            checkpoint_event_id=payload.get("last_event_id"),
            checkpoint_executions=len(payload.get("executions", ())),
            committed_at=event.event_time,
            updated_at=event.event_time,
        )
    if kind not in (EventType.SHARD_CLAIMED, EventType.SHARD_RELEASED):
        return None
    claimed = kind is EventType.SHARD_CLAIMED
    return ShardRow(
        shard_id=payload["shard"],
        position=position,
        status="leased" if claimed else "free",
        owner_runtime_id=payload["owner"],
        owner_instance=payload["incarnation"],
        epoch=payload["epoch"],
        claimed_at=event.event_time if claimed else None,
        leased_until=_later(event.event_time, payload["lease_ms"]) if claimed else event.event_time,
        reason=payload["reason"],
        updated_at=event.event_time,
    )


def merge_shard(old: ShardRow, new: ShardRow) -> ShardRow:
    """A change over an older row: what it says nothing of stays."""
    said = {
        name: value
        for name in ShardRow.__struct_fields__
        if (value := getattr(new, name)) is not None
    }
    return msgspec.structs.replace(old, **said)


def fold_shards(rows: Iterable[ShardRow]) -> tuple[ShardRow, ...]:
    """One change per shard."""
    merged: dict[int, ShardRow] = {}
    for row in rows:
        held = merged.get(row.shard_id)
        merged[row.shard_id] = merge_shard(held, row) if held else row
    return tuple(merged.values())


def _later(time: str, more_ms: int) -> str:
    until = datetime.fromisoformat(time) + timedelta(milliseconds=more_ms)
    return iso_utc(int(until.timestamp() * 1000))
