"""Waits for a time or for an answer: what tools ask for, and what their tasks give in the end.

Owns the words between the tools, the pipeline that parks for them and whoever goes on with it.
Refuses to wait itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl_ray.clock import iso_utc
from noetl_ray.dsl.language import CALLBACK
from noetl_ray.dsl.model import Step
from noetl_ray.errors import ToolError
from noetl_ray.tools.port import ToolResult

if TYPE_CHECKING:
    from collections.abc import Mapping

PARK_S = 1.0
"""A shorter wait is slept through where it is: parking costs two appends."""
WAIT_S_MAX = 10 * 365 * 86_400
TIMER = "timer"
RETRY = "retry"

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


@dataclass(frozen=True, slots=True)
class Asking:
    """The callbacks of one pipeline: what templates can name of them.

    A round counts how often a task was waited for, so that each wait has a token of its own.
    """

    step: Step
    token: Callable[[str, int], str]
    """``(label, round) -> token``: the same for every holder of the command."""
    key: Callable[[str], str]
    """The digest under which the log knows a token."""
    url: str = ""

    def names(self, label: str, rounds: Mapping[str, int]) -> dict[str, str]:
        """What `callback` means before and in a task: the next task that waits for one."""
        labels = [task.label for task in self.step.tasks]
        after = self.step.tasks[labels.index(label) :]
        waits = [task.label for task in (*after, *self.step.tasks) if task.kind == CALLBACK]
        token = self.token(waits[0], rounds.get(waits[0], 0))
        path = f"/api/callbacks/{token}"
        return {"token": token, "path": path, "url": f"{self.url}{path}"}


def settled(wait: Mapping[str, Any], task: str, now_ms: int, key: str = "") -> dict[str, Any]:
    """What a tool asks to wait for, with the moment it ends: as the log keeps it."""
    until = wait.get("until_ms")
    if until is None:
        until = now_ms + round(wait["after_s"] * 1000)
    about = wait.get("about", "")
    return {"kind": wait["kind"], "until_ms": until, "task": task, "key": key, "about": about}


def time_over(wait: Mapping[str, Any]) -> ToolResult:
    """What a task gives that waited for a time."""
    return ToolResult(data={"status": "ok", "until": iso_utc(wait["until_ms"])})


def nobody_answered(wait: Mapping[str, Any]) -> ToolError:
    """How a task fails that waited for an answer until its time was over."""
    msg = f"nobody answered until {iso_utc(wait['until_ms'])}"
    return ToolError(msg, "timeout", True)


def seconds_of(value: Any, what: str) -> float:
    """A number of seconds, or a text such as ``90``, ``15m`` or ``1h30m``.

    Raises:
        ToolError: it is neither, or out of bounds.
    """
    found = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str):
        text = value.strip().lower()
        if _SPAN.fullmatch(text):
            found = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text))
        else:
            try:
                found = float(text)
            except ValueError:
                found = math.nan
    if not 0 <= found <= WAIT_S_MAX:
        msg = f"{what} must be seconds or a text like 90s, 15m, 1h30m, 2d, not {value!r}"
        raise ToolError(msg, "schema")
    return found
