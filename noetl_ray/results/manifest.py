"""Results of a framed loop: one object per finished range, put together when somebody asks.

A part is JSON: ``values`` in the order of the collection, and ``stored`` result blocks of those
that were too large to lie among the others. Its place follows from the manifest's name, its first
index and the attempt that gave it; the manifest's digest covers all parts.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.ranges import mixed, parts_of
from noetl_ray.errors import NotFoundError, ObjectMissingError
from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import parse_result_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from noetl_ray.engine.ranges import Part
    from noetl_ray.locator.result import ResultName
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.scope import Scope

PARTS_AT_ONCE = 8


def part_bytes(values: list[bytes], stored: Mapping[int, dict[str, Any]]) -> bytes:
    """A part from values that are JSON already; a stored one has ``null`` in its place."""
    blocks = canonical_json({str(offset): block for offset, block in stored.items()})
    return b'{"values":[' + b",".join(values) + b'],"stored":' + blocks + b"}"


def part_name(base: ResultName, first: int, attempt: int) -> ResultName:
    """The name of a part."""
    return replace(base, row=first, attempt=attempt)


async def parts(
    objects: ObjectStore,
    placement: Placement,
    scope: Scope,
    manifest: Mapping[str, Any],
    load: Callable[[Scope, dict[str, Any]], Awaitable[Any]],
) -> AsyncIterator[tuple[int, list[Any]]]:
    """First index and values of each part, in order, a few parts in memory at a time.

    Raises:
        NotFoundError: it is another tenant's.
        ObjectMissingError: a part is not there, or not the one that was committed.
    """
    base = parse_result_uri(str(manifest["uri"]))
    if base.tenant != scope.tenant_id:
        msg = f"no result {base.uri}"
        raise NotFoundError(msg)

    async def one(part: Part) -> tuple[str, int, list[Any]]:
        first, _count, attempt = part
        data = await objects.get(result_key(placement, part_name(base, first, attempt), "json"))
        found = msgspec.json.decode(data)
        values: list[Any] = found["values"]
        for offset, block in found["stored"].items():
            values[int(offset)] = await load(scope, block)
        return sha256_hex(data), first, values

    digest = ""
    wanted = list(parts_of(manifest["parts"]))
    for start in range(0, len(wanted), PARTS_AT_ONCE):
        for sha256, first, values in await asyncio.gather(
            *(one(part) for part in wanted[start : start + PARTS_AT_ONCE])
        ):
            digest = mixed(digest, sha256)
            yield first, values
    if digest != manifest["digest"]:
        msg = f"the parts of {base.uri} are not the ones its loop committed"
        raise ObjectMissingError(msg)
