"""Stored values by reference or by name, for the tasks of one scope (section 13).

Reads results, payloads and named artifacts of its own scope; another tenant's answers as if it did
not exist. A name is a record that points to immutable bytes, so a reader sees the old value or the
new one, never a part.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.refs import RECORD_KIND, ref_record
from noetl_ray.errors import NotFoundError, ObjectMissingError, UsageError
from noetl_ray.events.canonical import sha256_hex, to_jsonable
from noetl_ray.locator.keys import artifact_key, artifact_name, artifact_prefix, result_key
from noetl_ray.locator.resource import parse_resource_uri
from noetl_ray.locator.result import SCHEME, parse_result_uri
from noetl_ray.payloads.content import get_payload, put_payload
from noetl_ray.results.codecs import (
    EXTENSIONS,
    MEDIA_FEATHER,
    MEDIA_JSON,
    as_table,
    decode_result,
    table_of,
)
from noetl_ray.results.redact import has_credentials
from noetl_ray.results.spool import PayloadSpool
from noetl_ray.results.table_parts import MEDIA_PARTS, parts_table, rows_of
from noetl_ray.results.tier import decide_tier

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from noetl_ray.results.redact import Redactor
    from noetl_ray.results.store import ResultStore
    from noetl_ray.scope import Scope

LISTED_MAX = 1_000
_ARTIFACT = "artifact"
_ARROW_MAGIC = b"ARROW1"


class Artifacts:
    """What tasks of a scope may store and read."""

    def __init__(
        self, results: ResultStore, scope: Scope, redactor: Callable[[], Redactor]
    ) -> None:
        """Bind to a scope; ``redactor`` gives what hides the secrets known at that moment."""
        self._results = results
        self._objects = results.objects
        self._placement = results.placement
        self._scope = scope
        self._redactor = redactor

    async def get(self, ref: Any) -> Any:
        """The value a record, URI or name stands for.

        Raises:
            ObjectMissingError: there is no such value in this scope (now).
            UsageError: that is not a reference.
        """
        data, media_type = await self._fetch(ref)
        if media_type == MEDIA_PARTS:
            return to_jsonable(rows_of(await parts_table(data, self._payload)))
        return _decoded(data, media_type)

    async def table(self, ref: Any) -> pa.Table:
        """The same as an Arrow table. Raises UsageError when it is none."""
        data, media_type = await self._fetch(ref)
        if media_type in EXTENSIONS:
            return as_table(media_type, data)
        if media_type == MEDIA_PARTS:
            return await parts_table(data, self._payload)
        value = _decoded(data, media_type)
        return table_of(value)

    async def put(self, name: str, value: Any) -> dict[str, Any]:
        """Store a value under a name, replacing what the name stood for."""
        key = artifact_key(self._placement, self._scope, name)
        shown = self._redactor().value(to_jsonable(value))
        decision = decide_tier(shown, force_tier=True)
        assert decision.data is not None
        objects = self._objects.for_secrets() if has_credentials(shown) else self._objects
        payload = await put_payload(
            objects, self._placement, self._scope, decision.data, decision.media_type
        )
        record = ref_record(
            payload.uri,
            store=self._objects.kind,
            size_bytes=len(decision.data),
            sha256=payload.sha256,
            content_type=payload.media_type,
            row_count=decision.rows,
        )
        record["name"] = name
        record["scope"] = "organization"
        await self._objects.put(key, msgspec.json.encode(record))
        return record

    async def list(self, prefix: str = "") -> list[dict[str, Any]]:
        """The records of the names below a prefix, by name; at most LISTED_MAX."""
        found = []
        async for info in self._objects.list(artifact_prefix(self._placement, self._scope)):
            name = artifact_name(info.key)
            if name is not None and name.startswith(prefix):
                found.append((name, info.key))
        records = []
        for name, key in sorted(found)[:LISTED_MAX]:
            try:
                record = msgspec.json.decode(await self._objects.get(key))
            except ObjectMissingError:
                continue
            records.append({**record, "name": name})
        return records

    def spool(self) -> PayloadSpool:
        """A place for a body that is too large for memory."""
        return PayloadSpool(self._objects, self._placement, self._scope, self._redactor())

    async def bytes_of(self, ref: Any) -> tuple[bytes, str]:
        """What is stored, as it is, and its media type; for who reads the parts of a table.

        Raises:
            ObjectMissingError: there is no such value in this scope (now).
            UsageError: that is not a reference.
        """
        return await self._fetch(ref)

    async def _payload(self, uri: str) -> bytes:
        return await get_payload(self._objects, self._placement, self._scope, uri)

    async def _fetch(self, ref: Any) -> tuple[bytes, str]:
        uri, record = _reference(ref)
        if not uri.startswith(SCHEME):
            return await self._named(uri)
        meta = record.get("meta") or record
        try:
            if uri.startswith(f"{SCHEME}tenant/"):
                locator = parse_resource_uri(uri)
                if locator.kind == _ARTIFACT and locator.scope == self._scope:
                    return await self._named(locator.id)
                data = await get_payload(self._objects, self._placement, self._scope, uri)
                kind = str(meta.get("content_type") or meta.get("media_type") or "")
                return data, kind or (MEDIA_FEATHER if data.startswith(_ARROW_MAGIC) else "")
            return await self._result(uri, meta)
        except NotFoundError:
            msg = f"no value {uri}"
            raise ObjectMissingError(msg) from None

    async def _result(self, uri: str, meta: Mapping[str, Any]) -> tuple[bytes, str]:
        name = parse_result_uri(uri)
        if name.tenant != self._scope.tenant_id:
            raise NotFoundError(uri)
        for media_type, ext in EXTENSIONS.items():
            try:
                data = await self._objects.get(result_key(self._placement, name, ext))
            except ObjectMissingError:
                continue
            if meta.get("sha256") not in (None, sha256_hex(data)):
                break
            return data, media_type
        payload = meta.get("payload_uri")
        if isinstance(payload, str):
            data = await get_payload(self._objects, self._placement, self._scope, payload)
            return data, MEDIA_JSON
        msg = f"no value {uri}"
        raise ObjectMissingError(msg)

    async def _named(self, name: str) -> tuple[bytes, str]:
        key = artifact_key(self._placement, self._scope, name)
        try:
            record = msgspec.json.decode(await self._objects.get(key))
        except ObjectMissingError:
            msg = f"no artifact {name!r}"
            raise ObjectMissingError(msg) from None
        data = await get_payload(self._objects, self._placement, self._scope, record["ref"])
        return data, record["meta"]["content_type"]


def _reference(ref: Any) -> tuple[str, Mapping[str, Any]]:
    """URI or name, and what the record says beside it."""
    if isinstance(ref, str) and ref.strip():
        return ref.strip(), {}
    if isinstance(ref, Mapping):
        for key in ("ref", "uri", "_ref", "reference", "name"):
            found = ref.get(key)
            if isinstance(found, Mapping):
                return _reference(found)
            if isinstance(found, str) and found:
                return found, ref
    msg = (
        f"not a reference: give a {RECORD_KIND} record, a {SCHEME} name or the name of an artifact"
    )
    raise UsageError(msg)


def _decoded(data: bytes, media_type: str) -> Any:
    if media_type in EXTENSIONS:
        return decode_result(media_type, data)
    kind = media_type.partition(";")[0].strip().lower()
    if kind.endswith("json") or (not kind and data[:1] in (b"{", b"[")):
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # it said JSON and is not: the text is still worth having
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii")
