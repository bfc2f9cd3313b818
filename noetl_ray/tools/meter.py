"""Where the time of many task runs goes: rendering and tools, by task and by kind (FRM-9).

Sums only, so that a frame of any number of rows says it in a few numbers. It judges nothing and
knows no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Task

NAMES_MAX = 40
"""Tasks told one by one; a step with more of them is told by kind."""


@dataclass(slots=True)
class _Sum:
    runs: int = 0
    failed: int = 0
    render_s: float = 0.0
    tool_s: float = 0.0

    def add(self, render_s: float, tool_s: float, *, failed: bool) -> None:
        self.runs += 1
        self.failed += failed
        self.render_s += render_s
        self.tool_s += tool_s

    def told(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "failed": self.failed,
            "task_ms": round((self.render_s + self.tool_s) * 1000, 3),
            "render_ms": round(self.render_s * 1000, 3),
            "tool_ms": round(self.tool_s * 1000, 3),
        }


@dataclass(slots=True)
class TaskMeter:
    """Adds up task runs."""

    _all: _Sum = field(default_factory=_Sum)
    _names: dict[str, _Sum] = field(default_factory=dict)
    _kinds: dict[str, _Sum] = field(default_factory=dict)

    def note(self, task: Task, render_s: float, tool_s: float, *, failed: bool) -> None:
        """A task has run; time in the tool includes waiting for it."""
        self._all.add(render_s, tool_s, failed=failed)
        for sums, key in ((self._names, task.label), (self._kinds, task.kind)):
            kept = sums.get(key)
            if kept is None:
                kept = sums[key] = _Sum()
            kept.add(render_s, tool_s, failed=failed)

    @property
    def runs(self) -> int:
        """Task runs so far."""
        return self._all.runs

    def told(self) -> dict[str, Any]:
        """Totals and roll-ups, in milliseconds."""
        whole = self._all.told()
        found: dict[str, Any] = {"task_runs": whole.pop("runs"), "task_runs_failed": 0} | whole
        found["task_runs_failed"] = found.pop("failed")
        found["by_kind"] = {kind: kept.told() for kind, kept in sorted(self._kinds.items())}
        if len(self._names) <= NAMES_MAX:
            found["by_task"] = {name: kept.told() for name, kept in sorted(self._names.items())}
        return found
