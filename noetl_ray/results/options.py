"""What `output:` of a task asks of its result's storage (section 13, RES-2).

Reads playbook data leniently, since nothing here changes what a result is, only where it lies and
how long it is wanted. `store` and `compression` have no effect: there is one store, and tables lie
uncompressed so that readers map them without a copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl_ray.events.canonical import canonical_json
from noetl_ray.results.extracted import EXTRACTED_MIN_BYTES
from noetl_ray.results.garbage import Keep, ResultScope

if TYPE_CHECKING:
    from collections.abc import Iterable

SELECTED_BYTES_MAX = 16_384
"""Selected fields lie in the event; more than this stays in the object."""

_ABSENT: Any = object()
_SCOPES: dict[str, ResultScope] = {
    "step": "step",
    "execution": "execution",
    "workflow": "workflow",
    "permanent": "permanent",
}
_TTL = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])?")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_TTL_S_MAX = 1e10


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """How one result is to be stored."""

    inline_max_bytes: int | None = None
    """Results above this go to an object; never more than the configured budget."""
    select: tuple[tuple[str, str], ...] = ()
    """Path and name of what stays readable by name when the rest goes to an object."""
    preview_max_bytes: int | None = None
    """The size of the preview a reference shows; the extracted block without it."""
    scope: ResultScope = "execution"
    """What the result lives as long as."""
    ttl_ms: int | None = None
    """After which time it may be collected, counted from its completion."""

    def keep(self, now_ms: int) -> Keep | None:
        """What the garbage collector must be told; None when that is what it does anyway."""
        if self.ttl_ms is None and self.scope in {"execution", "workflow"}:
            return None
        until = None if self.ttl_ms is None else now_ms + self.ttl_ms
        return Keep(scope=self.scope, expires_ms=until)


NO_OPTIONS = StorageOptions()


def storage_options(outputs: Iterable[Mapping[str, Any]]) -> StorageOptions:
    """The options of a step's result: of its last task that says something."""
    chosen: Mapping[str, Any] = {}
    for output in outputs:
        chosen = output or chosen
    if not chosen:
        return NO_OPTIONS
    budget = chosen.get("inline_max_bytes")
    inner = chosen.get("store")
    store = inner if isinstance(inner, Mapping) else {}
    given = chosen.get("output_select", chosen.get("select"))
    return StorageOptions(
        inline_max_bytes=budget if type(budget) is int and budget >= 0 else None,
        select=tuple(filter(None, map(_selection, given))) if isinstance(given, list) else (),
        preview_max_bytes=_preview_bytes(chosen.get("preview_max_bytes", chosen.get("preview"))),
        scope=_SCOPES.get(str(chosen.get("scope", store.get("scope"))), "execution"),
        ttl_ms=_milliseconds(chosen.get("ttl", store.get("ttl"))),
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


def _preview_bytes(given: Any) -> int | None:
    if isinstance(given, Mapping):
        given = given.get("max_bytes")
    return given if type(given) is int and given >= EXTRACTED_MIN_BYTES else None


def _milliseconds(given: Any) -> int | None:
    """Seconds as a number, or as text with a unit: ``90``, ``30m``, ``24h``, ``7d``."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        text, unit = str(given), "s"
    else:
        match = _TTL.fullmatch(str(given or "").strip().lower())
        if match is None:
            return None
        text, unit = match[1], match[2] or "s"
    seconds = float(text) * _UNITS[unit]
    return int(seconds * 1_000) if 0 <= seconds < _TTL_S_MAX else None


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
