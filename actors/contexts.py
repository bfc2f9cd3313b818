"""Values of commands and requests kept outside the log.

Too large for it, or too secret (P24, SEC-1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.payloads.content import get_payload, put_payload

if TYPE_CHECKING:
    from noetl_ray.events.envelope import PayloadRef
    from noetl_ray.locator.keys import Placement
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.scope import Scope


class ContextStore:
    """JSON mappings as content-addressed payloads."""

    def __init__(self, objects: ObjectStore, placement: Placement) -> None:
        self._objects = objects
        self._placement = placement

    async def put(self, scope: Scope, data: bytes) -> PayloadRef:
        """Keep canonical JSON bytes; sealed, because nobody looked for secrets in all of them."""
        objects = self._objects.for_secrets()
        return await put_payload(objects, self._placement, scope, data, "application/json")

    async def load(self, scope: Scope, ref: PayloadRef) -> dict[str, Any]:
        """The mapping a reference names."""
        data = await get_payload(self._objects, self._placement, scope, ref.uri)
        return msgspec.json.decode(data, type=dict[str, Any])
