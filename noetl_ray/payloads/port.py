"""The object port: bytes under a key, whole or not at all. One store serves results and payloads.

Keys are made by :mod:`noetl_ray.locator` only. A put replaces the same key with the same bytes, so
a repeated put is harmless (WAL-7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a store knows of an object without reading it."""

    key: str
    size_bytes: int


class ObjectStore(Protocol):
    """Durable bytes (Tier 3)."""

    kind: str
    """What kind of place it is, in one word: ``disk``, ``s3``, ``memory``."""

    async def put(self, key: str, data: bytes) -> None:
        """Write whole and atomically; raises StoreUnavailableError."""
        ...

    async def put_file(self, key: str, path: str) -> None:
        """Like put, from a local file, without holding it in memory; the file stays."""
        ...

    async def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissingError or StoreUnavailableError."""
        ...

    async def info(self, key: str) -> ObjectInfo | None:
        """Size, or None when there is no such object."""
        ...

    async def delete(self, key: str) -> None:
        """Remove; no error when there is nothing."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects below a prefix."""
        ...

    def local_path(self, key: str) -> str | None:
        """A path that can be memory-mapped on this machine, or None."""
        ...

    def copies(self) -> Sequence[ObjectStore]:
        """The places that each hold all objects, the primary first; itself when there is one."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
