"""Executions of which the log holds only the end, made whole from the archive for the read model.

A read model that is built anew meets them: the records before the end were archived and trimmed.
Owns putting their rows in place of the stubs. What no archive has stays as the log tells it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.events.types import AggregateType
from noetl_ray.readmodel.projecting import key_of, project_records
from noetl_ray.scope import scope_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.readmodel.projecting import ExecutionKey, Projected
    from noetl_ray.replay.archive import Archive
    from noetl_ray.wal.port import Recorded


async def restore_trimmed(
    made: Projected,
    before: Mapping[ExecutionKey, ExecutionState | None],
    records: Sequence[Recorded],
    archive: Archive,
) -> None:
    """Fold trimmed executions from their archived records, when their first remnant is met.

    Args:
        made: What ``records``, and others before them, have made.
        before: The states from before all of that.
        records: Of the log, just projected.
        archive: Where the others are.

    Raises:
        StoreError: the archive cannot be read; the turn is made again.
    """
    for key in _remnants(made, before, records):
        kept = await archive.records(scope_of(key[0], key[1]), key[2])
        if kept is None:
            continue
        _drop(made, key)
        project_records(kept, {}, made)
        # Single events of an archived execution are the archive's; the table stays relieved.
        made.events = [row for row in made.events if key_of(row.event) != key]


def _remnants(
    made: Projected,
    before: Mapping[ExecutionKey, ExecutionState | None],
    records: Sequence[Recorded],
) -> list[ExecutionKey]:
    """Executions of which a decision is missing before what a worker said, or before the end."""
    found: dict[ExecutionKey, None] = {}
    for recorded in records:
        event = recorded.record.events[0]
        if event.execution_id == 0:
            continue
        state = made.states.get(key_of(event)) or before.get(key_of(event))
        begun = state is not None and state.control_version > 0
        if (state is not None and state.trimmed) or (
            not begun and event.aggregate_type in (AggregateType.COMMAND, AggregateType.FRAME)
        ):
            found[key_of(event)] = None
    return list(found)


def _drop(made: Projected, key: ExecutionKey) -> None:
    """What the end alone gave."""
    made.states.pop(key, None)
    made.first_event_ids.pop(key, None)
    made.commands = [row for row in made.commands if row.execution_id != key[2]]
    made.stages = [row for row in made.stages if row.execution_id != key[2]]
    made.frames = [row for row in made.frames if row.execution_id != key[2]]
    made.objects = [row for row in made.objects if row.execution_id != key[2]]
