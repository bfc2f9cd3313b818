"""The proofs every object store must pass, each property one function over a fresh, empty store.

Owns what the object port promises, written as checks a user's own adapter can run too:
``OBJECT_CHECKS`` lists them all. Refuses nothing; a broken promise is an AssertionError.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from noetl_ray.errors import NoetlError, ObjectMissingError, UsageError
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.port import ObjectInfo, ObjectStore

Check = Callable[[ObjectStore], Awaitable[None]]

LARGE_BYTES = 8 * 1024 * 1024
BAD_KEYS = ("", "/a", "a//b", "a/", "../a", "a/../b", "a/./b", "..", "a\\b", "a\x00b", "a" * 1_025)


async def check_put_then_get(store: ObjectStore) -> None:
    """What was put comes back, whole; empty bytes are bytes."""
    for key, data in (("a/one", b"1"), ("a/empty", b""), ("top", bytes(range(256)))):
        await store.put(key, data)
        assert await store.get(key) == data
        assert await store.info(key) == ObjectInfo(key=key, size_bytes=len(data))


async def check_put_replaces(store: ObjectStore) -> None:
    """The last put of a key wins, nothing of the former one is left; repeating it is harmless."""
    await store.put("a/key", b"a longer first value")
    for _ in range(2):
        await store.put("a/key", b"second")
        assert await store.get("a/key") == b"second"
    assert [info.key for info in await _listed(store, "")] == ["a/key"]


async def check_put_file(store: ObjectStore) -> None:
    """A file becomes an object as if its bytes had been put, and stays where it is."""
    data = bytes(range(256)) * 4_096
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "big"
        for content in (data, b""):
            file.write_bytes(content)
            await store.put_file("a/file", str(file))
            assert await store.get("a/file") == content
            assert file.read_bytes() == content
    assert store.kind


async def check_get_file(store: ObjectStore) -> None:
    """An object comes back as a file, replacing what was there; of a failure nothing is left."""
    data = bytes(range(256)) * 4_096
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out"
        for content in (data, b"", b"short"):
            await store.put("a/file", content)
            await store.get_file("a/file", str(file))
            assert file.read_bytes() == content
        error = await _error(store.get_file("absent", str(Path(folder) / "other")))
        assert isinstance(error, ObjectMissingError), repr(error)
        assert await asyncio.to_thread(os.listdir, folder) == ["out"]


async def check_has(store: ObjectStore) -> None:
    """A whole object is told from none and from a cut one, also by those who write secrets."""
    await store.put("a/key", b"12345")
    assert await store.has("a/key", 5)
    assert not await store.has("a/key", 4)
    assert not await store.has("a/none", 5)
    secrets = store.for_secrets()
    await secrets.put("a/secret", b"12345")
    assert await secrets.has("a/secret", 5)
    assert await store.get("a/secret") == await secrets.get("a/secret") == b"12345"


async def check_missing(store: ObjectStore) -> None:
    """What is not there is told as such, and a folder is not an object."""
    await store.put("folder/key", b"x")
    for key in ("absent", "folder/absent", "folder"):
        assert await store.info(key) is None
        error = await _error(store.get(key))
        assert isinstance(error, ObjectMissingError), f"{key}: {error!r}"
        assert store.local_path(key) is None


async def check_delete(store: ObjectStore) -> None:
    """A deleted object is gone, its neighbours stay, and deleting nothing is fine."""
    await store.put("a/one", b"1")
    await store.put("a/two", b"2")
    for _ in range(2):
        await store.delete("a/one")
    assert await store.info("a/one") is None
    assert await store.get("a/two") == b"2"


async def check_list(store: ObjectStore) -> None:
    """Listing is by folder, deep, sorted, and knows sizes; a prefix never splits a name."""
    for key in ("b/2", "a/deep/er/3", "a/1", "ab/4"):
        await store.put(key, key.encode())
    assert [info.key for info in await _listed(store, "")] == ["a/1", "a/deep/er/3", "ab/4", "b/2"]
    for prefix in ("a", "a/"):
        assert await _listed(store, prefix) == [
            ObjectInfo(key="a/1", size_bytes=3),
            ObjectInfo(key="a/deep/er/3", size_bytes=11),
        ]
    assert await _listed(store, "absent") == []


async def check_bad_keys_are_refused(store: ObjectStore) -> None:
    """No key leads out of the store, whatever is asked with it."""
    for key in BAD_KEYS:
        calls = (store.put(key, b"x"), store.get(key), store.info(key), store.delete(key))
        for call in calls:
            error = await _error(call)
            assert isinstance(error, UsageError), f"{key[:40]!r}: {error!r}"
    assert await _listed(store, "") == []


async def check_derived_keys_are_accepted(store: ObjectStore) -> None:
    """Any name the locator can spell is a key the store can hold."""
    for step in ("plain", "step:task", "..", "a/b", "Ünï ✓", "%2e", "x" * 200, "a=b&c?d#e+f"):
        name = ResultName(tenant="t", project="p", execution_id=1 << 40, step=step)
        key = result_key(Placement(), name, "json")
        await store.put(key, step.encode())
        assert await store.get(key) == step.encode()
        assert [info.key for info in await _listed(store, key.rpartition("/")[0])] == [key]


async def check_large(store: ObjectStore) -> None:
    """Megabytes come back bit for bit."""
    data = bytes(range(256)) * (LARGE_BYTES // 256)
    await store.put("large", data)
    assert await store.get("large") == data


async def check_readers_see_whole_objects(store: ObjectStore) -> None:
    """While a key is being replaced, a reader gets one version or the other, never a mix."""
    versions = [bytes([number]) * 100_000 for number in range(4)]
    await store.put("key", versions[0])

    async def write() -> None:
        for version in versions:
            await store.put("key", version)

    async def read() -> None:
        for _ in range(8):
            assert await store.get("key") in versions

    await asyncio.gather(write(), write(), read(), read())


async def check_local_path(store: ObjectStore) -> None:
    """A path, where there is one, holds the object's bytes."""
    await store.put("a/key", b"mapped")
    path = store.local_path("a/key")
    if path is not None:
        assert await asyncio.to_thread(Path(path).read_bytes) == b"mapped"


OBJECT_CHECKS: tuple[Check, ...] = (
    check_put_then_get,
    check_put_replaces,
    check_put_file,
    check_get_file,
    check_has,
    check_missing,
    check_delete,
    check_list,
    check_bad_keys_are_refused,
    check_derived_keys_are_accepted,
    check_large,
    check_readers_see_whole_objects,
    check_local_path,
)
"""Run each over a store of its own."""


async def _listed(store: ObjectStore, prefix: str) -> list[ObjectInfo]:
    return [info async for info in store.list(prefix)]


async def _error(call: Awaitable[object]) -> NoetlError | None:
    try:
        await call
    except NoetlError as error:
        return error
    return None
