"""Reads the records of one execution from the log, and turns a moment into a position.

The log is asked, and the archive for what the log was relieved of, so this works while the read
model is away or wrong. A filtered read of a large log takes its time (P9): replay is for looking,
nothing that runs waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.errors import NotFoundError
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.wal.subjects import execution_filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl_ray.replay.archive import Archive
    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Log, Recorded


async def read_execution(
    log: Log, scope: Scope, execution_id: int, archive: Archive | None = None
) -> list[Recorded]:
    """All records of an execution in order of position.

    Args:
        log: Where they are, or the last of each subject when the rest was archived.
        scope: Whose execution it is.
        execution_id: Which one.
        archive: Where the rest may be; it is asked only when the log lacks something.

    Raises:
        NotFoundError: this scope has no such execution.
    """
    found = {r.position: r async for r in log.read(execution_filter(scope, execution_id))}
    lacks = not found
    for recorded in list(found.values()):
        if recorded.record.events[0].aggregate_type is AggregateType.EXECUTION:
            # A request with an idempotency key lies under the key's name; only the decision that
            # took it knows where (P11).
            for position in recorded.record.consumed:
                if position not in found:
                    request = await log.get(position)
                    lacks |= request is None
                    if request is not None:
                        found[position] = request
    if archive is not None and (lacks or not _begins(found.values())):
        for recorded in await archive.records(scope, execution_id) or ():
            found[recorded.position] = recorded
    if not found:
        msg = f"the log has no execution {execution_id} of this tenant"
        raise NotFoundError(msg)
    return [found[position] for position in sorted(found)]


async def read_after(log: Log, scope: Scope, execution_id: int, position: int) -> list[Recorded]:
    """The records of an execution after a position, in order; none when there are none."""
    found = log.read(execution_filter(scope, execution_id), from_position=position + 1)
    return sorted([each async for each in found], key=lambda each: each.position)


def _begins(records: Iterable[Recorded]) -> bool:
    """Whether the decision that started the execution is among its records."""
    return any(
        event.event_type is EventType.PLAYBOOK_INITIALIZED
        for recorded in records
        for event in recorded.record.events
    )


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
