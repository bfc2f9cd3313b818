"""Content-addressed payloads: once per scope, checked on reading."""

from __future__ import annotations

import pytest

from noetl_ray.errors import NotFoundError, ObjectMissingError, UsageError
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.content import get_payload, put_payload
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.scope import Scope

SCOPE = Scope(tenant_id="acme", organization_id="ops")
PLACEMENT = Placement()


@pytest.mark.asyncio
async def test_pay_2_equal_bytes_are_uploaded_once():
    puts = []

    async def note(operation, key):
        if operation == "put":
            puts.append(key)

    objects = MemoryObjects(note)
    first = await put_payload(objects, PLACEMENT, SCOPE, b"data", "text/plain")
    again = await put_payload(objects, PLACEMENT, SCOPE, b"data", "text/plain")
    other = await put_payload(objects, PLACEMENT, SCOPE, b"more", "text/plain")
    assert first == again != other
    assert len(puts) == 2
    assert (first.bytes, first.media_type) == (4, "text/plain")
    assert first.uri.endswith(first.sha256)
    assert await get_payload(objects, PLACEMENT, SCOPE, first.uri) == b"data"


@pytest.mark.asyncio
async def test_pay_2_sharing_never_crosses_a_scope():
    objects = MemoryObjects()
    ref = await put_payload(objects, PLACEMENT, SCOPE, b"data", "text/plain")
    for other in (Scope(tenant_id="acme"), Scope(organization_id="ops")):
        with pytest.raises(NotFoundError):
            await get_payload(objects, PLACEMENT, other, ref.uri)
        await put_payload(objects, PLACEMENT, other, b"data", "text/plain")
    assert len([info async for info in objects.list("")]) == 3


@pytest.mark.asyncio
async def test_changed_or_missing_bytes_are_told():
    objects = MemoryObjects()
    ref = await put_payload(objects, PLACEMENT, SCOPE, b"data", "text/plain")
    (info,) = [info async for info in objects.list("")]
    await objects.put(info.key, b"tada")
    with pytest.raises(ObjectMissingError):
        await get_payload(objects, PLACEMENT, SCOPE, ref.uri)
    await objects.delete(info.key)
    with pytest.raises(ObjectMissingError):
        await get_payload(objects, PLACEMENT, SCOPE, ref.uri)


@pytest.mark.asyncio
async def test_only_payload_names_are_taken():
    with pytest.raises(UsageError):
        await get_payload(MemoryObjects(), PLACEMENT, SCOPE, "noetl://tenant/acme/org/ops/worker/w")
