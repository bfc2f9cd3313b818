"""Collections of framed loops outside the log: cut into parts when a stage opens, read by ranges.

A collection is a manifest of content-addressed parts. Whoever opens the stage writes it once; the
worker that holds a frame reads just the parts its range touches, and remembers a few.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import PayloadRef

if TYPE_CHECKING:
    from actors.contexts import ContextStore
    from noetl_ray.scope import Scope

PART_ITEMS = 1_000
PART_BYTES = 1_048_576
CACHED_BYTES = 16_777_216
"""Parts and manifests one worker remembers, by the bytes they came in."""


async def put_collection(contexts: ContextStore, scope: Scope, items: list[Any]) -> PayloadRef:
    """Store a collection; the reference of its manifest."""
    parts: list[dict[str, Any]] = []
    encoded: list[bytes] = []
    size = first = 0

    async def flush() -> None:
        nonlocal size, first
        ref = await contexts.put(scope, b'{"items":[' + b",".join(encoded) + b"]}")
        part = {"first": first, "count": len(encoded), "ref": msgspec.to_builtins(ref)}
        parts.append(part)
        first += len(encoded)
        encoded.clear()
        size = 0

    for item in items:
        data = canonical_json(item)
        if encoded and (len(encoded) >= PART_ITEMS or size + len(data) > PART_BYTES):
            await flush()
        encoded.append(data)
        size += len(data)
    if encoded:
        await flush()
    return await contexts.put(scope, canonical_json({"total": len(items), "parts": parts}))


class CollectionReader:
    """Ranges of collections, for one worker."""

    def __init__(self, contexts: ContextStore) -> None:
        self._contexts = contexts
        self._known: OrderedDict[str, tuple[int, dict[str, Any]]] = OrderedDict()
        self._bytes = 0

    async def read(self, scope: Scope, manifest: PayloadRef, first: int, count: int) -> list[Any]:
        """The items of a range.

        Raises:
            StoreError: the store failed, or a part is gone.
        """
        parts = (await self._load(scope, manifest))["parts"]
        found: list[Any] = []
        for part in parts:
            start, end = part["first"], part["first"] + part["count"]
            if end <= first or start >= first + count:
                continue
            ref = msgspec.convert(part["ref"], PayloadRef)
            items = (await self._load(scope, ref))["items"]
            found += items[max(first - start, 0) : first + count - start]
        return found

    async def _load(self, scope: Scope, ref: PayloadRef) -> dict[str, Any]:
        # Scope and digest: who may not read it must not find it remembered either.
        key = f"{scope.tenant_id}/{scope.organization_id}/{ref.sha256}"
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known[1]
        value = await self._contexts.load(scope, ref)
        size = ref.bytes or 0
        self._known[key] = size, value
        self._bytes += size
        while self._bytes > CACHED_BYTES and len(self._known) > 1:
            _, (size, _) = self._known.popitem(last=False)
            self._bytes -= size
        return value
