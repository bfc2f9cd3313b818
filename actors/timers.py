"""When executions are to be looked at again: a heap over what their states say, nothing of its own.

A due time is part of a command's record in the log, so a conductor that starts anew has all of them
again once it has folded. Refuses to keep anything the state does not say: an entry is only a reason
to look.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from noetl_ray.engine.state import next_due_ms

if TYPE_CHECKING:
    from noetl_ray.engine.state import ExecutionState


class Timers:
    """The due times of one conductor's executions."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._due: dict[int, int] = {}

    def note(self, state: ExecutionState) -> None:
        """Take over what a state says now."""
        due = None if state.terminal else next_due_ms(state)
        if due is None:
            self._due.pop(state.execution_id, None)
        elif self._due.get(state.execution_id) != due:
            self._due[state.execution_id] = due
            heapq.heappush(self._heap, (due, state.execution_id))

    def forget(self, execution_id: int) -> None:
        """An execution has ended."""
        self._due.pop(execution_id, None)

    def due(self, now_ms: int) -> list[int]:
        """The executions whose time has come; each is named once."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at, execution_id = heapq.heappop(self._heap)
            if self._due.get(execution_id) == at:
                del self._due[execution_id]
                found.append(execution_id)
        return found

    def __len__(self) -> int:
        """How many executions wait for a time."""
        return len(self._due)
