"""Where a read model left the log: the first difference of two sides and the event behind it.

Pure, for whoever has the records and the rows. A difference is one value at one place of one
surface; the event behind it is the first after which the log said something else there than the
read model says now. Refuses to guess: rows the log never gave have no such event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.events.canonical import digest
from noetl_ray.replay.surfaces import (
    bundle_of,
    differing,
    first_difference,
    rows_of_records,
    surfaces_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.events.envelope import Event
    from noetl_ray.readmodel.records import ExecutionRows
    from noetl_ray.replay.surfaces import Surfaces
    from noetl_ray.wal.port import Recorded

ROW_KEYS = {
    "stages": ("stage_id",),
    "frames": ("frame_id",),
    "commands": ("command_id",),
    "business_objects": ("object_type", "object_id", "version"),
    "loops": ("step",),
}
"""What names a row of a surface that is a list."""
WALK_MAX = 64
"""Up to so many records each prefix is folded; of more, those that halving asks for."""
_NOTHING = object()
_ABSENT = "-"


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of which log and read model do not say the same."""

    tenant_id: str
    organization_id: str
    execution_id: int
    surfaces: list[str]
    """All that differ."""
    surface: str
    path: str
    replay: Any
    live: Any
    position: int | None = None
    """Of the first diverging event; None when no event of the log explains the row."""
    event_id: int | None = None
    event_type: str | None = None


def compare(records: Sequence[Recorded], live: ExecutionRows) -> Divergence | None:
    """Hold the records of one execution against its rows; None when the six checksums agree.

    Args:
        records: All of the execution, in order of position; those after the rows' position do
            not count.
        live: The rows of the read model.

    Raises:
        InternalError: the records contradict each other.
    """
    taken = [recorded for recorded in records if recorded.position <= live.position]
    row = live.execution
    rows = rows_of_records(taken)
    if rows is None:
        return Divergence(
            tenant_id=row.tenant_id,
            organization_id=row.organization_id,
            execution_id=row.execution_id,
            surfaces=["execution"],
            surface="execution",
            path="",
            replay=None,
            live=row.status,
        )
    ours, theirs = surfaces_of(rows), surfaces_of(live)
    apart = differing(bundle_of(ours), bundle_of(theirs))
    if not apart:
        return None
    found = first_difference(ours, theirs)
    assert found is not None
    behind = _event_behind(taken, ours, theirs, found["surface"], found["path"])
    return Divergence(
        tenant_id=row.tenant_id,
        organization_id=row.organization_id,
        execution_id=row.execution_id,
        surfaces=apart,
        surface=found["surface"],
        path=found["path"],
        replay=found["replay"],
        live=found["live"],
        position=behind[0] if behind else None,
        event_id=behind[1].event_id if behind else None,
        event_type=str(behind[1].event_type) if behind else None,
    )


def _event_behind(
    records: Sequence[Recorded], ours: Surfaces, theirs: Surfaces, surface: str, path: str
) -> tuple[int, Event] | None:
    """Position and event after which the log left what the read model still says."""
    row, rest = _row_of(ours, theirs, surface, path)
    wanted = _said(theirs, surface, row, rest)
    final = _said(ours, surface, row, rest)
    if final == _ABSENT:
        return None

    def at(count: int) -> str:
        rows = rows_of_records(records[:count])
        return "" if rows is None else _said(surfaces_of(rows), surface, row, rest)

    if len(records) <= WALK_MAX:
        said = [at(count) for count in range(len(records) + 1)]
        # The last moment at which both sides agreed, else the one where the value was last set.
        agreed = [count for count, value in enumerate(said) if value == wanted and count]
        changed = [n for n in range(1, len(said)) if said[n] != said[n - 1]]
        place = agreed[-1] + 1 if agreed else (changed[-1] if changed else len(records))
        place = min(place, len(records))
    else:
        low, high = 0, len(records)
        while high - low > 1:
            middle = (low + high) // 2
            if at(middle) == final:
                high = middle
            else:
                low = middle
        place = high
    recorded = records[place - 1]
    return recorded.position, _within(recorded, row, path)


def _row_of(
    ours: Surfaces, theirs: Surfaces, surface: str, path: str
) -> tuple[tuple[Any, ...] | None, list[str]]:
    """Which row of a surface a path is in, by its own key, and the path below it."""
    keys = ROW_KEYS.get(surface)
    if keys is None:
        return None, path.split(".") if path else []
    mine, other = (
        {tuple(row[key] for key in keys) for row in side[surface]} for side in (ours, theirs)
    )
    if mine != other:
        # One side lacks a row, so the places of those after it say nothing.
        return min(mine ^ other), []
    index, _, rest = path.partition("]")
    place = int(index.lstrip("["))
    row = ours[surface][place]
    return tuple(row[key] for key in keys), [part for part in rest.split(".") if part]


def _said(surfaces: Surfaces, surface: str, row: tuple[Any, ...] | None, path: list[str]) -> str:
    """A digest of what a side says at a place; that of nothing where it has no such place."""
    value: Any = surfaces.get(surface)
    if row is not None:
        keys = ROW_KEYS[surface]
        value = next(
            (each for each in value or () if tuple(each[key] for key in keys) == row), _NOTHING
        )
    for part in path:
        if not isinstance(value, dict) or part not in value:
            # Deeper than names go, such as into a list: the whole of what holds it counts.
            break
        value = value[part]
    return _ABSENT if value is _NOTHING else digest(value)


def _within(recorded: Recorded, row: tuple[Any, ...] | None, path: str) -> Event:
    """The event of a record that speaks of a row or a step, else the last one."""
    events = recorded.record.events
    names = {str(part) for part in row or ()} | set(path.split("."))
    for event in events:
        about = {event.command_id, event.frame_id, event.stage_id, event.payload.get("step")}
        if about & names:
            return event
    return events[-1]
