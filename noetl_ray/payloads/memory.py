"""Objects in memory: a full adapter for tests and the simulator; no threads, no clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noetl_ray.errors import ObjectMissingError
from noetl_ray.payloads.checks import check_key, check_prefix, whole_file
from noetl_ray.payloads.port import ObjectInfo

if TYPE_CHECKING:
    from noetl_ray.payloads.port import ObjectStore

Fault = Callable[[str, str], Awaitable[None]]
"""Awaited with the operation (``put get info delete list``) and the key; raises to make it fail."""


class MemoryObjects:
    """An object store in a dictionary."""

    kind = "memory"

    def __init__(self, fault: Fault | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self.fault = fault
        self._now_ms = now_ms
        self._objects: dict[str, bytes] = {}
        self._changed_ms: dict[str, int] = {}

    async def put(self, key: str, data: bytes) -> None:
        """Keep a copy of the bytes."""
        check_key(key)
        await self._meet("put", key)
        self._objects[key] = bytes(data)
        if self._now_ms is not None:
            self._changed_ms[key] = self._now_ms()

    async def put_file(self, key: str, path: str) -> None:
        """Keep a copy of the file's bytes."""
        # No threads here: the simulator has none.
        await self.put(key, _read(path))

    async def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissingError."""
        check_key(key)
        await self._meet("get", key)
        try:
            return self._objects[key]
        except KeyError:
            msg = f"no object at {key}"
            raise ObjectMissingError(msg) from None

    async def get_file(self, key: str, path: str) -> None:
        """Write the bytes to a local file."""
        data = await self.get(key)
        with whole_file(path) as target:
            target.write(data)

    async def has(self, key: str, size_bytes: int) -> bool:
        """Whether an object of so many bytes lies there."""
        found = await self.info(key)
        return found is not None and found.size_bytes == size_bytes

    async def info(self, key: str) -> ObjectInfo | None:
        """Size, or None when there is no such object."""
        check_key(key)
        await self._meet("info", key)
        data = self._objects.get(key)
        return None if data is None else self._info(key, data)

    async def delete(self, key: str) -> None:
        """Remove; no error when there is nothing."""
        check_key(key)
        await self._meet("delete", key)
        self._objects.pop(key, None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects below a folder, by key."""
        folder = check_prefix(prefix)
        await self._meet("list", folder)
        for key in sorted(self._objects):
            if not folder or key.startswith(f"{folder}/"):
                yield self._info(key, self._objects[key])

    def local_path(self, key: str) -> str | None:
        """There is no file to map."""
        check_key(key)
        return None

    def for_secrets(self) -> ObjectStore:
        """Itself: nothing is sealed here."""
        return self

    def copies(self) -> Sequence[ObjectStore]:
        """Itself: there is one copy."""
        return (self,)

    async def close(self) -> None:
        """Nothing to let go of; the objects stay for whoever holds this store."""

    def _info(self, key: str, data: bytes) -> ObjectInfo:
        return ObjectInfo(key=key, size_bytes=len(data), changed_ms=self._changed_ms.get(key))

    async def _meet(self, operation: str, key: str) -> None:
        if self.fault is not None:
            await self.fault(operation, key)


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
