"""Finished rows of a frame in the log, so that a later holder leaves them out (P19).

Owns the groups in which outcomes are appended: a row counts as finished once its outcome is
durable, and rows that finish while an append is on its way go together in the next. It knows
nothing of what a row gives; who restores a frame from what is told here, does.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from actors.completion import bounded
from noetl_ray.events.canonical import canonical_json, to_jsonable
from noetl_ray.events.types import EventType
from noetl_ray.results.redact import mask
from noetl_ray.tools.business_object import BusinessObject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from noetl_ray.events.envelope import Event
    from noetl_ray.results.redact import Redactor
    from noetl_ray.tools.outcome import PipelineOutcome

GROUP_BYTES = 262_144
"""Outcomes of one append, about; more of them go in the next."""

Told = dict[str, Any]
"""A row by its number and key, whether it went well, and what it leaves behind."""


class RowBarrier:
    """The finished rows of one holding of a frame."""

    def __init__(self, say: Callable[[list[Told]], Awaitable[None]]) -> None:
        """Bind it to what appends a group."""
        self._say = say
        self._turn = asyncio.Lock()
        self._waiting: list[tuple[int, Told]] = []
        self._noted = 0
        self._durable = 0

    async def done(self, told: Told) -> None:
        """Return once this outcome is durable.

        Raises:
            LogError: the frame was taken away.
        """
        self._noted += 1
        mine = self._noted
        self._waiting.append((mine, told))
        async with self._turn:
            while self._durable < mine:
                await self._append()

    async def _append(self) -> None:
        size = 0
        taken: list[tuple[int, Told]] = []
        for waiting in self._waiting:
            taken.append(waiting)
            size += len(canonical_json(waiting[1]))
            if size > GROUP_BYTES:
                break
        await self._say([told for _number, told in taken])
        del self._waiting[: len(taken)]
        self._durable = taken[-1][0]


def told_of(row: int, key: str, outcome: PipelineOutcome, shown: Redactor) -> Told:
    """What the log keeps of a row's outcome, beside what it gives."""
    told: Told = {"row": row, "key": key, "ok": outcome.ok}
    if outcome.set:
        told["set"] = mask(shown.value(to_jsonable(outcome.set)))
    if outcome.objects:
        told["objects"] = shown.value(to_jsonable([asdict(each) for each in outcome.objects]))
    if not outcome.ok:
        told["error"] = bounded(shown.value(outcome.error or {}))
    return told


def objects_of(told: Mapping[str, Any]) -> list[BusinessObject]:
    """What a finished row said its results are about."""
    return [BusinessObject(**each) for each in told.get("objects", ())]


def finished(events: Iterable[Event]) -> dict[int, Told]:
    """The rows that earlier holders of a frame finished, by number."""
    return {
        told["row"]: told
        for event in events
        if event.event_type is EventType.FRAME_ROWS_DONE
        for told in event.payload["rows"]
    }
