"""Encryption of objects at rest: what is sealed, by whose key, and what is refused."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import PayloadStoreSettings, Settings
from noetl_ray.credentials.crypto import encode_key
from noetl_ray.errors import ObjectMissingError, StoreError
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.content import get_payload, put_payload
from noetl_ray.payloads.disk_tier import DiskTier
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.payloads.opening import open_objects
from noetl_ray.payloads.sealed import SealedObjects
from noetl_ray.payloads.sealing import SEGMENT_BYTES, ObjectKeys, is_sealed, sealed_size
from noetl_ray.payloads.tiers import MemoryTier, Tiers
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.contract_objects import OBJECT_CHECKS

pytestmark = pytest.mark.asyncio

MASTER = bytes(range(32))
SCOPE = Scope(tenant_id="acme", organization_id="ops")
NAME = ResultName(tenant="acme", project="p", execution_id=1 << 40, step="login")
KEY = result_key(Placement(), NAME, "json")
LOGIN = {"user": "u", "access_token": "s3cr3t-value", "profile": {"name": "n"}}
ROWS = [{"id": n, "text": f"row {n}"} for n in range(20_000)]


def sealed(inner, encrypt="secrets", master=MASTER, older=()):
    return SealedObjects(inner, ObjectKeys(master, older=older), encrypt)


@pytest.mark.parametrize("encrypt", ["off", "secrets", "all"])
@pytest.mark.parametrize("check", OBJECT_CHECKS, ids=lambda check: check.__name__)
async def test_what_belongs_to_no_tenant_keeps_the_contract(check, encrypt):
    await check(sealed(MemoryObjects(), encrypt))


@pytest.mark.parametrize(
    "size", [0, 1, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 1, 3 * SEGMENT_BYTES]
)
async def test_sec_2_any_size_comes_back_and_lies_there_sealed(tmp_path, size):
    inner = FileObjects(tmp_path / "objects")
    store = sealed(inner, "all")
    data = os.urandom(size)
    await store.put(KEY, data)
    raw = await inner.get(KEY)
    assert is_sealed(raw)
    assert len(raw) == sealed_size(size)
    assert size < 64 or data[:64] not in raw
    assert await store.get(KEY) == data
    assert await store.has(KEY, size)
    assert not await store.has(KEY, size + 1)
    assert store.local_path(KEY) is None, "a sealed object cannot be mapped"
    await store.get_file(KEY, str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == data
    (tmp_path / "in").write_bytes(data)
    await store.put_file(KEY, str(tmp_path / "in"))
    assert await inner.get(KEY) == raw, "from a file or from memory, the same bytes"


async def test_sealing_again_gives_the_same_bytes_and_other_content_shares_nothing():
    inner = MemoryObjects()
    for master in (MASTER, MASTER):
        await sealed(inner, "all", master).put(KEY, b"one")
    first = await inner.get(KEY)
    await sealed(inner, "all").put(KEY, b"one")
    assert await inner.get(KEY) == first
    await sealed(inner, "all").put(KEY, b"two")
    second = await inner.get(KEY)
    assert first[16:] != second[16:]
    other = KEY.replace("/1.json", "/2.json")
    await sealed(inner, "all").put(other, b"one")
    assert (await inner.get(other))[16:] != first[16:], "nobody sees that two objects are equal"


async def test_ten_1_each_tenant_has_keys_of_its_own():
    inner = MemoryObjects()
    store = sealed(inner, "all")
    foreign = KEY.replace("tenant=acme", "tenant=other")
    await store.put(KEY, b"one")
    await inner.put(foreign, await inner.get(KEY))
    with pytest.raises(StoreError, match="key that is not here"):
        await store.get(foreign)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[:60] + bytes([raw[60] ^ 1]) + raw[61:],
        lambda raw: raw[: sealed_size(SEGMENT_BYTES)],
        lambda raw: raw[:48],
        lambda raw: raw[:20],
        lambda raw: raw[:48] + raw[48 + SEGMENT_BYTES + 16 :],
    ],
)
async def test_what_was_altered_cut_or_moved_is_refused(tmp_path, spoil):
    inner = MemoryObjects()
    store = sealed(inner, "all")
    await store.put(KEY, os.urandom(2 * SEGMENT_BYTES))
    await inner.put(KEY, spoil(await inner.get(KEY)))
    with pytest.raises(StoreError):
        await store.get(KEY)
    with pytest.raises(StoreError):
        await store.get_file(KEY, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


async def test_an_object_moved_to_another_place_is_refused():
    inner = MemoryObjects()
    store = sealed(inner, "all")
    await store.put(KEY, b"one")
    other = KEY.replace("/1.json", "/2.json")
    await inner.put(other, await inner.get(KEY))
    with pytest.raises(StoreError, match="moved"):
        await store.get(other)


async def test_a_former_key_still_opens_and_the_new_one_writes():
    inner = MemoryObjects()
    await sealed(inner, "all").put(KEY, b"one")
    new = bytes(32)
    with pytest.raises(StoreError, match="encryption_old_keys"):
        await sealed(inner, "all", new).get(KEY)
    store = sealed(inner, "all", new, older=(MASTER,))
    assert await store.get(KEY) == b"one"
    before = await inner.get(KEY)
    await store.put(KEY, b"one")
    assert await inner.get(KEY) != before
    assert await sealed(inner, "all", new).get(KEY) == b"one"


async def test_p28_credentials_in_results_are_sealed_and_others_are_not(tmp_path):
    inner = FileObjects(tmp_path)
    results = ResultStore(sealed(inner), Placement())
    secret = await results.persist(SCOPE, NAME, LOGIN)
    other = ResultName(tenant="acme", project="p", execution_id=1 << 40, step="load")
    plain = await results.persist(SCOPE, other, ROWS)
    raw = await inner.get(KEY)
    assert is_sealed(raw)
    assert b"s3cr3t" not in raw
    assert (await inner.get(result_key(Placement(), other, "feather"))).startswith(b"ARROW1")
    assert await results.load(SCOPE, secret) == LOGIN
    assert await results.load(SCOPE, plain) == ROWS
    assert (await results.table(SCOPE, plain)).num_rows == len(ROWS)


@pytest.mark.parametrize("value", [LOGIN, [{"id": n, "password": f"pw{n}"} for n in range(5_000)]])
@pytest.mark.parametrize("staged", [True, False])
async def test_p28_the_materializer_seals_what_it_writes(value, staged):
    inner = MemoryObjects()
    results = ResultStore(sealed(inner), Placement(), producer_stage=staged)
    result = await results.persist(SCOPE, NAME, value)
    assert await results.ensure_staged(SCOPE, result) == ("present" if staged else "written")
    for info in [info async for info in inner.list("")]:
        assert is_sealed(await inner.get(info.key)), info.key
    assert await results.load(SCOPE, result) == value


async def test_p29_secrets_are_in_no_tier_but_the_store(tmp_path):
    tiers = Tiers(
        SystemClock(), memory=MemoryTier(1 << 30), disk=DiskTier(tmp_path / "cache", 1 << 30)
    )
    results = ResultStore(sealed(MemoryObjects()), Placement(), tiers=tiers)
    result = await results.persist(SCOPE, NAME, LOGIN)
    assert await results.load(SCOPE, result) == LOGIN
    assert "ipc" not in result["reference"]
    assert not tiers.counts
    assert not (tmp_path / "cache").exists()


async def test_payloads_of_secrets_replace_plain_ones_but_not_the_other_way():
    inner = MemoryObjects()
    store = sealed(inner)
    plain = await put_payload(store, Placement(), SCOPE, b"data", "text/plain")
    secret = await put_payload(store.for_secrets(), Placement(), SCOPE, b"data", "text/plain")
    assert plain == secret
    (key,) = [info.key async for info in inner.list("")]
    raw = await inner.get(key)
    assert is_sealed(raw)
    await put_payload(store, Placement(), SCOPE, b"data", "text/plain")
    assert await inner.get(key) == raw
    assert await get_payload(store, Placement(), SCOPE, plain.uri) == b"data"


async def test_pay_3_a_file_larger_than_the_memory_cap_goes_in_and_out_sealed(tmp_path):
    store = sealed(FileObjects(tmp_path / "objects"), "all")
    source, target = tmp_path / "in", tmp_path / "out"
    with source.open("wb") as file:
        for _ in range(48):
            file.write(os.urandom(1 << 20))
    tracemalloc.start()
    try:
        await store.put_file(KEY, str(source))
        await store.get_file(KEY, str(target))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
    assert source.read_bytes() == target.read_bytes()


async def test_settings_open_a_store_that_seals_and_the_key_may_be_given(tmp_path):
    given = PayloadStoreSettings(encrypt="all", encryption_key=encode_key(MASTER))
    settings = Settings(data_dir=str(tmp_path), payload_store=given)
    store = open_objects(settings, SystemClock(), bytes(32))
    await store.put(KEY, b"one")
    assert is_sealed(await FileObjects(tmp_path / "objects").get(KEY))
    derived = Settings(data_dir=str(tmp_path), payload_store=PayloadStoreSettings(encrypt="all"))
    with pytest.raises(StoreError):
        await open_objects(derived, SystemClock(), bytes(32)).get(KEY)
    later = PayloadStoreSettings(encryption_old_keys=encode_key(MASTER))
    plain = Settings(data_dir=str(tmp_path), payload_store=later)
    reading = open_objects(plain, SystemClock(), bytes(32))
    assert await reading.get(KEY) == b"one"
    with pytest.raises(ObjectMissingError):
        await reading.get(KEY.replace("login", "none"))
