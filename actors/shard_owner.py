"""What a conductor needs to know of its shards, and the owner that always has the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class ShardOwner(Protocol):
    """What a conductor needs to know of its shards."""

    name: str
    """Name and incarnation."""
    generation: int
    """Changes whenever ``held`` does."""
    held: Mapping[int, int]
    """Shards that are ours, with the epoch of the lease."""
    parting: Collection[int]
    """Shards that are no longer held because we are to give them away."""

    async def start(self) -> Mapping[int, int]:
        """Join, and take the first shards."""
        ...

    async def parted(self, shards: Iterable[int]) -> None:
        """Shards are kept for their next owner and may be taken."""
        ...

    async def stop(self) -> None:
        """Leave; what is held is free at once."""
        ...

    def check(self) -> None:
        """Raise when this process may not go on."""
        ...

    def summary(self) -> dict[str, Any]:
        """Who it is and what it has."""
        ...


class FixedShards:
    """Shards that are always ours: one conductor alone, or a test."""

    def __init__(self, shards: Iterable[int], name: str = "fixed") -> None:
        self.name = name
        self.generation = 0
        self.held: Mapping[int, int] = dict.fromkeys(shards, 1)
        self.parting: Collection[int] = ()

    async def start(self) -> Mapping[int, int]:
        """All of them."""
        return self.held

    async def parted(self, shards: Iterable[int]) -> None:
        """Never asked."""

    async def stop(self) -> None:
        """Nothing to leave."""

    def check(self) -> None:
        """Always may."""

    def summary(self) -> dict[str, Any]:
        """Who it is."""
        return {"name": self.name}
