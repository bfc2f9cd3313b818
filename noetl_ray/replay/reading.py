"""Reads the records of one execution from the log, and turns a moment into a position.

The log alone is asked, so this works while the read model is away or wrong. A filtered read of a
large log takes its time (P9): replay is for looking, nothing that runs waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.errors import NotFoundError
from noetl_ray.events.types import AggregateType
from noetl_ray.wal.subjects import execution_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Log, Recorded


async def read_execution(log: Log, scope: Scope, execution_id: int) -> list[Recorded]:
    """All records of an execution in order of position.

    Raises:
        NotFoundError: this scope has no such execution.
    """
    found = {r.position: r async for r in log.read(execution_filter(scope, execution_id))}
    for recorded in list(found.values()):
        if recorded.record.events[0].aggregate_type is AggregateType.EXECUTION:
            # A request with an idempotency key lies under the key's name; only the decision that
            # took it knows where (P11).
            for position in recorded.record.consumed:
                if position not in found:
                    request = await log.get(position)
                    if request is not None:
                        found[position] = request
    if not found:
        msg = f"the log has no execution {execution_id} of this tenant"
        raise NotFoundError(msg)
    return [found[position] for position in sorted(found)]


def position_at_time(records: Sequence[Recorded], time_ms: int) -> int:
    """The last position whose record was in the log by then, 0 when none was."""
    return max((r.position for r in records if r.time_ms <= time_ms), default=0)


def position_of_event(records: Sequence[Recorded], event_id: int) -> int:
    """The position of the record that holds an event; a record counts whole or not at all.

    Raises:
        NotFoundError: no record of this execution holds it.
    """
    for recorded in records:
        if any(event.event_id == event_id for event in recorded.record.events):
            return recorded.position
    msg = f"this execution has no event {event_id}"
    raise NotFoundError(msg)
