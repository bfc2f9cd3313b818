"""The log of a set as an outsider sees it while processes of the set are killed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.local import LocalSet
from noetl_ray.events.types import EventType
from noetl_ray.wal.jetstream import JetStreamLog

if TYPE_CHECKING:
    from noetl_ray.events.envelope import Event

PAUSE_MAX_S = 90.0
WATCH_STEP_S = 0.01


@dataclass
class Watch:
    """The log as an outsider sees it: which commands were issued, held and completed, and when."""

    running: LocalSet
    issued: list[tuple[float, int]] = field(default_factory=list)
    """When a conductor decided for which execution."""
    completed: list[tuple[float, str]] = field(default_factory=list)
    """When which command came back."""
    holders: dict[str, str] = field(default_factory=dict)
    """Who holds each command that has not come back."""
    position: int = 0
    """How far the log has been seen."""

    @contextlib.asynccontextmanager
    async def looking(self) -> Any:
        """Look until the block ends."""
        task = asyncio.create_task(self._look())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def caught_up(self) -> None:
        """Wait until everything the log held when this was asked has been seen."""
        log = await JetStreamLog.open(self.running.nats_url, token=self.running.nats_token or None)
        try:
            end = await log.last_position()
        finally:
            await log.close()
        deadline = time.monotonic() + PAUSE_MAX_S
        while self.position < end:
            if time.monotonic() > deadline:
                msg = f"the watch is at {self.position} of {end} after {PAUSE_MAX_S:.0f} s"
                raise RuntimeError(msg)
            await asyncio.sleep(WATCH_STEP_S)

    async def _look(self) -> None:
        log = await JetStreamLog.open(self.running.nats_url, token=self.running.nats_token or None)
        try:
            begun = self.position = await log.last_position()
            news = await log.subscribe(["noetl.events.>"], from_position=begun + 1)
            while True:
                for recorded in await news.next_batch(500, 1.0):
                    now = time.monotonic()
                    for event in recorded.record.events:
                        self._take(now, event)
                    self.position = recorded.position
        finally:
            await log.close()

    def _take(self, now: float, event: Event) -> None:
        command_id = event.command_id or ""
        if event.event_type is EventType.COMMAND_ISSUED:
            self.issued.append((now, event.execution_id))
            if event.payload.get("claim"):
                self.holders[command_id] = event.payload["claim"]["worker_id"]
        elif event.event_type is EventType.COMMAND_CLAIMED:
            self.holders[command_id] = event.payload["worker_id"]
        elif event.event_type is EventType.CALL_DONE:
            self.holders.pop(command_id, None)
            self.completed.append((now, command_id))

    def held_by(self, name: str) -> set[str]:
        """Commands a worker has not brought back."""
        return {c for c, worker in self.holders.items() if worker.endswith(f"/{name}")}

    async def busy(self, name: str) -> None:
        """Wait until a worker holds something."""
        deadline = time.monotonic() + PAUSE_MAX_S
        while not self.held_by(name):
            if time.monotonic() > deadline:
                msg = f"{name} took nothing within {PAUSE_MAX_S:.0f} s"
                raise RuntimeError(msg)
            await asyncio.sleep(WATCH_STEP_S)

    async def decided(self, moment: float, ids: set[int]) -> float:
        """Seconds until a conductor decided again for one of some executions."""
        return await self._first(self.issued, moment, ids)

    async def returned(self, moment: float, held: set[str]) -> float:
        """Seconds until one of some commands came back."""
        return await self._first(self.completed, moment, held)

    async def _first(self, seen: list[tuple[float, Any]], moment: float, of: set[Any]) -> float:
        while time.monotonic() - moment < PAUSE_MAX_S:
            found = [at for at, what in seen if at > moment and what in of]
            if found:
                return min(found) - moment
            await asyncio.sleep(WATCH_STEP_S)
        # A pause without an end is a fault to look into, not a figure to average.
        msg = f"no progress of any of {len(of)} within {PAUSE_MAX_S:.0f} s after a kill"
        raise RuntimeError(msg)
