"""The credential port: named secrets of a tenant, encrypted at rest, never in the log (P15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from noetl_ray.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A secret record. ``data`` must never be logged, stored in events or shown."""

    name: str
    type: str
    data: dict[str, Any] = field(repr=False)
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialInfo:
    """What may be shown of a credential: everything but its data."""

    name: str
    type: str
    description: str = ""
    fields: tuple[str, ...] = ()


class CredentialStore(Protocol):
    """Keeps credentials by name within a scope."""

    async def put(self, scope: Scope, credential: Credential) -> None:
        """Add or replace."""
        ...

    async def get(self, scope: Scope, name: str) -> Credential:
        """Raises NotFoundError naming the credential and how to add it."""
        ...

    async def remove(self, scope: Scope, name: str) -> bool:
        """True when there was one."""
        ...

    async def list(self, scope: Scope) -> list[CredentialInfo]:
        """All of a scope, without data, by name."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
