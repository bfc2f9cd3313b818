"""Programs: found by digest, parsed once, never another tenant's."""

from __future__ import annotations

import pytest

from actors import programs as module
from noetl_ray.errors import ObjectMissingError
from noetl_ray.payloads.content import put_payload
from noetl_ray.scope import Scope
from tests.unit.actors.rig import Rig, book, simulated


async def stored(rig: Rig, name: str, scope: Scope | None = None) -> str:
    source = book("workflow: [{step: a, tool: {kind: noop}}]", name)
    kept = await put_payload(
        rig.objects, rig.cell, scope or rig.scope, source.encode(), "application/yaml"
    )
    return kept.sha256


@simulated
async def test_p12_a_program_is_what_its_digest_says(rig: Rig) -> None:
    programs = rig.programs()
    one, two = await stored(rig, "one"), await stored(rig, "two")
    assert (await programs.get(rig.scope, one)).playbook.name == "one"
    assert (await programs.get(rig.scope, two)).playbook.name == "two"
    assert (await programs.get(rig.scope, one)).playbook.digest == one


@simulated
async def test_the_store_is_asked_once(rig: Rig) -> None:
    asked: list[str] = []

    async def count(operation: str, key: str) -> None:
        asked.append(operation)

    digest = await stored(rig, "one")
    rig.objects.fault = count
    programs = rig.programs()
    assert programs.cached(rig.scope, digest) is None
    first = await programs.get(rig.scope, digest)
    assert await programs.get(rig.scope, digest) is first
    assert programs.cached(rig.scope, digest) is first
    assert asked.count("get") == 1


@simulated
async def test_one_that_is_not_there_is_said(rig: Rig) -> None:
    with pytest.raises(ObjectMissingError):
        await rig.programs().get(rig.scope, "0" * 64)


@simulated
async def test_invariant_6_another_tenants_program_is_not_found(rig: Rig) -> None:
    digest = await stored(rig, "one")
    programs = rig.programs()
    await programs.get(rig.scope, digest)
    other = Scope(tenant_id="other")
    assert programs.cached(other, digest) is None
    with pytest.raises(ObjectMissingError):
        await programs.get(other, digest)


@simulated
async def test_the_cache_lets_go_of_the_one_unused_for_longest(rig: Rig) -> None:
    digests = [await stored(rig, f"p{i}") for i in range(module.PROGRAMS_MAX + 1)]
    programs = rig.programs()
    for digest in digests[:-1]:
        await programs.get(rig.scope, digest)
    programs.cached(rig.scope, digests[0])
    await programs.get(rig.scope, digests[-1])
    assert programs.cached(rig.scope, digests[0]) is not None
    assert programs.cached(rig.scope, digests[1]) is None
