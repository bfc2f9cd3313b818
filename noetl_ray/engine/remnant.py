"""What trimming leaves of an execution in the log, and how the fold knows it.

A trimmed log keeps the last record of each subject (P7): the request, the ends of commands, and the
decision that ended the execution. Owns telling that decision from a true first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.events.types import EXECUTION_TERMINAL, EventType

if TYPE_CHECKING:
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.wal.port import Recorded


def is_remnant(state: ExecutionState, recorded: Recorded) -> bool:
    """Whether the first decision somebody reads is the last of an execution.

    The true first decision takes the request, and nothing that was never seen.
    """
    record = recorded.record
    if not any(event.event_type in EXECUTION_TERMINAL for event in record.events):
        return False
    seen = [state.pending.get(position) for position in record.consumed]
    requests = {
        position
        for position, events in state.pending.items()
        if events[0].event_type is EventType.EXECUTION_REQUESTED
    }
    return None in seen or bool(requests.difference(record.consumed))
