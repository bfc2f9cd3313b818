"""Reading results by name, from the nearest tier that has them; always the bytes that are named.

Where the bytes lie is derived from the name, never looked up. Another tenant's name is answered as
if it did not exist. What an object store gives is compared with the digest in the event before
anybody sees it; another copy is asked when it is not the same.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from noetl_ray.engine.state import LOOP_TIER, LOOP_TIERS, MANIFEST_TIER, loop_result
from noetl_ray.errors import NotFoundError, ObjectMissingError, StoreError, UsageError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.resource import PAYLOADS
from noetl_ray.locator.result import ResultName, parse_result_uri
from noetl_ray.payloads.content import get_payload
from noetl_ray.payloads.shared import Data, TierKey
from noetl_ray.results.codecs import (
    EXTENSIONS,
    MEDIA_FEATHER,
    MEDIA_JSON,
    as_table,
    decode_result,
    table_from_path,
    table_of,
)
from noetl_ray.results.manifest import parts as manifest_parts
from noetl_ray.results.ref import is_reference, result_body

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.payloads.tiers import Tiers
    from noetl_ray.scope import Scope

OFFLOAD_BYTES = 262_144
"""Above about this size encoding and decoding leave the event loop."""

T = TypeVar("T")


class ResultReader:
    """Results of one object store and one placement, read only."""

    def __init__(
        self,
        objects: ObjectStore,
        placement: Placement,
        *,
        offload_bytes: int | None = OFFLOAD_BYTES,
        tiers: Tiers | None = None,
    ) -> None:
        """Bind the store.

        Args:
            objects: Where bytes lie.
            placement: What keys need beside names.
            offload_bytes: From which size on threads decode; None never (the simulator has no
                threads).
            tiers: Nearer copies of what is durable; None reads the store each time.
        """
        self.objects = objects
        self.placement = placement
        self.tiers = tiers
        self._offload_bytes = offload_bytes

    async def load(self, scope: Scope, result: dict[str, Any]) -> Any:
        """The whole value of a result.

        Raises:
            NotFoundError: it is another tenant's.
            ObjectMissingError: its bytes are not there, or not the ones its event names.
        """
        if result.get("tier") == LOOP_TIER:
            parts = [None if p is None else await self.load(scope, p) for p in result["parts"]]
            return loop_result(parts, result["stats"])
        if result.get("tier") == MANIFEST_TIER:
            return loop_result(await self._assembled(scope, result), result["stats"])
        if not is_reference(result):
            return result_body(result)
        reference = result["reference"]
        data, media_type = await self._fetch(scope, reference)
        return await self._work(self._is_large(len(data)), lambda: decode_result(media_type, data))

    async def _assembled(self, scope: Scope, result: dict[str, Any]) -> list[Any]:
        """What the items of a framed loop gave, None for those that never ran."""
        manifest = result["manifest"]
        values: list[Any] = [None] * manifest["total"]
        parts = manifest_parts(self.objects, self.placement, scope, manifest, self.load)
        async for first, given in parts:
            values[first : first + len(given)] = given
        return values

    async def find(self, scope: Scope, name: ResultName) -> tuple[Any] | None:
        """The value stored at a coordinate, in a tuple; None when there is none.

        Asks the store and not an event, so there is no digest to compare with: objects are written
        whole or not at all.

        Raises:
            NotFoundError: it is another tenant's.
            StoreError: the store did not say.
        """
        self._check_tenant(scope, name)
        for media_type, ext in EXTENSIONS.items():
            try:
                data = await self.objects.get(result_key(self.placement, name, ext))
            except ObjectMissingError:
                continue
            large = self._is_large(len(data))
            return (await self._work(large, partial(decode_result, media_type, data)),)
        return None

    async def table(self, scope: Scope, result: dict[str, Any]) -> pa.Table:
        """A result as an Arrow table: mapped where it is a local file, else read.

        Raises:
            NotFoundError: it is another tenant's.
            ObjectMissingError: its bytes are not there, or not the ones its event names.
            UsageError: it is not a table.
        """
        if result.get("tier") in LOOP_TIERS:
            return table_of((await self.load(scope, result))["results"])
        if not is_reference(result):
            return table_of(result_body(result))
        reference = result["reference"]
        key = self._key(scope, reference)
        if reference["media_type"] == MEDIA_FEATHER and self.tiers is None:
            path = self.objects.local_path(key)
            if path is not None and await self.objects.has(key, reference["bytes"]):
                return table_from_path(path)
        data, media_type = await self._fetch(scope, reference)
        return await self._work(self._is_large(len(data)), lambda: as_table(media_type, data))

    async def _fetch(self, scope: Scope, reference: dict[str, Any]) -> tuple[Data, str]:
        """Bytes and media type, from the nearest tier that has them."""
        if self.tiers is None or reference.get("secret"):
            return await self._durable(scope, reference)
        place = self._key(scope, reference)
        name = parse_result_uri(reference["uri"])
        key = _tier_key(scope, name, reference)
        media_type = key.media_type

        async def durable() -> tuple[bytes, bool]:
            nonlocal media_type
            data, media_type = await self._durable(scope, reference)
            return data, media_type == key.media_type

        data = await self.tiers.fetch(
            key, reference.get("ipc"), local=self.objects.local_path(place), durable=durable
        )
        return data, media_type

    async def durable_bytes(self, scope: Scope, reference: dict[str, Any]) -> bytes:
        """The bytes of a result or of a payload as the store has them, checked.

        Raises:
            NotFoundError: it is another tenant's.
            ObjectMissingError: the bytes are not there, or not the ones named.
        """
        uri = str(reference.get("uri"))
        if f"/{PAYLOADS}/" in uri:
            return await get_payload(self.objects, self.placement, scope, uri)
        data, _ = await self._durable(scope, reference)
        return data

    async def cached(self, scope: Scope, reference: dict[str, Any]) -> Data | None:
        """What the nearer tiers have of a result, without asking the store; None for nothing."""
        if self.tiers is None or reference.get("secret") or "bytes" not in reference:
            return None
        key = _tier_key(scope, parse_result_uri(reference["uri"]), reference)
        return await self.tiers.peek(key, reference.get("ipc"))

    async def _durable(self, scope: Scope, reference: dict[str, Any]) -> tuple[bytes, str]:
        """Bytes and media type: the object at its own key, or the payload it is to be made from."""
        key = self._key(scope, reference)
        try:
            data = await self.objects.get(key)
        except ObjectMissingError:
            payload_uri = reference.get("payload_uri")
            if payload_uri is None:
                raise
            return await get_payload(self.objects, self.placement, scope, payload_uri), MEDIA_JSON
        if not await self._matches(data, reference):
            data = await self._other_copy(key, reference)
        return data, reference["media_type"]

    async def _matches(self, data: bytes, reference: dict[str, Any]) -> bool:
        digest = await self._work(self._is_large(len(data)), lambda: sha256_hex(data))
        return bool(digest == reference["sha256"])

    async def _other_copy(self, key: str, reference: dict[str, Any]) -> bytes:
        """The bytes an event names, from whichever copy still has them; the nearest had not."""
        copies = self.objects.copies()
        for copy in copies if len(copies) > 1 else ():
            try:
                data = await copy.get(key)
            except StoreError:
                continue
            if await self._matches(data, reference):
                return data
        msg = f"the bytes of {reference['uri']} are not the ones its event names"
        raise ObjectMissingError(msg)

    def _key(self, scope: Scope, reference: dict[str, Any]) -> str:
        name = parse_result_uri(str(reference.get("uri")))
        self._check_tenant(scope, name)
        ext = EXTENSIONS.get(str(reference.get("media_type")))
        if ext is None or "sha256" not in reference:
            msg = f"the reference to {name.uri} lacks a known media type or its digest"
            raise UsageError(msg)
        return result_key(self.placement, name, ext)

    def _check_tenant(self, scope: Scope, name: ResultName) -> None:
        if name.tenant != scope.tenant_id:
            msg = f"no result {name.uri}"
            raise NotFoundError(msg)

    def _is_large(self, size_bytes: int) -> bool:
        return self._offload_bytes is not None and size_bytes > self._offload_bytes

    async def _work(self, large: bool, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if large else work()


def _tier_key(scope: Scope, name: ResultName, reference: dict[str, Any]) -> TierKey:
    return TierKey(
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        execution_id=name.execution_id,
        sha256=reference["sha256"],
        size_bytes=reference["bytes"],
        media_type=reference["media_type"],
        schema_digest=reference.get("schema_digest"),
        rows=reference.get("rows"),
    )
