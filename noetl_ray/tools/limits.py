"""Reading time limits out of a task's config; nothing else."""

from __future__ import annotations

from typing import Any

from noetl_ray.errors import ToolError


def time_limit_s(
    config: dict[str, Any], context_s: float | None, default_s: float | None = None
) -> float | None:
    """The shortest of what task and context allow; ``default_s`` when the task says nothing."""
    given = config.get("timeout_seconds")
    if given in (None, ""):
        given = config.get("timeout")
    if given in (None, ""):
        limit = default_s
    else:
        try:
            limit = float(given)
        except (TypeError, ValueError):
            msg = f"timeout must be a number of seconds, not {given!r}"
            raise ToolError(msg, "schema") from None
        if not limit > 0:
            msg = f"timeout must be above 0, not {given!r}"
            raise ToolError(msg, "schema")
    if context_s is None:
        return limit
    return context_s if limit is None else min(limit, context_s)
