"""The ``wait`` kind: goes on after a time, or at a moment. Nobody holds it meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from noetl_ray.errors import ToolError
from noetl_ray.tools.port import Parked, ToolContext, ToolResult
from noetl_ray.tools.waiting import TIMER, seconds_of

CONFIG_KEYS: frozenset[str] = frozenset({"for", "until", "message"})


class WaitTool:
    """Asks to go on when its time has come."""

    kind: ClassVar[str] = "wait"
    side_effects: ClassVar[bool] = False
    meta_key: ClassVar[str] = "wait"
    text_keys: ClassVar[frozenset[str]] = frozenset({"message"})

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Ask for the wait; whoever goes on says that it is over."""
        span, moment = config.get("for"), config.get("until")
        if (span in (None, "")) == (moment in (None, "")):
            msg = "a wait needs 'for' or 'until', one of them"
            raise ToolError(msg, "schema")
        about = str(config.get("message") or "")
        if moment not in (None, ""):
            raise Parked({"kind": TIMER, "until_ms": _moment_ms(moment), "about": about})
        raise Parked({"kind": TIMER, "after_s": seconds_of(span, "'for'"), "about": about})

    async def close(self) -> None:
        """Nothing is held."""


def _moment_ms(value: Any) -> int:
    """A moment as milliseconds since 1970: ISO text, in UTC where it says no zone; or seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value < 1e11:
            return int(value * 1000)
    else:
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            pass
        else:
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return int(zoned.timestamp() * 1000)
    msg = f"'until' must be a time like 2027-01-31T18:00:00Z, not {value!r}"
    raise ToolError(msg, "schema")
