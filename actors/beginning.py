"""When executions begin: those that run already come first.

Owns the line of executions nobody has decided about yet, in the order they came. While every worker
has as much as it can do, a new execution waits a moment for others to go on: finishing before
beginning keeps few executions open at once, so that states, rows and results are written once and
not at every step of a crowd that moves in lockstep. It is an order, not a limit: whoever has waited
long enough begins whatever the workers do, so nothing can wait for an execution that waits for it.
Refuses to hold back what was cancelled, paused or told anything else meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.fleet import Fleet
    from noetl_ray.engine.state import ExecutionState

WAIT_S_MAX = 1.0


class Beginnings:
    """The line of one conductor."""

    def __init__(self, fleet: Fleet, now: Callable[[], float], deciding: Callable[[], int]) -> None:
        """Begin with nobody waiting.

        Args:
            fleet: Whose load decides.
            now: Seconds on a monotonic clock.
            deciding: How many executions are being decided about: each will want room.
        """
        self._fleet = fleet
        self._now = now
        self._deciding = deciding
        self._waiting: dict[int, float] = {}
        """Since when each waits; the first came first."""
        self._begun: set[int] = set()
        """Let go, and not decided about yet."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def holds_back(self, state: ExecutionState) -> bool:
        """Whether an execution that wants a decision has to wait; ``due`` names it later."""
        execution_id = state.execution_id
        if state.control_version or execution_id in self._begun:
            return False
        if len(state.pending) == 1 and (self._waiting or not self._room()):
            self._waiting.setdefault(execution_id, self._now())
            return True
        self._waiting.pop(execution_id, None)
        self._begun.add(execution_id)
        return False

    def due(self) -> list[int]:
        """Those that may begin now, in the order they came."""
        if not self._waiting:
            return []
        room = self._room()
        long_ago = self._now() - WAIT_S_MAX
        found: list[int] = []
        for execution_id, since in self._waiting.items():
            if len(found) >= room and since > long_ago:
                break
            found.append(execution_id)
        for execution_id in found:
            del self._waiting[execution_id]
        self._begun.update(found)
        return found

    def settled(self, execution_id: int) -> None:
        """A beginning has been decided, or was given up."""
        self._begun.discard(execution_id)

    def forget(self, execution_id: int) -> None:
        """An execution is no longer ours."""
        self._waiting.pop(execution_id, None)
        self._begun.discard(execution_id)

    def _room(self) -> int:
        return max(0, self._fleet.spare - self._deciding())
