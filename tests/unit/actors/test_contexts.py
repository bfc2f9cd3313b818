"""Contexts: values of commands that are too large or too secret for the log (P24, SEC-1)."""

from __future__ import annotations

import pytest

from noetl_ray.errors import NotFoundError, ObjectMissingError
from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.scope import Scope
from tests.unit.actors.rig import Rig, simulated


@simulated
async def test_a_context_reads_back_and_its_name_is_its_content(rig: Rig) -> None:
    contexts = rig.contexts()
    value = {"ctx": {"a": [1, "é"]}, "workload": {}, "steps": {}}
    data = canonical_json(value)
    ref = await contexts.put(rig.scope, data)
    assert await contexts.load(rig.scope, ref) == value
    assert ref.sha256 == sha256_hex(data)
    assert ref.uri.startswith("noetl://")
    assert (ref.media_type, ref.bytes) == ("application/json", len(data))
    assert await contexts.put(rig.scope, data) == ref
    assert len(rig.objects._objects) == 1


@simulated
async def test_invariant_6_another_tenant_does_not_find_it(rig: Rig) -> None:
    contexts = rig.contexts()
    ref = await contexts.put(rig.scope, b"{}")
    with pytest.raises(NotFoundError):
        await contexts.load(Scope(tenant_id="other"), ref)


@simulated
async def test_bytes_that_changed_are_not_believed(rig: Rig) -> None:
    contexts = rig.contexts()
    ref = await contexts.put(rig.scope, b'{"a":1}')
    (key,) = rig.objects._objects
    rig.objects._objects[key] = b'{"a":2}'
    with pytest.raises(ObjectMissingError):
        await contexts.load(rig.scope, ref)
