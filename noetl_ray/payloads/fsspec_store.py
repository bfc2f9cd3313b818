"""Objects over fsspec: S3 and in-process memory; and the one place that opens a store by URL.

Blocking driver calls run on threads, off the event loop (PAY-5); drivers' errors become ours.
``file://`` is served by :mod:`noetl_ray.payloads.files`, because fsspec's own local file system
does not sync to disk.
"""

from __future__ import annotations

import asyncio
import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import fsspec

from noetl_ray.errors import ConfigError
from noetl_ray.payloads.checks import check_key, check_prefix, map_error, whole_file
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.port import ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
_COPY_BYTES = 1 << 20
_SETTING = "payload_store.url"


class FsspecStore:
    """An object store below one folder (or bucket and prefix) of an fsspec file system."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = filesystem
        protocol = filesystem.protocol
        self.kind: str = protocol if isinstance(protocol, str) else protocol[0]
        self._root = root.rstrip("/")

    @staticmethod
    def open(
        url: str, *, endpoint_url: str = "", access_key: str = "", secret_key: str = ""
    ) -> ObjectStore:
        """The store a URL names; nothing is contacted yet.

        Args:
            url: ``file:///folder``, ``s3://bucket/prefix`` or ``memory://name``.
            endpoint_url: S3 only: a server that is not AWS.
            access_key: S3 only; empty leaves finding credentials to the driver.
            secret_key: S3 only.

        Raises:
            ConfigError: the URL cannot be used.
        """
        parts = urlsplit(url)
        if parts.query or parts.fragment:
            raise ConfigError(_SETTING, url, "a query or fragment has no meaning here")
        if parts.scheme == "file":
            if parts.netloc not in {"", "localhost"} or len(parts.path) < 2:
                raise ConfigError(_SETTING, url, "write file:///absolute/folder")
            return FileObjects(unquote(parts.path))
        if parts.scheme == "memory":
            return FsspecStore(fsspec.filesystem("memory"), f"/{parts.netloc}{parts.path}")
        if parts.scheme == "s3":
            if not parts.netloc:
                raise ConfigError(_SETTING, url, "write s3://bucket or s3://bucket/prefix")
            return FsspecStore(
                _s3(endpoint_url, access_key, secret_key), f"{parts.netloc}{parts.path}"
            )
        raise ConfigError(_SETTING, url, "known are file://, s3:// and memory://")

    async def put(self, key: str, data: bytes) -> None:
        """Write whole; S3 shows an object only when all of it has come."""
        path = self._path(key)
        await self._run("write", key, lambda: self._fs.pipe_file(path, data))

    async def put_file(self, key: str, path: str) -> None:
        """Like put, from a local file, sent in parts; the file stays."""
        target = self._path(key)
        await self._run("write", key, lambda: self._fs.put_file(path, target))

    async def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissingError or StoreUnavailableError."""
        path = self._path(key)
        return await self._run("read", key, lambda: bytes(self._fs.cat_file(path)))

    async def get_file(self, key: str, path: str) -> None:
        """Read into a local file, in pieces."""
        source = self._path(key)

        def copy() -> None:
            with self._fs.open(source, "rb") as file, whole_file(path) as target:
                shutil.copyfileobj(file, target, _COPY_BYTES)

        await self._run("read", key, copy)

    async def has(self, key: str, size_bytes: int) -> bool:
        """Whether an object of so many bytes lies there."""
        found = await self.info(key)
        return found is not None and found.size_bytes == size_bytes

    async def info(self, key: str) -> ObjectInfo | None:
        """Size, or None when there is no such object."""
        path = self._path(key)
        return await self._run("look at", key, lambda: self._info(key, path))

    async def delete(self, key: str) -> None:
        """Remove; no error when there is nothing."""
        path = self._path(key)
        await self._run("delete", key, lambda: self._remove(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects below a folder, by key."""
        folder = check_prefix(prefix)
        for info in await self._run("list", folder, lambda: self._find(folder)):
            yield info

    def local_path(self, key: str) -> str | None:
        """What lies elsewhere cannot be mapped."""
        check_key(key)
        return None

    def for_secrets(self) -> ObjectStore:
        """Itself: nothing is sealed here."""
        return self

    def copies(self) -> Sequence[ObjectStore]:
        """Itself: there is one copy."""
        return (self,)

    async def close(self) -> None:
        """The driver keeps its connections for the process; there is nothing to hand back."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _info(self, key: str, path: str) -> ObjectInfo | None:
        try:
            found = self._fs.info(path)
        except FileNotFoundError:
            return None
        return _described(key, found) if found["type"] == "file" else None

    def _remove(self, path: str) -> None:
        try:
            self._fs.rm_file(path)
        except FileNotFoundError:
            return

    def _find(self, folder: str) -> Sequence[ObjectInfo]:
        below = f"{self._root}/{folder}" if folder else self._root
        try:
            found: dict[str, Any] = self._fs.find(below, detail=True)
        except FileNotFoundError:
            return []
        start = len(self._root) + 1
        listed = (
            _described(path[start:], entry)
            for path, entry in found.items()
            if entry["type"] == "file" and path != below
        )
        return sorted(listed, key=lambda info: info.key)

    async def _run(self, action: str, key: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except Exception as error:
            mapped = map_error(error, action, key)
            if mapped is None:
                raise
            raise mapped from error


def _described(key: str, entry: Mapping[str, Any]) -> ObjectInfo:
    changed = entry.get("LastModified") or entry.get("created")
    changed_ms = int(changed.timestamp() * 1_000) if isinstance(changed, datetime) else None
    return ObjectInfo(key=key, size_bytes=int(entry["size"]), changed_ms=changed_ms)


def _s3(endpoint_url: str, access_key: str, secret_key: str) -> Any:
    return fsspec.filesystem(
        "s3",
        key=access_key or None,
        secret=secret_key or None,
        endpoint_url=endpoint_url or None,
        config_kwargs={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": READ_TIMEOUT_S,
            "retries": {"max_attempts": 2},
        },
        # A listing kept from before would hide objects other processes wrote since.
        use_listings_cache=False,
        skip_instance_cache=True,
    )
