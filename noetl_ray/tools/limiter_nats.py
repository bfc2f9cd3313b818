"""The shared records of limits in a NATS key-value bucket. Owns the bucket ``noetl_limits``.

The bucket lives in memory: after a restart of the server the limits begin anew, which costs at most
one burst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.wal.small_records import SmallRecords

if TYPE_CHECKING:
    from noetl_ray.wal.connection import Connection

BUCKET = "noetl_limits"


class NatsLimits(SmallRecords):
    """A LimitTable."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, BUCKET, in_memory=True, what="the limits")
