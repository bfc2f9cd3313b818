"""Bytes too many for memory on their way into the payload store: through a file, in one pass.

Owns the temporary file and the digest. Known secrets are replaced while the bytes pass, so that
what is stored never held them.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl_ray.engine.refs import ref_record
from noetl_ray.locator.keys import Placement, payload_key
from noetl_ray.locator.resource import payload_locator

if TYPE_CHECKING:
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.results.redact import Redactor
    from noetl_ray.scope import Scope

FLUSH_BYTES = 1 << 20
PREVIEW_CHARS = 200


class PayloadSpool:
    """One body being stored; `finish` or `discard` it."""

    def __init__(
        self, objects: ObjectStore, placement: Placement, scope: Scope, redactor: Redactor
    ) -> None:
        self._objects = objects
        self._placement = placement
        self._scope = scope
        self._stream = redactor.stream()
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        self._head = b""
        self._size = 0
        self._file = tempfile.NamedTemporaryFile(prefix="noetl-body-", delete=False)  # noqa: SIM115

    async def write(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._buffer += self._stream.feed(chunk)
        if len(self._buffer) >= FLUSH_BYTES:
            await self._flush()

    async def finish(self, media_type: str) -> dict[str, Any]:
        """Store what was written under its digest and return its ``result_ref`` record.

        Raises:
            StoreError: it could not be stored; nothing of it is left here.
        """
        try:
            self._buffer += self._stream.end()
            await self._flush()
            self._file.close()
            sha256 = self._digest.hexdigest()
            key = payload_key(self._placement, self._scope, sha256)
            if not await self._objects.has(key, self._size):
                await self._objects.put_file(key, self._file.name)
        finally:
            await self.discard()
        return ref_record(
            payload_locator(self._scope, sha256),
            store=self._objects.kind,
            size_bytes=self._size,
            sha256=sha256,
            content_type=media_type,
            preview=self._preview(),
        )

    async def discard(self) -> None:
        """Remove the file; may be called more than once."""
        self._file.close()
        await asyncio.to_thread(Path(self._file.name).unlink, missing_ok=True)

    async def _flush(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        if not self._head:
            self._head = data[: PREVIEW_CHARS * 4]
        self._size += len(data)
        await asyncio.to_thread(self._put, data)

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)

    def _preview(self) -> str | None:
        """The first words of a text; nothing of anything else."""
        text = self._head.decode("utf-8", "ignore")[:PREVIEW_CHARS]
        return text if text.isprintable() or not set(text) - set(map(chr, range(9, 127))) else None
