"""The proofs every table of owners and every checkpoint store must pass, over fresh, empty ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from noetl_ray.errors import VersionConflictError
from noetl_ray.shards.port import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from noetl_ray.shards.port import CheckpointStore, OwnerTable


async def a_chain_is_read_as_it_was_written(store: CheckpointStore) -> None:
    """Messages of a shard come in order, whole, and apart from those of other shards."""
    assert await store.read(0) == []
    assert await store.end(0) == 0
    first = await store.add(0, b"one", expected=0)
    other = await store.add(1, b"\x00" * MESSAGE_BYTES_MAX, expected=0)
    second = await store.add(0, b"\xff\x00", expected=first)
    assert [(each.version, each.data) for each in await store.read(0)] == [
        (first, b"one"),
        (second, b"\xff\x00"),
    ]
    assert [each.version for each in await store.read(1)] == [other]
    assert (await store.end(0), await store.end(1)) == (second, other)


async def p3_a_late_writer_is_refused(store: CheckpointStore) -> None:
    """Who states an old version writes nothing; of several at once one succeeds."""
    first = await store.add(3, b"a", expected=0)
    for stale in (0, first + 5):
        try:
            await store.add(3, b"late", expected=stale)
        except VersionConflictError:
            continue
        msg = f"version {stale} was accepted"
        raise AssertionError(msg)
    assert await store.end(3) == first
    done = await asyncio.gather(
        *(store.add(3, b"%d" % n, expected=first) for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(each, int) for each in done) == 1
    assert len(await store.read(3)) == 2


async def what_a_base_replaced_is_dropped(store: CheckpointStore) -> None:
    """Only messages of that shard and before that version go; the chain goes on."""
    versions = [0]
    for number in range(4):
        versions.append(await store.add(2, b"%d" % number, expected=versions[-1]))
    other = await store.add(5, b"x", expected=0)
    await store.drop_before(2, versions[3])
    assert [each.data for each in await store.read(2)] == [b"2", b"3"]
    assert [each.version for each in await store.read(5)] == [other]
    assert await store.add(2, b"4", expected=versions[-1]) > other


async def a_table_changes_only_under_the_version_it_was_read_at(table: OwnerTable) -> None:
    """The compare-and-set that ownership is planned by."""
    data, version = await table.read()
    assert data is None
    assert await table.write(b"one", version)
    data, now = await table.read()
    assert data == b"one"
    assert not await table.write(b"late", version)
    assert await table.write(b"two", now)
    assert (await table.read())[0] == b"two"


async def of_many_writers_of_a_table_one_wins(table: OwnerTable) -> None:
    """All others learn that it has changed."""
    _, version = await table.read()
    done = await asyncio.gather(*(table.write(b"%d" % n, version) for n in range(8)))
    assert sum(done) == 1
    data, _ = await table.read()
    assert data == b"%d" % done.index(True)


StoreCheck = Callable[["CheckpointStore"], Awaitable[None]]
TableCheck = Callable[["OwnerTable"], Awaitable[None]]

CHECKPOINT_CHECKS: tuple[StoreCheck, ...] = (
    a_chain_is_read_as_it_was_written,
    p3_a_late_writer_is_refused,
    what_a_base_replaced_is_dropped,
)
TABLE_CHECKS: tuple[TableCheck, ...] = (
    a_table_changes_only_under_the_version_it_was_read_at,
    of_many_writers_of_a_table_one_wins,
)
