"""Which worker a command is offered to: the nearest with room, then the least loaded. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Distance = Literal["node", "zone", "region", "any"]
_ORDER: dict[str, int] = {"node": 0, "zone": 1, "region": 2, "any": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process or a piece of data is, coarse to fine."""

    region: str = ""
    zone: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A worker that could take a command, and how much it holds already."""

    worker_id: str
    place: Place
    held: int
    room: int


def distance(one: Place, other: Place) -> Distance:
    """How far apart two places are."""
    if one.node and one.node == other.node:
        return "node"
    if one.zone and one.zone == other.zone:
        return "zone"
    if one.region and one.region == other.region:
        return "region"
    return "any"


def choose_worker(
    candidates: Sequence[Candidate], near: Place
) -> tuple[Candidate, Distance] | None:
    """The best candidate with room, or None when all are full."""
    free = [c for c in candidates if c.held < c.room]
    if not free:
        return None
    best = min(
        free,
        key=lambda c: (_ORDER[distance(c.place, near)], c.held / c.room, c.worker_id),
    )
    return best, distance(best.place, near)
