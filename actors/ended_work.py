"""Whether what a worker runs is still wanted: it asks the log, as nudges may be lost (P23).

Owns which executions are asked about and how often. Work of less than a moment is never asked
about, so commands of the hot path cost nothing here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from noetl_ray.errors import LogError
from noetl_ray.events.types import EXECUTION_TERMINAL
from noetl_ray.scope import scope_of
from noetl_ray.wal.subjects import control_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.messages import Offer
    from noetl_ray.wal.port import Log

_log = logging.getLogger(__name__)

ASK_AFTER_S = 0.9


class EndedWork:
    """Asks the log, one question at a time, about what has been running for a while."""

    def __init__(self, log: Log, now: Callable[[], float], drop: Callable[[int], None]) -> None:
        """Bind it.

        Args:
            log: Where executions end.
            now: Seconds on a monotonic clock.
            drop: Told each execution that has ended.
        """
        self._log = log
        self._now = now
        self._drop = drop
        self._running: dict[tuple[str, int], tuple[Offer, float]] = {}
        self._asking: asyncio.Task[None] | None = None

    def began(self, holding: tuple[str, int], offer: Offer) -> None:
        """A command is worked on from now on."""
        self._running[holding] = offer, self._now()

    def ended(self, holding: tuple[str, int]) -> None:
        """A command is not worked on any more."""
        self._running.pop(holding, None)

    def look(self) -> None:
        """Ask about what is old enough, unless a question is still open; waits for nothing."""
        if self._asking is not None and not self._asking.done():
            return
        since = self._now() - ASK_AFTER_S
        old = {
            offer.issued.execution_id: offer
            for offer, began in self._running.values()
            if began <= since
        }
        if old:
            self._asking = asyncio.create_task(self._ask(old.values()))

    async def stop(self) -> None:
        """Ask nothing more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, offers: Iterable[Offer]) -> None:
        for offer in offers:
            issued = offer.issued
            scope = scope_of(issued.tenant_id, issued.organization_id)
            subject = control_subject(offer.shard, scope, issued.execution_id)
            try:
                last = await self._log.last(subject)
            except LogError as error:
                _log.info("cannot ask whether execution %s ended: %s", issued.execution_id, error)
                return
            if last is not None and last.record.events[-1].event_type in EXECUTION_TERMINAL:
                self._drop(issued.execution_id)
