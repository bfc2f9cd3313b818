"""Tier 1.5 as the kernel sees it: memory that processes of one node share, by hints (CCH-3, PAY-7).

A hint says that a node was offered some bytes. It is never the truth: one from another node, one
whose time is over and one that speaks of another schema are misses, told apart and counted. Bytes
are always durable before a hint is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

Data = bytes | memoryview
Verdict = Literal["usable", "none", "foreign", "expired", "schema"]

SHARED_BYTES_MIN = 262_144
"""Below this a call to another process costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierKey:
    """What cached bytes are called: never without tenant, organization and execution (TEN-2)."""

    tenant_id: str
    organization_id: str
    execution_id: int
    sha256: str
    size_bytes: int
    media_type: str
    schema_digest: str | None = None
    rows: int | None = None

    @property
    def name(self) -> str:
        """One text for all tiers."""
        return f"{self.tenant_id}/{self.organization_id}/{self.execution_id}/{self.sha256}"


class SharedMemory(Protocol):
    """The shared memory of the node this process runs on."""

    @property
    def node_id(self) -> str:
        """Which node that is."""
        ...

    @property
    def lease_ms(self) -> int:
        """How long what is offered may be asked for."""
        ...

    async def offer(self, name: str, path: str, size_bytes: int) -> bool:
        """Ask that a file's bytes be shared, without waiting for it; False when nobody can."""
        ...

    async def borrow(self, name: str, size_bytes: int) -> memoryview | None:
        """The shared bytes without a copy, read-only; None when they are not there."""
        ...

    async def stats(self) -> dict[str, int]:
        """What the node's books say; empty when nobody answers."""
        ...


def make_hint(shared: SharedMemory, key: TierKey, now_ms: int) -> dict[str, Any]:
    """What an event says of bytes that were offered."""
    return {
        "node_id": shared.node_id,
        "shm_name": key.name,
        "schema_digest": key.schema_digest,
        "byte_length": key.size_bytes,
        "row_count": key.rows,
        "media_type": key.media_type,
        "valid_until": now_ms + shared.lease_ms,
    }


def verdict(hint: Mapping[str, Any] | None, key: TierKey, *, node_id: str, now_ms: int) -> Verdict:
    """Whether a hint may be followed here and now."""
    if not hint:
        return "none"
    if hint.get("node_id") != node_id or hint.get("shm_name") != key.name:
        return "foreign"
    until = hint.get("valid_until")
    if not isinstance(until, int) or until <= now_ms:
        return "expired"
    if (hint.get("schema_digest"), hint.get("byte_length")) != (key.schema_digest, key.size_bytes):
        return "schema"
    return "usable"
