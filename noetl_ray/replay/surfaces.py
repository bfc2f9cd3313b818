"""The six surfaces of an execution and their checksums (VAL-1): pure, one module for everybody.

Two sides hold the same rows when their checksums agree: what the log gives when it is folded, and
what a read model holds. Rows are normalised first (VAL-2): sorted by their own key, without what
says only when and in which batch they were written. No I/O here: whoever compares brings rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.clock import iso_utc
from noetl_ray.engine.state import parse_state
from noetl_ray.errors import InternalError
from noetl_ray.events.canonical import digest
from noetl_ray.events.upcast import registry
from noetl_ray.readmodel.frames import fold_frames, fold_stages
from noetl_ray.readmodel.projecting import ExecutionKey, project_records
from noetl_ray.readmodel.records import ExecutionRows
from noetl_ray.readmodel.rows import fold_commands
from noetl_ray.replay.history import normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl_ray.wal.port import Recorded

SURFACES = ("execution", "stages", "frames", "commands", "business_objects", "loops")
CHECKSUM_ALGORITHM = "sha256"

_SCOPE = frozenset({"tenant_id", "organization_id", "execution_id"})
_WRITTEN = frozenset({"updated_at", "checksum"})
"""When a row was written, and a checksum that a later program would make of other bytes."""
_NUL = "\ufffd"

Surfaces = dict[str, Any]
"""Normalised rows by surface, of JSON shape."""


def rows_of_records(
    records: Sequence[Recorded],
    *,
    as_of: int | None = None,
    start: ExecutionRows | None = None,
) -> ExecutionRows | None:
    """The rows of one execution from its records, by the projector's own functions.

    Args:
        records: All records of the execution, in order of position; those after ``start``.
        as_of: The last position that counts; None takes all.
        start: What the records before these came to.

    Raises:
        InternalError: the records speak of several executions, or contradict each other.
    """
    taken = [r for r in records if as_of is None or r.position <= as_of]
    if not taken:
        return start
    before = {_key_of(start): parse_state(start.state)} if start is not None else {}
    made = project_records(taken, before)
    if made.fold_errors:
        raise InternalError(made.fold_errors[0])
    rows, kept = made.execution_rows(updated_at=iso_utc(0), lag_ms=0)
    if not rows and start is not None:
        # Nothing of it changed the state.
        row, state = start.execution, start.state
    elif len(rows) != 1:
        msg = f"records of one execution expected, found {len(rows)}"
        raise InternalError(msg)
    else:
        row, state = rows[0], kept[0].state
    return ExecutionRows(
        execution=row,
        state=state,
        registry_digest=registry().digest,
        position=taken[-1].position,
        commands=fold_commands([*(start.commands if start else ()), *made.commands]),
        stages=fold_stages([*(start.stages if start else ()), *made.stages]),
        frames=fold_frames([*(start.frames if start else ()), *made.frames]),
        objects=(*(start.objects if start else ()), *made.objects),
    )


def _key_of(rows: ExecutionRows) -> ExecutionKey:
    row = rows.execution
    return (row.tenant_id, row.organization_id, row.execution_id)


def surfaces_of(rows: ExecutionRows) -> Surfaces:
    """The rows of an execution, normalised, by surface."""
    execution = _plain(rows.execution, leave=_WRITTEN)
    steps = execution.pop("steps")
    return {
        "execution": execution
        | {
            "steps": {name: _without(step, "loop", "frames") for name, step in steps.items()},
            "state": _cleaned(normalised(parse_state(rows.state))),
            "upcaster_registry_digest": rows.registry_digest,
        },
        "stages": _sorted(rows.stages, "stage_id"),
        "frames": _sorted(rows.frames, "frame_id"),
        "commands": _sorted(rows.commands, "command_id"),
        "business_objects": _sorted(rows.objects, "object_type", "object_id", "version"),
        "loops": [
            {
                "step": name,
                "visits": step.get("visits"),
                "status": step.get("status"),
                "loop": step.get("loop"),
                "frames": step.get("frames"),
            }
            for name, step in sorted(steps.items())
            if "loop" in step or "frames" in step
        ],
    }


def bundle_of(surfaces: Mapping[str, Any]) -> dict[str, str]:
    """The six checksums, each comparable by itself."""
    return {name: digest(surfaces[name]) for name in SURFACES}


def checksum_of_bundle(bundle: Mapping[str, str]) -> str:
    """One checksum over the six."""
    return digest({name: bundle[name] for name in SURFACES})


def first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where two sides first differ: surface, path within it, and both values; None when equal."""
    for name in SURFACES:
        found = _differs(ours[name], theirs[name], "")
        if found is not None:
            path, mine, other = found
            return {"surface": name, "path": path, "replay": mine, "live": other}
    return None


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The surfaces whose checksums do not agree."""
    return [name for name in SURFACES if ours.get(name) != theirs.get(name)]


def _plain(row: msgspec.Struct, leave: frozenset[str]) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(row)
    return {key: _cleaned(value) for key, value in data.items() if key not in leave}


def _without(step: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key not in names}


def _sorted(rows: Sequence[msgspec.Struct], *keys: str) -> list[dict[str, Any]]:
    plain = [_plain(row, leave=_SCOPE) for row in rows]
    return sorted(plain, key=lambda row: tuple(row[key] for key in keys))


def _cleaned(value: Any) -> Any:
    """Postgres cannot hold the NUL character; a read model has this one in its place."""
    if isinstance(value, str):
        return value.replace("\0", _NUL) if "\0" in value else value
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return value


def _differs(mine: Any, other: Any, path: str) -> tuple[str, Any, Any] | None:
    if isinstance(mine, dict) and isinstance(other, dict):
        for key in sorted(mine.keys() | other.keys()):
            found = _differs(mine.get(key), other.get(key), f"{path}.{key}" if path else key)
            if found is not None:
                return found
        return None
    if isinstance(mine, list) and isinstance(other, list):
        for index, (one, two) in enumerate(zip(mine, other, strict=False)):
            found = _differs(one, two, f"{path}[{index}]")
            if found is not None:
                return found
        if len(mine) != len(other):
            return f"{path}[{min(len(mine), len(other))}]", *_beyond(mine, other)
        return None
    # 1 and 1.0 and True are equal to Python, and different bytes.
    return None if digest(mine) == digest(other) else (path, mine, other)


def _beyond(mine: list[Any], other: list[Any]) -> tuple[Any, Any]:
    place = min(len(mine), len(other))
    return (mine[place] if place < len(mine) else None), (
        other[place] if place < len(other) else None
    )
