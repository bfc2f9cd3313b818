"""How many frames wait or are under way, told by each conductor of its shards (ASC-1).

What a scaler reads comes from here by way of the gateway's metrics, never from a database. A lost
word is followed by the next one a second later; a conductor with nothing to tell is silent.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from noetl_ray.hints.port import FRAME_BACKLOG

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.hints.port import Hints

Key = tuple[str, str, str, str]
"""Tenant, organization, kind of the stage, status."""


class BacklogTold(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of one conductor."""

    source: str
    frames: list[tuple[str, str, str, str, int]]


def backlog_of(states: Iterable[ExecutionState]) -> Counter[Key]:
    """Frames that have not ended, by whose they are, of what kind, and whether anyone has them."""
    found: Counter[Key] = Counter()
    for state in states:
        if not state.loops or state.terminal:
            continue
        for command in state.commands.values():
            if not command.frame:
                continue
            loop = state.loops.get(command.step)
            stage = loop.stage if loop is not None else None
            reduce = stage.reduce if stage is not None else None
            kind = "loop" if reduce is None else "fanout"
            if reduce is not None and reduce.frame_id == command.command_id:
                kind = "reduce"
            status = "PENDING" if command.worker_id is None else "CLAIMED"
            found[state.tenant_id, state.organization_id, kind, status] += 1
    return found


class BacklogTeller:
    """Says what one conductor has."""

    def __init__(self, hints: Hints, source: str) -> None:
        self._hints = hints
        self._source = source
        self._silent = True

    async def tell(self, states: Iterable[ExecutionState]) -> None:
        """Send the counts; a last time when there is nothing any more."""
        frames = [(*key, count) for key, count in sorted(backlog_of(states).items())]
        if not frames and self._silent:
            return
        self._silent = not frames
        told = BacklogTold(source=self._source, frames=frames)
        await self._hints.send(FRAME_BACKLOG, msgspec.json.encode(told))
