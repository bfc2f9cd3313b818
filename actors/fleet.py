"""The workers as one conductor knows them.

Who lives (from the log), how much each holds (its own count).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noetl_ray.engine.frames import is_frame_id
from noetl_ray.engine.inputs import Claim
from noetl_ray.events.types import EventType
from placement.offer import Candidate, Place, choose_worker, distance

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl_ray.events.envelope import Event

OVERCOMMIT = 2
"""Commands offered per slot: a worker keeps a small queue, so it never waits for a round trip."""
QUEUE_S = 0.5
"""How much work of the pace seen last a worker may hold beyond that: a command that waits for room
costs another append, one that waits at its worker costs nothing, but nobody else can take it."""
PACE_S = 0.1
PACE_LEFT = 0.8
"""What is left of a pace after each tenth of a second in which less came back: a burst begins with
a moment in which everything is decided and little is done."""
PACE_KEPT_S = 10.0
"""How long a pace is still believed of a worker that has had nothing to do since."""
ROOM_PER_SLOT_MAX = 16
FRAMES_MAX = 4
"""Frames one worker holds at once (FRM-19): each keeps rows in memory and a lease alive."""
UNKNOWN = 1_000_000


@dataclass(slots=True)
class _Member:
    incarnation: str
    slots: int
    place: Place
    since: float
    held: set[str] = field(default_factory=set)
    frames: int = 0
    """How many of what it holds are frames."""
    returned: int = 0
    pace: float = 0.0
    """Commands that came back per second while it held some, seen last."""


class Fleet:
    """Chooses workers and says which incarnations are gone."""

    def __init__(self, near: Place, lease_ms: int, now: Callable[[], float] = lambda: 0.0) -> None:
        """Begin with nobody.

        Args:
            near: Where commands come from.
            lease_ms: What a claim says about its lease.
            now: Seconds on a monotonic clock; without one, no worker is seen to be fast.
        """
        self._near = near
        self._lease_ms = lease_ms
        self._now = now
        self._members: dict[str, _Member] = {}

    def observe(self, event: Event) -> None:
        """Take a worker event from the log."""
        payload = event.payload
        worker_id = payload["worker_id"]
        if event.event_type is EventType.WORKER_JOINED:
            member = self._members.get(worker_id)
            if member is not None and member.incarnation == payload["incarnation"]:
                return
            place = payload.get("place", {})
            self._members[worker_id] = _Member(
                incarnation=payload["incarnation"],
                slots=payload["slots"],
                place=Place(
                    region=place.get("region", ""),
                    zone=place.get("zone", ""),
                    node=place.get("node", ""),
                ),
                since=self._now(),
            )
        else:
            member = self._members.get(worker_id)
            if member is not None and member.incarnation == payload["incarnation"]:
                del self._members[worker_id]

    def choose(self, command_id: str) -> Claim | None:
        """Take room on a worker for a command; None when nobody has any."""
        if len(self._members) == 1:
            # A laptop has one worker, and a choice among one needs no list.
            ((worker_id, member),) = self._members.items()
            if len(member.held) >= self._room_for(member, command_id):
                return None
            away: str = distance(member.place, self._near)
        else:
            chosen = choose_worker(
                [
                    Candidate(
                        worker_id=worker_id,
                        place=member.place,
                        held=len(member.held),
                        room=self._room_for(member, command_id),
                    )
                    for worker_id, member in self._members.items()
                ],
                self._near,
            )
            if chosen is None:
                return None
            worker_id, away = chosen[0].worker_id, chosen[1]
            member = self._members[worker_id]
        self._hold(member, command_id)
        return Claim(
            worker_id=worker_id,
            incarnation=member.incarnation,
            lease_ms=self._lease_ms,
            distance=away,
        )

    def holds(self, worker_id: str | None, command_id: str) -> None:
        """Remember what a replayed claim says."""
        member = self._members.get(worker_id or "")
        if member is not None:
            self._hold(member, command_id)

    def release(self, worker_id: str | None, command_id: str) -> None:
        """Give room back."""
        member = self._members.get(worker_id or "")
        if member is not None and command_id in member.held:
            member.held.discard(command_id)
            member.frames -= is_frame_id(command_id)
            member.returned += 1
            if not member.held:
                self._measure(member)

    def alive(self, worker_id: str | None, incarnation: str | None) -> bool:
        """Whether exactly this incarnation is a member."""
        member = self._members.get(worker_id or "")
        return member is not None and member.incarnation == incarnation

    @property
    def spare(self) -> int:
        """How many more commands keep the workers busy; without workers, any number."""
        if not self._members:
            return UNKNOWN
        return sum(max(0, m.slots * OVERCOMMIT - len(m.held)) for m in self._members.values())

    def has_room(self) -> bool:
        """Whether any worker could take another command."""
        return any(len(m.held) < self._room(m) for m in self._members.values())

    def _hold(self, member: _Member, command_id: str) -> None:
        if not member.held:
            # Time with nothing to do says nothing about its pace, unless it was long.
            now = self._now()
            if now - member.since > PACE_KEPT_S:
                member.pace = 0.0
            member.since = now
            member.returned = 0
        if command_id not in member.held:
            member.held.add(command_id)
            member.frames += is_frame_id(command_id)

    def _measure(self, member: _Member) -> None:
        elapsed = self._now() - member.since
        if elapsed >= PACE_S:
            left = member.pace * PACE_LEFT ** (elapsed / PACE_S)
            member.pace = max(member.returned / elapsed, left)
            member.since += elapsed
            member.returned = 0

    def _room_for(self, member: _Member, command_id: str) -> int:
        if member.frames >= FRAMES_MAX and is_frame_id(command_id):
            return 0
        return self._room(member)

    def _room(self, member: _Member) -> int:
        if member.held:
            self._measure(member)
        room = member.slots * OVERCOMMIT + int(member.pace * QUEUE_S)
        return min(room, member.slots * ROOM_PER_SLOT_MAX)

    def __len__(self) -> int:
        """How many workers live."""
        return len(self._members)
