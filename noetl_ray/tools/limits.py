"""Time limits out of a task's config, and how long a retry waits for who asked it to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRY_AFTER_MAX_S = 600.0
"""A server may ask for more; it does not get it."""


def after_retry_after(delay_s: float, error: Mapping[str, Any] | None) -> float:
    """A policy's delay, or what the refusing server asked for when that is longer (bounded)."""
    asked = error.get("retry_after") if error else None
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked > 0:
        return delay_s
    return max(delay_s, min(float(asked), RETRY_AFTER_MAX_S))


def added_up(given: Any) -> Any:
    """A limit as one number; {connect: 5, read: 15}, as some playbooks write, is added up."""
    if not isinstance(given, dict):
        return given
    parts = [part for part in given.values() if type(part) in (int, float)]
    return sum(parts) if parts and len(parts) == len(given) else given


def time_limit_s(
    config: dict[str, Any], context_s: float | None, default_s: float | None = None
) -> float | None:
    """The shortest of what task and context allow; ``default_s`` when the task says nothing."""
    given = config.get("timeout_seconds")
    if given in (None, ""):
        given = config.get("timeout")
    given = added_up(given)
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
