"""The shared records of limits in a NATS key-value bucket. Owns the bucket ``noetl_limits``.

The bucket lives in memory: after a restart of the server the limits begin anew, which costs at most
one burst.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError
from nats.js.api import StorageType
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from noetl_ray.errors import StoreUnavailableError

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

    from noetl_ray.wal.connection import Connection

BUCKET = "noetl_limits"


class NatsLimits:
    """A LimitTable; the bucket is made when it is first needed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket: KeyValue | None = None

    async def read(self, key: str) -> tuple[bytes | None, int]:
        """The record and its version; 0 when there is none."""
        try:
            bucket = await self._open()
            entry = await bucket.get(_name(key))
        except KeyNotFoundError:
            return None, 0
        except (NatsError, TimeoutError, OSError) as error:
            self._bucket = None
            raise _unavailable(error) from None
        return entry.value, entry.revision or 0

    async def write(self, key: str, data: bytes, version: int) -> bool:
        """Replace it unless it has changed since."""
        try:
            bucket = await self._open()
            await bucket.update(_name(key), data, last=version)
        except KeyWrongLastSequenceError:
            return False
        except (NatsError, TimeoutError, OSError) as error:
            self._bucket = None
            raise _unavailable(error) from None
        return True

    async def _open(self) -> KeyValue:
        if self._bucket is None:
            stream = self._connection.jetstream()
            self._bucket = await stream.create_key_value(
                bucket=BUCKET, history=1, storage=StorageType.MEMORY
            )
        return self._bucket


def _name(key: str) -> str:
    """Targets hold characters that keys may not."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _unavailable(error: Exception) -> StoreUnavailableError:
    msg = f"the limits cannot be reached: {type(error).__name__}"
    return StoreUnavailableError(msg)
