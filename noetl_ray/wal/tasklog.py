"""The task-log port: what steps print.

Kept apart from the events so that chatter never enters the log.

Lines are already redacted when they arrive here. Losing some costs a reader a line, never an
execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One printed line."""

    tenant_id: str
    organization_id: str
    execution_id: int
    step: str
    task: str
    attempt: int
    stream: str
    """``stdout``, ``stderr`` or ``system``."""
    time_ms: int
    text: str
    visit: int = 1


class PositionedLines(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of lines and the position after it."""

    position: int
    lines: tuple[LogLine, ...]


class TaskLog(Protocol):
    """Where printed lines go, and where the projector takes them from."""

    async def write(self, shard: int, lines: Sequence[LogLine]) -> None:
        """Hand lines over; best effort, never raises for an unreachable server."""
        ...

    async def read_after(
        self, position: int, *, max_batches: int, timeout_s: float
    ) -> list[PositionedLines]:
        """Batches after a position in order; empty when none came in time."""
        ...
