"""What a world has seen so far: every record is checked at the moment it is stored.

And every effect at the moment it happens. A violation therefore stands at the step that made it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from noetl_ray.engine.fold import fold
from noetl_ray.engine.state import TERMINAL_STATUSES, ExecutionState
from noetl_ray.events.types import COMMAND_TERMINAL, FRAME_TERMINAL, TASK_RECORDS, EventType
from tests.simulation.features.secrets import SECRET
from tests.simulation.invariants import Invariants
from tests.simulation.invariants_waits import WaitInvariants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.wal.port import Recorded

RECORD_BYTES_MAX = 900_000
_SECRET = SECRET.encode()


class Ledger:
    """The log and the outside world as somebody sees them who sees everything."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.states: dict[int, ExecutionState] = {}
        self.effects: Counter[str] = Counter()
        self.of_shard: dict[int, list[Recorded]] = defaultdict(list)
        """Records of executions by shard, in order."""
        self._invariants = Invariants()
        self._waits = WaitInvariants()
        self._ended: set[str] = set()
        self._recorded: set[tuple[str, str, str]] = set()
        self._rows: set[tuple[str, str]] = set()

    def stored(self, recorded: Recorded, data: bytes) -> None:
        """A record is in the log now."""
        self.violations += self._invariants.take(recorded)
        if len(data) > RECORD_BYTES_MAX:
            self.violations.append(f"invariant 5: {len(data)} bytes at {recorded.subject}")
        if _SECRET in data:
            self.violations.append(f"invariant 5: a secret at {recorded.subject}")
        for event in recorded.record.events:
            kind = event.event_type
            self.violations += self._waits.take(event, recorded.position)
            if kind in COMMAND_TERMINAL or kind in FRAME_TERMINAL:
                self._ended.add(event.command_id or "")
                self._ended.add(event.frame_id or "")
            elif kind in TASK_RECORDS:
                task, turn = event.payload["task"], str(event.payload["turn"])
                self._recorded.add((event.command_id or event.frame_id or "", task, turn))
            elif kind is EventType.FRAME_ROWS_DONE:
                self._rows |= {(event.frame_id or "", row["key"]) for row in event.payload["rows"]}
        execution_id = recorded.record.events[0].execution_id
        if execution_id:
            state = fold(self.states.get(execution_id), recorded)
            self.states[execution_id] = state
            self.of_shard[state.shard].append(recorded)

    def effect(self, key: str) -> None:
        """An effect happens; it must not if its completion is in the log already (invariant 2)."""
        self.effects[key] += 1
        command_id, *row, task, turn = key.split("/")
        if command_id in self._ended:
            self.violations.append(f"invariant 2: {command_id} ran again after its completion")
        if (command_id, task, turn) in self._recorded:
            self.violations.append(
                f"invariant 2: {task} of {command_id} ran again after its record"
            )

        if row and (command_id, row[0]) in self._rows:
            self.violations.append(f"invariant 2: row {row[0]} of {command_id} ran again")

    def have_ended(self, execution_ids: Iterable[int]) -> bool:
        """Whether all of these have an end in the log."""
        return all(
            i in self.states and self.states[i].status in TERMINAL_STATUSES for i in execution_ids
        )

    def at_end(self) -> list[str]:
        """What is missing once everything has ended."""
        return self._invariants.at_end()
