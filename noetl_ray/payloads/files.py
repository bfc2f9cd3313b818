"""Objects as files below one folder: temp file, fsync, atomic rename (PAY-4).

A reader sees the old bytes or the new, never a part. Keys that could leave the folder are refused.
Blocking calls run on threads, off the event loop.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from noetl_ray.errors import UsageError
from noetl_ray.payloads.checks import check_key, check_prefix, map_error, whole_file
from noetl_ray.payloads.port import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from noetl_ray.payloads.port import ObjectStore

T = TypeVar("T")

_COPY_BYTES = 1 << 20
_TEMP = ".tmp"
"""Folder of half-written files: on the same file system as their targets, never listed."""


class FileObjects:
    """An object store in a folder."""

    kind = "disk"

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    async def put(self, key: str, data: bytes) -> None:
        """Write whole and atomically; raises StoreUnavailableError."""
        path = self._path(key)
        await self._run("write", key, lambda: self._write(path, io.BytesIO(data)))

    async def put_file(self, key: str, path: str) -> None:
        """Like put, from a local file, without holding it in memory; the file stays."""
        target = self._path(key)

        def copy() -> None:
            with Path(path).open("rb") as source:
                self._write(target, source)

        await self._run("write", key, copy)

    async def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissingError or StoreUnavailableError."""
        path = self._path(key)
        return await self._run("read", key, path.read_bytes)

    async def get_file(self, key: str, path: str) -> None:
        """Read into a local file, in pieces."""
        source = self._path(key)

        def copy() -> None:
            with source.open("rb") as file, whole_file(path) as target:
                shutil.copyfileobj(file, target, _COPY_BYTES)

        await self._run("read", key, copy)

    async def has(self, key: str, size_bytes: int) -> bool:
        """Whether an object of so many bytes lies there."""
        found = await self.info(key)
        return found is not None and found.size_bytes == size_bytes

    async def info(self, key: str) -> ObjectInfo | None:
        """Size, or None when there is no such object."""
        path = self._path(key)
        return await self._run("look at", key, lambda: _info(key, path))

    async def delete(self, key: str) -> None:
        """Remove; no error when there is nothing."""
        path = self._path(key)
        await self._run("delete", key, lambda: path.unlink(missing_ok=True))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects below a folder, by key."""
        folder = check_prefix(prefix)
        for info in await self._run(
            "list", folder, lambda: sorted(self._walk(folder), key=_by_key)
        ):
            yield info

    def local_path(self, key: str) -> str | None:
        """The file itself, when it is there."""
        path = self._path(key)
        return str(path) if path.is_file() else None

    def for_secrets(self) -> ObjectStore:
        """Itself: nothing is sealed here."""
        return self

    def copies(self) -> Sequence[ObjectStore]:
        """Itself: there is one copy."""
        return (self,)

    async def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> Path:
        check_key(key)
        path = self.root.joinpath(*key.split("/"))
        if key.split("/")[0] == _TEMP or not path.is_relative_to(self.root):
            msg = f"object key {key[:80]!r} is not allowed"
            raise UsageError(msg)
        return path

    def _write(self, path: Path, source: BinaryIO) -> None:
        temp = self.root / _TEMP
        _make_folder(temp)
        _make_folder(path.parent)
        descriptor, name = tempfile.mkstemp(dir=temp)
        try:
            with os.fdopen(descriptor, "wb") as file:
                shutil.copyfileobj(source, file, _COPY_BYTES)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _walk(self, folder: str) -> Iterator[ObjectInfo]:
        for parent, folders, files in os.walk(self.root / folder):
            if Path(parent) == self.root and _TEMP in folders:
                folders.remove(_TEMP)
            for file in files:
                path = Path(parent) / file
                found = _info(path.relative_to(self.root).as_posix(), path)
                if found is not None:
                    yield found

    async def _run(self, action: str, key: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except Exception as error:
            mapped = map_error(error, action, key)
            if mapped is None:
                raise
            raise mapped from error


def _by_key(info: ObjectInfo) -> str:
    return info.key


def _info(key: str, path: Path) -> ObjectInfo | None:
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return ObjectInfo(key=key, size_bytes=state.st_size, changed_ms=state.st_mtime_ns // 1_000_000)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each durable: a file in a lost folder is lost."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync_folder(new.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
