"""The object contract for the adapters that need no server, and their own edges."""

from __future__ import annotations

import uuid

import aiohttp
import botocore.exceptions
import pytest

from noetl_ray.errors import (
    ConfigError,
    ObjectMissingError,
    StoreError,
    StoreUnavailableError,
    UsageError,
)
from noetl_ray.payloads.checks import map_error
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.fsspec_store import FsspecStore
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.testing.contract_objects import OBJECT_CHECKS


@pytest.fixture(params=["memory", "file", "fsspec-memory"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "file":
        return FsspecStore.open((tmp_path / "objects with blank").as_uri())
    return FsspecStore.open(f"memory://{uuid.uuid4().hex}/below")


@pytest.mark.parametrize("check", OBJECT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.asyncio
async def test_object_store_contract(store, check):
    await check(store)
    await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relative/folder",
        "file://",
        "file://host/folder",
        "s3://",
        "s3://bucket?x=1",
        "ftp://host/x",
    ],
)
def test_unusable_urls_are_refused(url):
    with pytest.raises(ConfigError):
        FsspecStore.open(url)


@pytest.mark.asyncio
async def test_pay_4_a_failed_write_leaves_no_part_behind(tmp_path):
    store = FileObjects(tmp_path)
    await store.put("a/key", b"old")
    (tmp_path / "blocked").write_bytes(b"a file where a folder is needed")
    with pytest.raises(StoreUnavailableError):
        await store.put("blocked/key", b"new")
    assert await store.get("a/key") == b"old"
    assert list((tmp_path / ".tmp").iterdir()) == []


@pytest.mark.asyncio
async def test_pay_4_half_written_files_are_no_objects(tmp_path):
    store = FileObjects(tmp_path)
    await store.put("a", b"1")
    (tmp_path / ".tmp" / "half").write_bytes(b"1")
    assert [info.key async for info in store.list("")] == ["a"]
    with pytest.raises(UsageError):
        await store.get(".tmp/half")


@pytest.mark.asyncio
async def test_memory_fault_hook_sees_every_call():
    seen = []

    async def note(operation, key):
        seen.append((operation, key))

    store = MemoryObjects(note)
    await store.put("k", b"")
    await store.get("k")
    await store.info("k")
    await store.delete("k")
    assert [info async for info in store.list("")] == []
    assert [operation for operation, _ in seen] == ["put", "get", "info", "delete", "list"]


@pytest.mark.parametrize(
    ("error", "action", "expected"),
    [
        (FileNotFoundError("x"), "read", ObjectMissingError),
        (FileNotFoundError("bucket"), "write", StoreError),
        (PermissionError("x"), "read", StoreError),
        (ConnectionError("x"), "read", StoreUnavailableError),
        (TimeoutError(), "write", StoreUnavailableError),
        (OSError(28, "full"), "write", StoreUnavailableError),
        (StoreUnavailableError("x"), "write", StoreUnavailableError),
    ],
)
def test_foreign_errors_become_ours(error, action, expected):
    assert type(map_error(error, action, "key")) is expected


def test_every_driver_error_is_mapped():
    modules = (botocore.exceptions, aiohttp.client_exceptions)
    kinds = {kind for module in modules for kind in vars(module).values() if is_driver_error(kind)}
    assert len(kinds) > 50
    for kind in kinds:
        # Built without its arguments, an error may be unable to describe itself.
        body = {"__module__": kind.__module__, "__str__": lambda self: "x"}
        silent = type(kind.__name__, (kind,), body)
        assert isinstance(map_error(silent.__new__(silent), "read", "key"), StoreError), kind


def is_driver_error(kind):
    return (
        isinstance(kind, type)
        and issubclass(kind, Exception)
        and kind.__module__.partition(".")[0] in {"botocore", "aiohttp"}
    )


def test_a_bug_of_ours_is_not_hidden():
    assert map_error(KeyError("x"), "read", "key") is None
