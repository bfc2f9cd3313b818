"""What a command prints.

Gathered per line, redacted, and handed to the task log in small batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from noetl_ray.wal.tasklog import LogLine, TaskLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.messages import Offer
    from noetl_ray.clock import Clock
    from noetl_ray.results.redact import Redactor
    from noetl_ray.scope import Scope

FLUSH_S = 0.25
LINES_MAX = 20_000
"""Lines kept of one command; what comes after is counted, not kept."""
LINE_CHARS_MAX = 8_000


class Logbook:
    """The printed lines of one command."""

    def __init__(
        self,
        tasklog: TaskLog,
        clock: Clock,
        offer: Offer,
        scope: Scope,
        redactor: Callable[[], Redactor],
    ) -> None:
        self._tasklog = tasklog
        self._clock = clock
        self._offer = offer
        self._scope = scope
        self._redactor = redactor
        self._waiting: list[LogLine] = []
        self._count = 0
        self._flusher: asyncio.Task[None] | None = None

    def writer(self, task: str, attempt: int) -> Callable[[str, str], None]:
        """A function for a tool to write lines with."""

        def write(stream: str, line: str) -> None:
            self._add(task, attempt, stream, line)

        return write

    async def close(self) -> None:
        """Hand over what is left."""
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None
        await self._flush()

    def _add(self, task: str, attempt: int, stream: str, line: str) -> None:
        self._count += 1
        if self._count > LINES_MAX:
            return
        if self._count == LINES_MAX:
            line = f"… more than {LINES_MAX} lines; the rest is not kept"
        issued = self._offer.issued
        self._waiting.append(
            LogLine(
                tenant_id=self._scope.tenant_id,
                organization_id=self._scope.organization_id,
                execution_id=issued.execution_id,
                step=issued.payload["step"],
                task=task,
                attempt=attempt,
                stream=stream,
                time_ms=self._clock.now_ms(),
                text=self._redactor().text(line)[:LINE_CHARS_MAX],
                visit=issued.payload["visit"],
            )
        )
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        await self._clock.sleep(FLUSH_S)
        self._flusher = None
        await self._flush()

    async def _flush(self) -> None:
        if self._waiting:
            lines, self._waiting = self._waiting, []
            await self._tasklog.write(self._offer.shard, lines)
