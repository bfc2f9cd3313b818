"""The table of owners in a NATS key-value bucket. Owns the bucket ``noetl_shards``.

Losing it loses no decision: owners that live write down again what they remember.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.wal.small_records import SmallRecords

if TYPE_CHECKING:
    from noetl_ray.wal.connection import Connection

BUCKET = "noetl_shards"


class NatsOwners:
    """The table port over one record."""

    def __init__(self, connection: Connection, *, kind: str = "conductor") -> None:
        """Bind the table of one kind of owner; nothing is opened yet."""
        self._records = SmallRecords(
            connection, BUCKET, in_memory=False, what="the table of shard owners"
        )
        self._kind = kind

    async def read(self) -> tuple[bytes | None, int]:
        """The record and its version; None when there is none."""
        return await self._records.read(self._kind)

    async def write(self, data: bytes, version: int) -> bool:
        """Replace it unless it has changed since."""
        return await self._records.write(self._kind, data, version)
