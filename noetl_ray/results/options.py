"""What `output:` of a task asks of its result's storage (section 13): budget and selected fields.

Reads playbook data leniently, since nothing here changes what a result is, only where it lies. What
it cannot use (`store`, `ttl`, `scope`) has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl_ray.events.canonical import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable

SELECTED_BYTES_MAX = 16_384
"""Selected fields lie in the event; more than this stays in the object."""

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """How one result is to be stored."""

    inline_max_bytes: int | None = None
    """Results above this go to an object; never more than the configured budget."""
    select: tuple[tuple[str, str], ...] = ()
    """Path and name of what stays readable by name when the rest goes to an object."""


NO_OPTIONS = StorageOptions()


def storage_options(outputs: Iterable[Mapping[str, Any]]) -> StorageOptions:
    """The options of a step's result: of its last task that says something."""
    chosen: Mapping[str, Any] = {}
    for output in outputs:
        chosen = output or chosen
    if not chosen:
        return NO_OPTIONS
    budget = chosen.get("inline_max_bytes")
    given = chosen.get("output_select", chosen.get("select"))
    return StorageOptions(
        inline_max_bytes=budget if type(budget) is int and budget >= 0 else None,
        select=tuple(filter(None, map(_selection, given))) if isinstance(given, list) else (),
    )


def selected(value: Any, select: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The selected parts by name, as far as they are there and small enough together."""
    found: dict[str, Any] = {}
    left = SELECTED_BYTES_MAX
    for path, name in select:
        part = _at(value, path)
        if part is _ABSENT:
            continue
        left -= len(canonical_json(part)) + len(name)
        if left < 0:
            break
        found[name] = part
    return found


def _selection(item: Any) -> tuple[str, str] | None:
    path = item.get("path") if isinstance(item, Mapping) else item
    if not isinstance(path, str) or not path.strip():
        return None
    path = path.strip().removeprefix("$.")
    name = item.get("as") if isinstance(item, Mapping) else None
    return path, str(name or path.rsplit(".", 1)[-1])


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif part in ("data", "result"):
            continue  # a step's own aliases
        else:
            return _ABSENT
    return value
