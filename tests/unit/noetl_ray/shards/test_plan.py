"""Owners that plan from the same table come to fair shares, and move no more than they must."""

from __future__ import annotations

import random

from noetl_ray.shards.plan import (
    Owner,
    Table,
    claimable,
    decode_table,
    encode_table,
    freed,
    given,
    share_of,
    surplus,
    without,
)

SHARDS = 16


def owner(name: str) -> Owner:
    return Owner(incarnation=f"{name}-1", beat=1, until_ms=0)


def joined(table: Table, name: str) -> Table:
    return Table(owners=table.owners | {name: owner(name)}, leases=table.leases)


def settled(table: Table, chance: random.Random) -> tuple[Table, int]:
    """What comes of turns in any order, and how many shards moved."""
    moved = 0
    for _ in range(200):
        name = chance.choice(sorted(table.owners))
        extra = surplus(table, name, SHARDS)
        moved += len(extra)
        table = freed(table, name, set(extra))
        wanted = claimable(table, name, SHARDS, set())
        epochs = {s: (table.leases[s].epoch if s in table.leases else 0) + 1 for s in wanted}
        table = given(table, name, f"{name}-1", epochs)
    return table, moved


def test_prj_6_shares_are_even_whoever_comes_and_goes() -> None:
    chance = random.Random(5)
    table = Table()
    for turn in range(60):
        if len(table.owners) < 2 or (chance.random() < 0.6 and len(table.owners) < 9):
            table = joined(table, f"c{turn}")
        else:
            table = without(table, {chance.choice(sorted(table.owners))})
        table, _ = settled(table, chance)
        held = [len(table.held_by(name)) for name in table.owners]
        assert sum(held) == SHARDS
        assert max(held) - min(held) <= 1


def test_prj_6_the_first_share_is_rounded_up() -> None:
    table = joined(joined(joined(Table(), "a"), "b"), "c")
    assert share_of(table, "a", SHARDS) == 6
    assert claimable(table, "a", SHARDS, set()) == [0, 1, 2, 3, 4, 5]


def test_only_what_must_move_moves() -> None:
    chance = random.Random(3)
    table, _ = settled(joined(joined(Table(), "a"), "b"), chance)
    table, moved = settled(joined(table, "c"), chance)
    assert moved == 5
    table, moved = settled(table, chance)
    assert moved == 0


def test_what_one_had_before_comes_first() -> None:
    table = joined(joined(Table(), "a"), "b")
    assert claimable(table, "a", SHARDS, {9, 11, 13})[-3:] == [9, 11, 13]


def test_an_epoch_outlives_its_owner() -> None:
    table = given(joined(Table(), "a"), "a", "a-1", {3: 7})
    table = without(table, {"a"})
    assert (table.leases[3].owner, table.leases[3].epoch) == ("", 7)
    assert table.owners == {}


def test_a_table_is_stored_and_read_back() -> None:
    table = given(joined(Table(), "c1/hot/0"), "c1/hot/0", "x", {3: 7, 12: 1})
    assert decode_table(encode_table(table)) == table
