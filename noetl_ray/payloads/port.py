"""The object port: bytes under a key, whole or not at all. One store serves results and payloads.

Keys are made by :mod:`noetl_ray.locator` only. A put replaces the same key with the same bytes, so
a repeated put is harmless (WAL-7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a store knows of an object without reading it."""

    key: str
    size_bytes: int
    """As it lies there: a sealed object is a little longer than its bytes."""
    changed_ms: int | None = field(default=None, compare=False)
    """When it was written last, where the store knows."""


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

    async def get_file(self, key: str, path: str) -> None:
        """Like get, into a local file, without holding it in memory; nothing is left of a failure.

        What stood at the path before is replaced.
        """
        ...

    async def has(self, key: str, size_bytes: int) -> bool:
        """Whether an object of so many bytes lies there, so that writing it again is idle."""
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

    def for_secrets(self) -> ObjectStore:
        """The same objects, for writing bytes that hold credentials: sealed where that is set up.

        Reading is the same through either.
        """
        ...

    def copies(self) -> Sequence[ObjectStore]:
        """The places that each hold all objects, the primary first; itself when there is one."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
