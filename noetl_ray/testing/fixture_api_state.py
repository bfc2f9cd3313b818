"""What the fixture API remembers between calls: counters, windows and the concurrency probe."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

WINDOW_S = 1.0


class SlidingWindow:
    """Counts calls of the last second, over all callers."""

    def __init__(self) -> None:
        self._calls: deque[float] = deque()

    def admit(self, limit: int) -> tuple[bool, int]:
        """Whether one more call fits under a limit, and how many the window holds after it."""
        now = time.monotonic()
        while self._calls and now - self._calls[0] >= WINDOW_S:
            self._calls.popleft()
        if len(self._calls) >= limit:
            return False, len(self._calls)
        self._calls.append(now)
        return True, len(self._calls)


class ConcurrencyProbe:
    """Watches how many probe calls run at once."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self.reset()

    def reset(self) -> None:
        """Forget everything, also calls still running."""
        self.started = 0
        self.completed = 0
        self.active = 0
        self.max_active = 0
        self.events: deque[dict[str, Any]] = deque(maxlen=self._events_max)

    def enter(self, label: str, delay_s: float) -> tuple[int, int]:
        """Note a start; gives the request id and how many are active with it."""
        self.started += 1
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        self._note("start", self.started, label, {"delay_seconds": delay_s})
        return self.started, self.active

    def leave(self, request_id: int, label: str, duration_s: float) -> None:
        """Note an end."""
        self.completed += 1
        self.active = max(0, self.active - 1)
        self._note("end", request_id, label, {"duration_seconds": duration_s})

    def stats(self) -> dict[str, Any]:
        """The counters."""
        return {
            "started": self.started,
            "completed": self.completed,
            "active": self.active,
            "max_active": self.max_active,
        }

    def _note(self, phase: str, request_id: int, label: str, more: dict[str, Any]) -> None:
        event = {
            "phase": phase,
            "request_id": request_id,
            "label": label,
            "ts": time.time(),
            "active": self.active,
        }
        self.events.append({**event, **more})


@dataclass(slots=True, kw_only=True)
class FixtureState:
    """Everything one app remembers."""

    probe_events_max: int
    chance: random.Random
    flaky_calls: Counter[int] = field(default_factory=Counter)
    plain_window: SlidingWindow = field(default_factory=SlidingWindow)
    pft_window: SlidingWindow = field(default_factory=SlidingWindow)
    records_window: SlidingWindow = field(default_factory=SlidingWindow)
    effects: Counter[str] = field(default_factory=Counter)
    effects_begun: Counter[str] = field(default_factory=Counter)
    """Effects that were asked for, those whose caller left before they happened included."""
    effects_order: list[str] = field(default_factory=list)
    """Keys in the order their effects happened, one entry for each time."""
    tokens: set[str] = field(default_factory=set)
    """Access tokens that are still good."""
    tokens_issued: int = 0
    probe: ConcurrencyProbe = field(init=False)

    def __post_init__(self) -> None:
        """Make the probe with its bounded memory of events."""
        self.probe = ConcurrencyProbe(self.probe_events_max)


def seed_of(text: str) -> int:
    """The MD5 of a text as an integer: the fixture's source of stable variety, never of safety."""
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16)
