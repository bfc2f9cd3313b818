"""Content-addressed payloads: immutable bytes named by their SHA-256 within a scope (PAY-2, TN-23).

Equal bytes are uploaded once per scope; sharing never crosses tenant or organization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.errors import NotFoundError, ObjectMissingError, UsageError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.events.envelope import PayloadRef
from noetl_ray.locator.keys import Placement, payload_key
from noetl_ray.locator.resource import PAYLOADS, parse_resource_uri, payload_locator

if TYPE_CHECKING:
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.scope import Scope


async def put_payload(
    objects: ObjectStore, placement: Placement, scope: Scope, data: bytes, media_type: str
) -> PayloadRef:
    """Store bytes under their digest unless they are there, and return their reference."""
    sha256 = sha256_hex(data)
    key = payload_key(placement, scope, sha256)
    if not await objects.has(key, len(data)):
        await objects.put(key, data)
    return PayloadRef(
        uri=payload_locator(scope, sha256), sha256=sha256, media_type=media_type, bytes=len(data)
    )


async def get_payload(objects: ObjectStore, placement: Placement, scope: Scope, uri: str) -> bytes:
    """The bytes a payload locator names, checked against their digest.

    Raises:
        NotFoundError: the locator belongs to another tenant or organization.
        ObjectMissingError: the bytes are not there, or not the ones named.
        UsageError: the locator does not name a payload.
    """
    locator = parse_resource_uri(uri)
    if locator.kind != PAYLOADS:
        msg = f"{uri!r} does not name a payload"
        raise UsageError(msg)
    if locator.scope != scope:
        # The same words as for a payload that never was: nobody learns what others hold.
        msg = f"no payload {uri}"
        raise NotFoundError(msg)
    data = await objects.get(payload_key(placement, scope, locator.id))
    if sha256_hex(data) != locator.id:
        msg = f"the bytes at {uri} are not the ones it names"
        raise ObjectMissingError(msg)
    return data
