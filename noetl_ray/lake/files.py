"""The lake's folder, on disk or S3: whole objects, and one write that only the first may do.

Owns how jobs reach it, on the driver and on executors alike: a plain dictionary that travels as
JSON becomes a store. Spark's JVM never touches it, so no Hadoop driver is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import fsspec

from noetl_ray.errors import ObjectMissingError, StoreUnavailableError, UsageError
from noetl_ray.payloads.fsspec_store import FsspecStore

if TYPE_CHECKING:
    from noetl_ray.config.settings import Settings

Place = dict[str, str]
"""``url``, ``endpoint_url``, ``access_key``, ``secret_key``: how to reach a store."""


def lake_place(settings: Settings) -> Place:
    """Where the lake of these settings lies; it shares the credentials of the payload store."""
    store = settings.payload_store
    folder = Path(settings.data_dir).expanduser().resolve() / "lake"
    return {
        "url": settings.lake.url or folder.as_uri(),
        "endpoint_url": store.endpoint_url,
        "access_key": store.access_key,
        "secret_key": store.secret_key,
    }


def objects_place(settings: Settings) -> Place:
    """Where the objects of these settings lie."""
    store = settings.payload_store
    folder = Path(settings.data_dir).expanduser().resolve() / "objects"
    return {
        "url": store.url or folder.as_uri(),
        "endpoint_url": store.endpoint_url,
        "access_key": store.access_key,
        "secret_key": store.secret_key,
    }


class Files:
    """Objects below one URL, by blocking calls."""

    def __init__(self, place: Place) -> None:
        """Contact nothing yet."""
        self.place = place
        parts = urlsplit(place["url"])
        if parts.scheme not in ("file", "s3"):
            msg = f"lake.url {place['url']!r} must be file:// or s3://"
            raise UsageError(msg)
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._root = f"{parts.netloc}{parts.path}".rstrip("/")
        self._store = FsspecStore.open(**place)

    def put(self, key: str, data: bytes) -> None:
        """Write whole and durably."""
        asyncio.run(self._store.put(key, data))

    def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissingError."""
        return asyncio.run(self._store.get(key))

    def delete(self, key: str) -> None:
        """Remove, when it is there."""
        asyncio.run(self._store.delete(key))

    def list(self, prefix: str) -> list[tuple[str, int]]:
        """Keys below a folder and their sizes, in order."""

        async def listed() -> list[tuple[str, int]]:
            return [(info.key, info.size_bytes) async for info in self._store.list(prefix)]

        return asyncio.run(listed())

    def create(self, key: str, data: bytes) -> bool:
        """Write whole, only if nothing is there; whether it was this call that wrote it."""
        if self._folder is not None:
            return _create_file(self._folder / key, data)
        try:
            self.filesystem().pipe_file(self.path(key), data, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            if self._is_taken(error):
                return False
            msg = f"cannot write {key}: {error}"
            raise StoreUnavailableError(msg) from None
        return True

    def path(self, key: str) -> str:
        """The path for :meth:`filesystem`; for a folder it is a path of the machine."""
        return str(self._folder / key) if self._folder is not None else f"{self._root}/{key}"

    def filesystem(self) -> Any:
        """The fsspec file system below."""
        if self._folder is not None:
            return fsspec.filesystem("file")
        return fsspec.filesystem(
            "s3",
            key=self.place["access_key"] or None,
            secret=self.place["secret_key"] or None,
            endpoint_url=self.place["endpoint_url"] or None,
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def age_s(self, key: str) -> float:
        """Seconds since an object was written; 0 when it is not there."""
        with contextlib.suppress(FileNotFoundError, ObjectMissingError):
            if self._folder is not None:
                return max(0.0, time.time() - (self._folder / key).stat().st_mtime)
            modified = self.filesystem().modified(self.path(key))
            return max(0.0, time.time() - float(modified.timestamp()))
        return 0.0

    @staticmethod
    def _is_taken(error: OSError) -> bool:
        return "PreconditionFailed" in str(error) or "At least one of the pre-conditions" in str(
            error
        )


def _create_file(path: Path, data: bytes) -> bool:
    """A link to a finished file appears at once, and only where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError:
            return False
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True
    finally:
        Path(name).unlink(missing_ok=True)
