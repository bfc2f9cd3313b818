"""Evidence about the bytes a replayed execution refers to (RPL-6).

Each reference is fetched once and reported wherever it occurs: what its bytes are by digest, size
and kind, or why they cannot be had. The bytes themselves are never part of the answer. Bounded, and
a replay without it fetches nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl_ray.errors import NoetlError, UsageError
from noetl_ray.events.canonical import digest, sha256_hex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Recorded

OCCURRENCES_MAX = 5_000
UNIQUE_MAX = 500
BYTES_MAX = 64 * 1024 * 1024
AT_ONCE = 8
ERROR_CHARS = 200


class PayloadReader(Protocol):
    """Who gives the bytes of a reference; a part of the result store."""

    async def durable_bytes(self, scope: Scope, reference: dict[str, Any]) -> bytes:
        """The bytes as they were written; raises an error of ours when they cannot be had."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A reference, and where it stands."""

    position: int
    event_id: int
    path: str
    reference: dict[str, Any]


def references_in(records: Sequence[Recorded], *, as_of: int | None = None) -> list[Occurrence]:
    """Every reference to bytes outside the log, in order.

    Raises:
        UsageError: there are more than one answer may report.
    """
    found: list[Occurrence] = []
    for recorded in records:
        if as_of is not None and recorded.position > as_of:
            break
        for event in recorded.record.events:
            held = dict(_walk(event.payload, "payload"))
            if event.payload_ref is not None:
                held["payload_ref"] = msgspec.to_builtins(event.payload_ref)
            found += [
                Occurrence(
                    position=recorded.position, event_id=event.event_id, path=path, reference=each
                )
                for path, each in held.items()
            ]
    unique = {_identity(each.reference) for each in found}
    if len(found) > OCCURRENCES_MAX or len(unique) > UNIQUE_MAX:
        msg = (
            f"{len(found)} references to {len(unique)} payloads; one answer reports at most "
            f"{OCCURRENCES_MAX} to {UNIQUE_MAX}: ask for an earlier moment with as_of_position"
        )
        raise UsageError(msg)
    return found


async def resolve_payloads(
    reader: PayloadReader, scope: Scope, occurrences: Sequence[Occurrence]
) -> dict[str, Any]:
    """Rows of evidence, and their summary."""
    wanted = {_identity(each.reference): each.reference for each in occurrences}
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(reference: dict[str, Any]) -> dict[str, Any]:
        async with gate:
            return await _evidence(reader, scope, reference)

    evidence = dict(
        zip(wanted, await asyncio.gather(*(one(each) for each in wanted.values())), strict=True)
    )
    rows = [
        {
            "position": each.position,
            "event_id": str(each.event_id),
            "path": each.path,
            "uri": each.reference["uri"],
            "sha256": each.reference["sha256"],
            "resolution": evidence[_identity(each.reference)],
        }
        for each in occurrences
    ]
    resolved = sum(row["resolution"]["resolved"] for row in rows)
    return {
        "payloads": rows,
        "payload_resolution_summary": {
            "total": len(rows),
            "resolved": resolved,
            "unresolved": len(rows) - resolved,
            "unique": len(wanted),
            "all_resolved": resolved == len(rows),
            "checksum": digest(rows),
        },
    }


async def _evidence(
    reader: PayloadReader, scope: Scope, reference: dict[str, Any]
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "resolved": False,
        "sha256": None,
        "bytes": None,
        "rows": reference.get("rows"),
        "media_type": reference.get("media_type"),
        "error": None,
    }
    size = int(reference.get("bytes") or 0)
    if size > BYTES_MAX:
        return told | {"error": f"{size} bytes are more than the {BYTES_MAX} that are looked at"}
    try:
        data = await reader.durable_bytes(scope, reference)
    except NoetlError as error:
        return told | {"error": f"{type(error).__name__}: {error.message}"[:ERROR_CHARS]}
    return told | {
        "resolved": True,
        "sha256": await asyncio.to_thread(sha256_hex, data),
        "bytes": len(data),
    }


def _walk(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if isinstance(value.get("uri"), str) and isinstance(value.get("sha256"), str):
            yield path, value
            return
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}[{index}]")


def _identity(reference: dict[str, Any]) -> tuple[str, str]:
    return str(reference["uri"]), str(reference["sha256"])
