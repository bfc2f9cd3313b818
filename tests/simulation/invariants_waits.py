"""What must hold of waits and pauses at every step: nobody holds what waits, one end per wait."""

from __future__ import annotations

from noetl_ray.clock import parse_iso_utc
from noetl_ray.events.envelope import Event
from noetl_ray.events.types import AggregateType, EventType

_BEGINS = frozenset({EventType.COMMAND_ISSUED, EventType.STEP_ENTER, EventType.COMMAND_RESUMED})


class WaitInvariants:
    """Watches parked commands and paused executions as their records come into the log."""

    def __init__(self) -> None:
        self._waiting: dict[str, Event] = {}
        self._answers: dict[tuple[int, str], int] = {}
        self._paused: set[int] = set()

    def take(self, event: Event, position: int) -> list[str]:
        """What is wrong now that this event is in the log."""
        kind, command_id = event.event_type, event.command_id or ""
        if kind is EventType.CALLBACK_RECEIVED:
            key = event.execution_id, event.payload["key"]
            wrong = [f"{key} was answered twice"] if key in self._answers else []
            self._answers[key] = position
            return wrong
        if kind is EventType.EXECUTION_PAUSED:
            self._paused.add(event.execution_id)
        elif kind is EventType.EXECUTION_RESUMED:
            self._paused.discard(event.execution_id)
        elif kind in _BEGINS and event.execution_id in self._paused:
            return [f"{event.execution_id}: {kind} while it was paused"]
        if kind is EventType.TASK_PARKED:
            self._waiting[command_id] = event
        elif kind is EventType.COMMAND_RESUMED:
            return self._resumed(self._waiting.pop(command_id, None), event)
        elif command_id in self._waiting and event.aggregate_type is AggregateType.COMMAND:
            return [f"{command_id} waits, and {kind} happens to it"]
        return []

    def _resumed(self, parked: Event | None, event: Event) -> list[str]:
        if parked is None:
            return [f"{event.command_id} goes on though it did not wait"]
        wait, reason = parked.payload["wait"], event.payload["reason"]
        if reason == "answered":
            key = event.execution_id, wait["key"]
            known = self._answers.get(key) == event.payload["answer"]
            return [] if known else [f"{event.command_id} got an answer nobody gave"]
        if reason == "due" and parse_iso_utc(event.event_time) < wait["until_ms"]:
            return [f"{event.command_id} goes on before its time"]
        return []
