"""The books of a node's shared memory: who was let in, until when, and what is lent (CCH-4, CCH-5).

Pure: time is an argument and nothing here holds bytes. What is lent counts against the budget until
the loan ends, even when the entry itself is gone, because a reader may still look at it (P29).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GRACE_S = 30.0


@dataclass(slots=True, kw_only=True)
class _Entry:
    size_bytes: int
    until: float
    lent_until: float = 0.0


class Ledger:
    """Entries of one node in the order they were last used."""

    def __init__(self, budget_bytes: int, *, lease_s: float, grace_s: float = GRACE_S) -> None:
        """Open the books.

        Args:
            budget_bytes: What entries and loans may take together.
            lease_s: How long an entry is offered, and how long a loan counts.
            grace_s: How much longer an entry is kept for readers that are late.
        """
        self.counts: Counter[str] = Counter()
        self._budget_bytes = budget_bytes
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._gone: list[_Entry] = []
        """Dropped while lent."""

    def __contains__(self, name: str) -> bool:
        """Whether the entry is held."""
        return name in self._entries

    def used_bytes(self, now: float) -> int:
        """Bytes held, and bytes lent of what is not held any more."""
        self._gone = [entry for entry in self._gone if entry.lent_until > now]
        held = sum(entry.size_bytes for entry in self._entries.values())
        return held + sum(entry.size_bytes for entry in self._gone)

    def admit(self, name: str, size_bytes: int, now: float) -> tuple[bool, Sequence[str]]:
        """Whether an entry may come in, and which ones leave for it; refusing costs no time."""
        self.counts["attempts"] += 1
        leaving = list(self.expire(now))
        if name in self._entries:
            self._entries[name].until = now + self._lease_s + self._grace_s
            self._entries.move_to_end(name)
            return True, leaving
        idle = [key for key, entry in self._entries.items() if entry.lent_until <= now]
        free = self._budget_bytes - self.used_bytes(now)
        chosen: list[str] = []
        while free < size_bytes and idle:
            chosen.append(idle.pop(0))
            free += self._entries[chosen[-1]].size_bytes
        if free < size_bytes:
            self.counts["exhausted"] += 1
            return False, leaving
        for key in chosen:
            self._drop(key)
        self.counts["admitted"] += 1
        self._entries[name] = _Entry(
            size_bytes=size_bytes, until=now + self._lease_s + self._grace_s
        )
        return True, [*leaving, *chosen]

    def lend(self, name: str, now: float) -> bool:
        """Note a loan; False when the entry is not there any more."""
        entry = self._entries.get(name)
        if entry is None or entry.until <= now:
            self.counts["misses"] += 1
            return False
        entry.lent_until = now + self._lease_s
        self._entries.move_to_end(name)
        self.counts["hits"] += 1
        return True

    def expire(self, now: float) -> Sequence[str]:
        """Entries whose time is over; they are dropped from the books."""
        over = [name for name, entry in self._entries.items() if entry.until <= now]
        for name in over:
            self._drop(name)
        return over

    def forget(self, name: str) -> None:
        """Take back an admission that came to nothing."""
        self._entries.pop(name, None)
        self.counts["failed"] += 1

    def _drop(self, name: str) -> None:
        self.counts["released"] += 1
        self._gone.append(self._entries.pop(name))
