"""What submitting rests on: the log, the object store, the placement, ids and time.

Refuses to know of HTTP, of the read model and of who asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.clock import Clock, iso_utc
from noetl_ray.events.envelope import Event, PayloadRef, Record, seal
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.shard import shard_of
from noetl_ray.payloads.port import ObjectStore
from noetl_ray.wal.port import Log

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Playbook
    from noetl_ray.events.types import AggregateType, EventType
    from noetl_ray.scope import Scope

PLAYBOOKS_CACHED_MAX = 256


class PlaybookCache:
    """Parsed playbooks by scope and digest; never wrong, because a digest is the content."""

    def __init__(self, size_max: int = PLAYBOOKS_CACHED_MAX) -> None:
        self._size_max = size_max
        self._held: OrderedDict[tuple[Scope, str], Playbook] = OrderedDict()

    def get(self, scope: Scope, digest: str) -> Playbook | None:
        """A playbook read or registered before."""
        found = self._held.get((scope, digest))
        if found is not None:
            self._held.move_to_end((scope, digest))
        return found

    def put(self, scope: Scope, playbook: Playbook) -> None:
        """Keep one, letting go of the one unused for longest."""
        self._held[scope, playbook.digest] = playbook
        if len(self._held) > self._size_max:
            self._held.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPorts:
    """Everything an append of a request needs."""

    log: Log
    objects: ObjectStore
    placement: Placement
    mint: Callable[[], int]
    clock: Clock
    producer: str
    playbooks: PlaybookCache = field(default_factory=PlaybookCache)

    def shard(self, scope: Scope, project_id: str, affinity: int | str) -> int:
        """The shard of an execution, or of an idempotency key."""
        count = self.placement.shard_count
        return shard_of(scope.tenant_id, project_id, affinity, count)

    def record(
        self,
        scope: Scope,
        subject: str,
        kind: EventType,
        payload: dict[str, Any],
        *,
        aggregate: tuple[AggregateType, str],
        idempotency_key: str,
        execution_id: int = 0,
        event_id: int | None = None,
        prev_event_id: int | None = None,
        payload_ref: PayloadRef | None = None,
        meta: dict[str, Any] | None = None,
        command_id: str | None = None,
        stage_id: str | None = None,
    ) -> Record:
        """One sealed event as a record; with a stage, its command is a frame."""
        event = Event(
            event_id=event_id if event_id is not None else self.mint(),
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            execution_id=execution_id,
            stream_id=subject,
            aggregate_type=aggregate[0],
            aggregate_id=aggregate[1],
            event_type=kind,
            event_time=iso_utc(self.clock.now_ms()),
            producer=self.producer,
            payload=payload,
            idempotency_key=idempotency_key,
            correlation_id=str(execution_id) if execution_id else None,
            prev_event_id=prev_event_id,
            payload_ref=payload_ref,
            meta=meta or {},
            command_id=command_id,
            stage_id=stage_id,
            frame_id=command_id if stage_id is not None else None,
        )
        return Record(events=(seal(event),))
