"""The body of an http answer: held in memory while small, else passed on into the store.

Owns reading and turning bytes into a value. A body beyond ``MEMORY_BYTES`` never stands in memory:
its value is the ``result_ref`` record of where it lies.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.errors import ToolError

if TYPE_CHECKING:
    import httpx

    from noetl_ray.tools.port import ArtifactStore

MEMORY_BYTES = 1 << 24
"""More than this goes to the store as it comes."""
BODY_BYTES_MAX = 1 << 29
"""The most that is taken where there is no store to put it."""
STORED_BYTES_MAX = 1 << 34
_SLICE_BYTES = 1 << 20


async def read_body(
    response: httpx.Response, store: ArtifactStore | None
) -> bytes | dict[str, Any]:
    """The body, or the record of where it was put. Raises ToolError when it is too large."""
    data = bytearray()
    chunks = response.aiter_bytes()
    limit = BODY_BYTES_MAX if store is None else min(MEMORY_BYTES, BODY_BYTES_MAX)
    async for chunk in chunks:
        data += chunk
        if len(data) <= limit:
            continue
        if store is None:
            raise _too_large(response, limit)
        return await _stored(response, store, data, chunks)
    return bytes(data)


async def _stored(
    response: httpx.Response, store: ArtifactStore, first: bytearray, chunks: Any
) -> dict[str, Any]:
    spool = store.spool()
    try:
        size = len(first)
        for start in range(0, size, _SLICE_BYTES):
            await spool.write(bytes(first[start : start + _SLICE_BYTES]))
        first.clear()
        async for chunk in chunks:
            size += len(chunk)
            if size > STORED_BYTES_MAX:
                raise _too_large(response, STORED_BYTES_MAX)
            await spool.write(chunk)
        return await spool.finish(_kind(response) or "application/octet-stream")
    except BaseException:
        await spool.discard()
        raise


def body_value(response: httpx.Response, body: bytes | dict[str, Any]) -> Any:
    """The body as a value: JSON when it says so, text when it is text, else base64 text."""
    if isinstance(body, dict):
        return body
    kind = _kind(response)
    if kind.endswith("json") or (not kind and body[:1] in (b"{", b"[")):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # it said JSON and is not: the text is still worth having
    try:
        return body.decode(response.charset_encoding or "utf-8")
    except (LookupError, UnicodeDecodeError):
        if kind.startswith("text/") or kind.endswith(("json", "xml")):
            return body.decode("utf-8", "replace")
        return base64.b64encode(body).decode("ascii")


def _kind(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _too_large(response: httpx.Response, limit: int) -> ToolError:
    msg = f"the answer is larger than {limit} bytes"
    return ToolError(msg, "schema", False, {"status_code": response.status_code})
