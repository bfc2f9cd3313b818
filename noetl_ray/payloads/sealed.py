"""An object store whose bytes are encrypted at rest (SEC-2): all of them, or those that are secret.

Readers notice nothing: what is sealed says so itself and is opened on the way out, so a store may
hold both kinds and the setting may change at any time. A sealed object has no file to map, and so
it is never in Tier 2 or in shared memory, which both begin with a file. Objects that belong to no
tenant (positions of consumers) stay plain.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from noetl_ray.errors import StoreError
from noetl_ray.payloads.sealing import (
    HEADER_BYTES,
    MARK,
    SEGMENT_BYTES,
    is_sealed,
    seal,
    seal_file,
    sealed_size,
    tenant_of,
    unseal,
    unseal_file,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from noetl_ray.payloads.port import ObjectInfo, ObjectStore
    from noetl_ray.payloads.sealing import ObjectKeys

Encrypt = Literal["off", "secrets", "all"]


class SealedObjects:
    """A store over another one; what it writes is sealed or not, what it reads may be either."""

    def __init__(
        self, inner: ObjectStore, keys: ObjectKeys, encrypt: Encrypt, *, threads: bool = True
    ) -> None:
        """Bind the store.

        Args:
            inner: Where the bytes lie; its keys name the tenants.
            keys: Keys of tenants.
            encrypt: What is sealed: nothing, what is written through :meth:`for_secrets`, or all.
            threads: Whether large objects are sealed on threads (the simulator has none).
        """
        self.kind = inner.kind
        self.inner = inner
        self._keys = keys
        self._encrypt = encrypt
        self._threads = threads
        self._secrets: ObjectStore = (
            SealedObjects(inner, keys, "all", threads=threads) if encrypt == "secrets" else self
        )

    def for_secrets(self) -> ObjectStore:
        """The same objects; what is written through this one is sealed unless that is off."""
        return self._secrets

    async def put(self, key: str, data: bytes) -> None:
        """Write whole, sealed where that is asked."""
        tenant = self._sealing_for(key)
        if tenant is not None:
            writing = self._keys.of(tenant)[0]
            data = await self._work(len(data), lambda: seal(writing, key, data))
        await self.inner.put(key, data)

    async def put_file(self, key: str, path: str) -> None:
        """Like put, from a local file, in segments."""
        tenant = self._sealing_for(key)
        if tenant is None:
            await self.inner.put_file(key, path)
            return
        writing = self._keys.of(tenant)[0]

        def work(name: str) -> None:
            with Path(path).open("rb") as source, Path(name).open("wb") as target:
                seal_file(writing, key, source, target)

        with _temporary() as name:
            await self._work(None, lambda: work(name))
            await self.inner.put_file(key, name)

    async def get(self, key: str) -> bytes:
        """Read whole, opened; raises StoreError when it cannot be opened."""
        data = await self.inner.get(key)
        if not is_sealed(data):
            return data
        return await self._work(len(data), lambda: unseal(self._keys, key, data))

    async def get_file(self, key: str, path: str) -> None:
        """Read into a local file, opened, without holding it in memory."""
        await self.inner.get_file(key, path)

        def work() -> None:
            with Path(path).open("rb") as source:
                if not is_sealed(source.read(len(MARK))):
                    return
                source.seek(0)
                opened = Path(f"{path}.opened")
                try:
                    with opened.open("wb") as target:
                        unseal_file(self._keys, key, source, target)
                    opened.replace(path)
                except StoreError:
                    Path(path).unlink(missing_ok=True)
                    raise
                finally:
                    opened.unlink(missing_ok=True)

        await self._work(None, work)

    async def has(self, key: str, size_bytes: int) -> bool:
        """Whether an object of so many bytes lies there, in the form it would be written in.

        A sealed one will do for a plain write; a plain one will not do for a sealed write.
        """
        found = await self.inner.info(key)
        sizes = {sealed_size(size_bytes)}
        if self._sealing_for(key) is None:
            sizes.add(size_bytes)
        return found is not None and found.size_bytes in sizes

    async def info(self, key: str) -> ObjectInfo | None:
        """What the store beneath says: the size as it lies there."""
        return await self.inner.info(key)

    async def delete(self, key: str) -> None:
        """Remove; no error when there is nothing."""
        await self.inner.delete(key)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects below a prefix, with sizes as they lie there."""
        return self.inner.list(prefix)

    def local_path(self, key: str) -> str | None:
        """A file that can be mapped; a sealed one cannot."""
        path = self.inner.local_path(key)
        if path is None:
            return None
        try:
            with Path(path).open("rb") as file:
                return None if is_sealed(file.read(HEADER_BYTES)) else path
        except OSError:
            return None

    def copies(self) -> Sequence[ObjectStore]:
        """Each copy, read and written as this store does."""
        copies = self.inner.copies()
        if len(copies) == 1:
            return (self,)
        return [
            SealedObjects(copy, self._keys, self._encrypt, threads=self._threads) for copy in copies
        ]

    async def close(self) -> None:
        """Close the store beneath."""
        await self.inner.close()

    def _sealing_for(self, key: str) -> str | None:
        """Whose key seals what is written here; None writes plain."""
        return tenant_of(key) if self._encrypt == "all" else None

    async def _work(self, size_bytes: int | None, work: Callable[[], bytes | None]) -> bytes:
        """Do it here when it is small, else on a thread."""
        large = size_bytes is None or size_bytes > SEGMENT_BYTES
        done = await asyncio.to_thread(work) if large and self._threads else work()
        return done or b""


@contextlib.contextmanager
def _temporary() -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="noetl-sealed-") as file:
        yield file.name
