"""Small shared records in a NATS key-value bucket, changed by compare-and-set.

For what many processes keep together and can do without: counts under limits, who owns a shard.
Owns its bucket, which is made when it is first needed and again when somebody removed it. Refuses
to be a place for anything that cannot be made again.
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


class SmallRecords:
    """Records of one bucket, each with a version."""

    def __init__(self, connection: Connection, bucket: str, *, in_memory: bool, what: str) -> None:
        """Bind; nothing is opened yet.

        Args:
            connection: The log's connection, which stays the caller's.
            bucket: Its name.
            in_memory: Whether a restart of the server may empty it.
            what: What the records are, for messages.
        """
        self._connection = connection
        self._name = bucket
        self._storage = StorageType.MEMORY if in_memory else StorageType.FILE
        self._what = what
        self._bucket: KeyValue | None = None

    async def read(self, key: str) -> tuple[bytes | None, int]:
        """The record and its version; 0 when there is none. Raises StoreUnavailableError."""
        try:
            bucket = await self._open()
            entry = await bucket.get(_key(key))
        except KeyNotFoundError as error:
            # Of a record that was deleted the mark of that remains, and has a version.
            return None, error.entry.revision or 0 if error.entry is not None else 0
        except (NatsError, TimeoutError, OSError) as error:
            self._bucket = None
            raise self._unavailable(error) from None
        return entry.value, entry.revision or 0

    async def write(self, key: str, data: bytes, version: int) -> bool:
        """Replace it unless it has changed since. Raises StoreUnavailableError."""
        try:
            bucket = await self._open()
            await bucket.update(_key(key), data, last=version)
        except KeyWrongLastSequenceError:
            return False
        except (NatsError, TimeoutError, OSError) as error:
            self._bucket = None
            raise self._unavailable(error) from None
        return True

    async def _open(self) -> KeyValue:
        if self._bucket is None:
            stream = self._connection.jetstream()
            self._bucket = await stream.create_key_value(
                bucket=self._name, history=1, storage=self._storage
            )
        return self._bucket

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        msg = f"{self._what} cannot be reached: {type(error).__name__}"
        return StoreUnavailableError(msg)


def _key(key: str) -> str:
    """Names hold characters that keys may not."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]
