"""Who should own what: the table of owners as data, and what follows from it. Pure.

All owners compute from the same table and come to the same answer, so shards move without anybody
in charge. A lease saves wasted work and nothing more: who decides is settled by the log (P3).
"""

from __future__ import annotations

import msgspec


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """One process that may own shards, under a name that survives its restarts (PRJ-8)."""

    incarnation: str
    beat: int
    """Grows with each sign of life. Others measure its silence on their own clocks."""
    until_ms: int
    """When its lease ends, for those who see it for the first time."""
    since: int = 0
    """Where the log stood when it joined, and later than that of those who had the name before.

    A table that was lost is written anew from memory, which may name a predecessor of one that
    lives; this tells which of the two is the later one."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a shard is. Without an owner it is free; its epoch is kept all the same."""

    epoch: int
    owner: str = ""
    incarnation: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Everything owners agree on."""

    owners: dict[str, Owner] = {}
    leases: dict[int, Lease] = {}

    def held_by(self, name: str) -> list[int]:
        """The shards of an owner in order."""
        return sorted(shard for shard, lease in self.leases.items() if lease.owner == name)


def encode_table(table: Table) -> bytes:
    """A table as it is stored."""
    return msgspec.json.encode(table)


decode_table = msgspec.json.Decoder(Table).decode


def without(table: Table, names: set[str]) -> Table:
    """A table after some owners have gone: their shards are free."""
    if not names:
        return table
    return Table(
        owners={name: owner for name, owner in table.owners.items() if name not in names},
        leases={
            shard: Lease(epoch=lease.epoch) if lease.owner in names else lease
            for shard, lease in table.leases.items()
        },
    )


def freed(table: Table, name: str, shards: set[int]) -> Table:
    """A table after an owner gave some shards back."""
    leases = {
        shard: Lease(epoch=lease.epoch) if shard in shards and lease.owner == name else lease
        for shard, lease in table.leases.items()
    }
    return msgspec.structs.replace(table, leases=leases)


def share_of(table: Table, name: str, shard_count: int) -> int:
    """How many shards an owner should have: all have the same, or one more.

    Those that have most keep the odd ones, so that nothing moves without need; at the start, when
    nobody has any, this is ``ceil(N / owners)`` for the first.
    """
    owners = sorted(table.owners, key=lambda each: (-len(table.held_by(each)), each))
    least, odd = divmod(shard_count, len(owners))
    return least + (owners.index(name) < odd)


def claimable(table: Table, name: str, shard_count: int, liked: set[int]) -> list[int]:
    """The free shards an owner should take now; those it likes, because it had them, first."""
    room = share_of(table, name, shard_count) - len(table.held_by(name))
    free = [
        shard
        for shard in range(shard_count)
        if not (lease := table.leases.get(shard)) or not lease.owner
    ]
    free.sort(key=lambda shard: (shard not in liked, shard))
    return sorted(free[: max(0, room)])


def surplus(table: Table, name: str, shard_count: int) -> list[int]:
    """The shards an owner should give back because another has too few."""
    held = table.held_by(name)
    return held[share_of(table, name, shard_count) :]


def given(table: Table, name: str, incarnation: str, epochs: dict[int, int]) -> Table:
    """A table after an owner has taken some shards, each under an epoch."""
    taken = {
        shard: Lease(epoch=epoch, owner=name, incarnation=incarnation)
        for shard, epoch in epochs.items()
    }
    return msgspec.structs.replace(table, leases=table.leases | taken)
