"""Tier 1.5 on a real Ray: shared without copies, never trusted, never needed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import pytest_asyncio

from noetl_ray.clock import SystemClock
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.tiers import MemoryTier, Tiers
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), pytest.mark.asyncio]

MB = 1 << 20
NAME = ResultName(tenant="default", project="p", execution_id=1 << 40, step="load")
ROWS = [{"n": number, "text": f"{number:0100d}"} for number in range(60_000)]
_counter = iter(range(1_000))


@pytest_asyncio.fixture
async def plasma(joined):
    """Shared memory in a namespace of its own, so that each test has a cache of its own."""
    from actors.plasma import RayPlasma, stop_caches

    made: list[str] = []

    def make(budget_mb=64, lease_s=60.0):
        made.append(f"plasma-{os.getpid()}-{next(_counter)}")
        budget_bytes = budget_mb * MB
        return RayPlasma(
            namespace=made[-1], budget_bytes=budget_bytes, lease_s=lease_s, grace_s=0.1
        )

    yield make
    for namespace in made:
        stop_caches(namespace)


def stored(folder, shared):
    tiers = Tiers(SystemClock(), memory=MemoryTier(0), shared=shared)
    return ResultStore(FileObjects(folder), Placement(), tiers=tiers)


async def offered(shared, folder, data, tag="7"):
    """Offer bytes and wait until they can be borrowed."""
    sha256 = hashlib.sha256(data).hexdigest()
    path = Path(folder) / sha256
    path.write_bytes(data)
    name = f"t/o/{tag}/{sha256}"

    async def offer():
        # A cache that was just killed is left alone for some seconds.
        return await shared.offer(name, str(path), len(data))

    await until(offer)
    return name


async def until(wanted, timeout_s=30.0):
    async with asyncio.timeout(timeout_s):
        while not (found := await wanted()):
            await asyncio.sleep(0.1)
    return found


def read_elsewhere(folder, block, namespace):
    """What another process of the node sees: rows, counts, and what it had to allocate."""
    from actors.plasma import RayPlasma

    async def read():
        shared = RayPlasma(namespace=namespace, budget_bytes=MB, lease_s=1.0)
        store = stored(folder, shared)
        before = pa.total_allocated_bytes()
        table = await store.table(Scope(), block)
        allocated = pa.total_allocated_bytes() - before
        total = sum(table.column("n").to_pylist())
        return table.num_rows, total, dict(store.tiers.counts), allocated

    return asyncio.run(read())


async def test_ray_5_another_process_of_the_node_reads_without_a_copy(plasma, tmp_path):
    import ray

    shared = plasma()
    store = stored(tmp_path, shared)
    block = await store.persist(Scope(), NAME, ROWS)
    assert block["reference"]["ipc"]["node_id"] == shared.node_id

    async def there():
        return (await shared.stats()).get("entries")

    await until(there)
    task = ray.remote(num_cpus=0)(read_elsewhere)
    rows, total, counts, allocated = await task.remote(str(tmp_path), block, shared._namespace)
    assert (rows, total) == (len(ROWS), sum(range(len(ROWS))))
    assert counts[("plasma", "hit")] == 1
    assert ("object", "read") not in counts
    assert allocated < MB
    stats = await shared.stats()
    assert stats["hits"] == 1
    assert stats["bytes"] == block["reference"]["bytes"]


async def test_cch_3_foreign_expired_and_other_schemas_are_counted_misses(plasma, tmp_path):
    shared = plasma()
    store = stored(tmp_path, shared)
    block = await store.persist(Scope(), NAME, ROWS)
    reference = block["reference"]
    changes = {
        "foreign": {"node_id": "f" * 56},
        "expired": {"valid_until": 1},
        "schema": {"schema_digest": "other"},
    }
    for outcome, change in changes.items():
        hint = {**reference["ipc"], **change}
        changed = {**block, "reference": {**reference, "ipc": hint}}
        assert (await store.table(Scope(), changed)).num_rows == len(ROWS)
        assert store.tiers.counts["plasma", outcome] == 1
    assert store.tiers.counts["object", "mapped"] == 3


async def test_a_killed_cache_hurts_no_reader_and_comes_back(plasma, tmp_path):
    import ray

    shared = plasma()
    data = np.arange(MB, dtype=np.uint32).tobytes()
    name = await offered(shared, tmp_path, data)

    async def borrow():
        return await shared.borrow(name, len(data))

    view = await until(borrow)
    pid = await ray.get_actor(
        f"noetl-cache/{shared.node_id}", namespace=shared._namespace
    ).pid.remote()
    os.kill(pid, signal.SIGKILL)
    # The reader goes on looking at the same memory while nobody owns it any more.
    for _ in range(10):
        assert view[-4:] == data[-4:]
        await asyncio.sleep(0.2)
    assert bytes(view) == data

    async def again():
        await offered(shared, tmp_path, data)
        return await borrow()

    assert bytes(await until(again, 60)) == data


async def test_cch_4_a_full_budget_refuses_at_once_and_lent_bytes_stay(plasma, tmp_path):
    shared = plasma(budget_mb=8)
    pieces = [bytes([number]) * (3 * MB) for number in range(3)]
    names = [await offered(shared, tmp_path, piece) for piece in pieces[:2]]

    async def both():
        return [await shared.borrow(n, 3 * MB) for n in names]

    async def lent():
        views = await both()
        return views if None not in views else None

    views = await until(lent)
    third = await offered(shared, tmp_path, pieces[2])
    assert await shared.borrow(third, 3 * MB) is None
    stats = await shared.stats()
    assert (stats["exhausted"], stats["entries"]) == (1, 2)
    assert [bytes(view[:1]) for view in views] == [b"\x00", b"\x01"]


async def test_more_than_plasma_holds_loses_nothing(plasma, tmp_path):
    """A budget above Ray's own store: Ray spills, readers still get their bytes."""
    shared = plasma(budget_mb=10_000)
    pieces = {number: os.urandom(1024) * (60 * 1024) for number in range(6)}
    names = {number: await offered(shared, tmp_path, piece) for number, piece in pieces.items()}
    for number, name in names.items():

        async def mine(name=name):
            return await shared.borrow(name, 60 * MB)

        view = await until(mine, 60)
        assert hashlib.sha256(view).digest() == hashlib.sha256(pieces[number]).digest()
        del view


async def test_cch_5_entries_end_with_their_lease(plasma, tmp_path):
    shared = plasma(lease_s=0.1)
    await offered(shared, tmp_path, b"x" * MB)

    async def gone():
        stats = await shared.stats()
        return stats.get("admitted") == 1 and stats["entries"] == 0

    await until(gone)


async def test_bytes_that_are_not_what_they_are_called_are_not_shared(plasma, tmp_path):
    shared = plasma()
    path = tmp_path / "file"
    path.write_bytes(b"y" * MB)
    assert await shared.offer("t/o/7/" + "a" * 64, str(path), MB)
    assert await shared.offer("t/o/7/" + "b" * 64, str(tmp_path / "absent"), MB)

    async def failed():
        return (await shared.stats()).get("failed") == 2

    await until(failed)
    assert await shared.borrow("t/o/7/" + "a" * 64, MB) is None
