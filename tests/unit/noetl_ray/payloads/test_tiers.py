"""The read order, its counts, and that no tier can make a reader fail or lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.errors import NotFoundError, ObjectMissingError
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.disk_tier import DiskTier
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.payloads.shared import TierKey, make_hint, verdict
from noetl_ray.payloads.tiers import MemoryTier, Tiers
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope

MB = 1 << 20
NAME = ResultName(tenant="default", project="p", execution_id=1 << 40, step="load")
ROWS = [{"n": number, "text": f"row {number}"} for number in range(20_000)]


def key(data=b"x", **changes):
    given = {
        "tenant_id": "t",
        "organization_id": "o",
        "execution_id": 7,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size_bytes": len(data),
        "media_type": "application/json",
        "schema_digest": "s",
    }
    return TierKey(**{**given, **changes})


def _read(path):
    return Path(path).read_bytes()


class Node:
    """Shared memory in a dictionary: what was offered can be borrowed on the same node."""

    def __init__(self, held, node_id="node-a"):
        self.held = held
        self.node_id = node_id
        self.lease_ms = 60_000

    async def offer(self, name, path, size_bytes):
        self.held[name] = _read(path)
        return True

    async def borrow(self, name, size_bytes):
        found = self.held.get(name)
        return None if found is None else memoryview(found)

    async def stats(self):
        return {}


def stored(tmp_path, *, objects=None, held=None, node_id="node-a", memory=64 * MB, disk=64 * MB):
    """A result store of one process: own memory, the node's disk and shared memory."""
    tiers = Tiers(
        SystemClock(),
        memory=MemoryTier(memory),
        disk=DiskTier(tmp_path / "cache", disk) if disk else None,
        shared=Node(held, node_id) if held is not None else None,
        shared_bytes_min=0,
    )
    store = objects if objects is not None else MemoryObjects()
    return ResultStore(store, Placement(), offload_bytes=None, tiers=tiers)


def hint(now=0, **changes):
    return {**make_hint(Node({}), key(), now), **changes}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "none"),
        (hint(), "usable"),
        (hint(node_id="node-b"), "foreign"),
        (hint(shm_name=key(tenant_id="other").name), "foreign"),
        (hint(valid_until=5), "expired"),
        (hint(valid_until="soon"), "expired"),
        (hint(schema_digest="other"), "schema"),
        (hint(byte_length=2), "schema"),
    ],
)
def test_cch_3_only_a_hint_that_is_ours_and_fresh_is_followed(given, expected):
    assert verdict(given, key(), node_id="node-a", now_ms=10) == expected


def test_ten_2_names_in_every_tier_carry_tenant_organization_and_execution(tmp_path):
    disk = DiskTier(tmp_path, MB)
    disk.put(key(), b"x")
    memory = MemoryTier(MB)
    memory.put(key(), b"x")
    assert bytes(disk.get(key())) == b"x"
    for other in (key(tenant_id="u"), key(organization_id="p"), key(execution_id=8)):
        assert memory.get(other) is None
        assert disk.get(other) is None


@pytest.mark.asyncio
async def test_cch_1_the_nearest_tier_answers(tmp_path):
    held: dict[str, bytes] = {}
    objects = MemoryObjects()
    producer = stored(tmp_path, objects=objects, held=held)
    block = await producer.persist(Scope(), NAME, ROWS)
    assert block["reference"]["ipc"]["node_id"] == "node-a"
    assert await producer.load(Scope(), block) == ROWS
    assert producer.tiers.counts["memory", "hit"] == 1

    neighbour = stored(tmp_path, objects=objects, held=held)
    assert await neighbour.load(Scope(), block) == ROWS
    assert neighbour.tiers.counts["plasma", "hit"] == 1

    held.clear()
    assert (await neighbour.table(Scope(), block)).num_rows == len(ROWS)
    assert neighbour.tiers.counts["plasma", "miss"] == 1
    assert neighbour.tiers.counts["disk", "hit"] == 1

    far = stored(tmp_path / "far", objects=objects, held={}, node_id="node-b")
    assert await far.load(Scope(), block) == ROWS
    assert far.tiers.counts["plasma", "foreign"] == 1
    assert far.tiers.counts["object", "read"] == 1
    assert await far.load(Scope(), block) == ROWS
    assert far.tiers.counts["memory", "hit"] == 1


@pytest.mark.asyncio
async def test_cch_2_nothing_is_hinted_before_it_is_durable(tmp_path):
    held: dict[str, bytes] = {}

    class Watched(MemoryObjects):
        async def put(self, key, data):
            assert not held
            await super().put(key, data)

    store = stored(tmp_path, objects=Watched(), held=held)
    assert "ipc" in (await store.persist(Scope(), NAME, ROWS))["reference"]
    assert held


@pytest.mark.asyncio
async def test_cch_4_without_tiers_results_are_the_same(tmp_path):
    on = stored(tmp_path, held={})
    off = ResultStore(MemoryObjects(), Placement(), offload_bytes=None)
    one, two = [await store.persist(Scope(), NAME, ROWS) for store in (on, off)]
    assert one["reference"].pop("ipc")
    assert one == two
    assert await on.load(Scope(), one) == await off.load(Scope(), two) == ROWS
    small = stored(tmp_path / "small", memory=0, disk=0)
    assert await small.load(Scope(), await small.persist(Scope(), NAME, ROWS)) == ROWS
    assert small.tiers.counts["object", "read"] == 1


@pytest.mark.asyncio
async def test_p28_secrets_are_kept_in_no_tier(tmp_path):
    held: dict[str, bytes] = {}
    store = stored(tmp_path, held=held)
    value = {"password": "hunter2", "rows": ROWS}
    block = await store.persist(Scope(), NAME, value)
    assert await store.load(Scope(), block) == value
    assert not held
    assert not list((tmp_path / "cache").glob("**/*"))
    assert not store.tiers.counts


@pytest.mark.asyncio
async def test_ten_2_another_tenant_gets_nothing_from_any_tier(tmp_path):
    store = stored(tmp_path, held={})
    block = await store.persist(Scope(), NAME, ROWS)
    with pytest.raises(NotFoundError):
        await store.load(Scope(tenant_id="rival"), block)
    assert store.tiers.counts["memory", "hit"] == 0


@pytest.mark.asyncio
async def test_a_corrupt_file_of_tier_2_is_a_miss_and_is_removed(tmp_path):
    objects = MemoryObjects()
    block = await stored(tmp_path, objects=objects).persist(Scope(), NAME, ROWS)
    (file,) = (path for path in (tmp_path / "cache").glob("*/*/*/*") if path.is_file())
    whole = file.read_bytes()
    for broken in (whole[:-9], b"\x00" * len(whole), b""):
        file.write_bytes(broken)
        reader = stored(tmp_path, objects=objects)
        assert await reader.load(Scope(), block) == ROWS
        assert reader.tiers.counts["disk", "miss"] == 1
        assert reader.tiers.counts["object", "read"] == 1
        assert file.read_bytes() == whole


@pytest.mark.asyncio
async def test_a_corrupt_local_object_is_never_mapped(tmp_path):
    objects = FileObjects(tmp_path / "objects")
    store = stored(tmp_path, objects=objects)
    block = await store.persist(Scope(), NAME, ROWS)
    path = objects.local_path(result_key(Placement(), NAME, "feather"))
    Path(path).write_bytes(_read(path)[:5_000] + b"\xff" + _read(path)[5_001:])
    reader = stored(tmp_path, objects=objects)
    for read in (reader.load, reader.table):
        with pytest.raises(ObjectMissingError, match="not the ones"):
            await read(Scope(), block)
    assert reader.tiers.counts["object", "error"] == 2


@pytest.mark.asyncio
async def test_a_full_disk_costs_a_tier_and_nothing_else(tmp_path):
    blocked = tmp_path / "cache"
    blocked.write_text("a file where the folder should be")
    store = stored(tmp_path, memory=0)
    block = await store.persist(Scope(), NAME, ROWS)
    assert store.tiers.counts["disk", "full"] == 1
    assert await store.load(Scope(), block) == ROWS


def test_tier_2_gives_up_the_oldest_and_sweeps_what_crashes_left(tmp_path):
    disk = DiskTier(tmp_path, 250)
    pieces = [bytes([number]) * 100 for number in range(4)]
    for piece in pieces:
        assert disk.put(key(piece), piece)
    assert [disk.get(key(piece)) is not None for piece in pieces] == [False, False, True, True]
    assert disk.put(key(b"z" * 300), b"z" * 300) is None
    (tmp_path / ".tmp" / "left").write_bytes(b"half")
    assert disk.sweep(0.0) == 0
    assert disk.sweep((tmp_path / ".tmp" / "left").stat().st_mtime + 4_000) == 1


def test_process_memory_stays_within_its_budget():
    memory = MemoryTier(1_000)
    for number in range(20):
        data = bytes([number]) * 200
        assert memory.put(key(data), data)
        assert memory.used_bytes <= 1_000
    assert not memory.put(key(b"y" * 300), b"y" * 300)
