"""How a run's workload is made: the playbook's defaults with the request's payload on top.

Mappings are merged key by key at every depth; anything else is replaced. Nothing is rendered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl_ray.errors import UsageError

PROTECTED: frozenset[str] = frozenset({"execution_id", "catalog_id", "job"})
"""Names of the runtime itself. A workload may hold such keys, and `workload.job` reads them, but as
bare names they always mean the runtime's own values."""
DEPTH_MAX = 100


def merge_workload(defaults: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """The workload of a run; shares no container with either argument.

    Raises:
        UsageError: When the values are nested deeper than any template could use.
    """
    return _merged(defaults, payload, 0)


def seed_variables(workload: Mapping[str, Any]) -> dict[str, Any]:
    """What the variables of a run have over its workload: a mapping under `ctx`, merged into it.

    Every other name reads the workload for as long as nothing writes it.
    """
    extra = workload.get("ctx")
    if not isinstance(extra, Mapping):
        return {}
    return _merged({key: workload[key] for key in extra if key in workload}, extra, 0)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any], depth: int) -> dict[str, Any]:
    made = {key: _copied(item, depth + 1) for key, item in base.items() if key not in over}
    for key, item in over.items():
        below = base.get(key)
        if isinstance(item, Mapping) and isinstance(below, Mapping):
            _check_depth(depth)
            made[key] = _merged(below, item, depth + 1)
        else:
            made[key] = _copied(item, depth + 1)
    # Defaults first, in their own order, whether or not the payload replaced them.
    return {key: made[key] for key in (*base, *(k for k in over if k not in base))}


def _copied(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        _check_depth(depth)
        return {key: _copied(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        _check_depth(depth)
        return [_copied(item, depth + 1) for item in value]
    return value


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        msg = f"the workload is nested deeper than {DEPTH_MAX} levels"
        raise UsageError(msg)
