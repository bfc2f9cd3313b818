"""The tenant scope: who a thing belongs to.

Every read and every name starts from one (invariant 6).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from noetl_ray.errors import UsageError

DEFAULT = "default"
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_RESERVED = frozenset({"tenant", "execution"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Tenant and organization, checked so that they are safe in subjects, keys and paths."""

    tenant_id: str = DEFAULT
    organization_id: str = DEFAULT

    def __post_init__(self) -> None:
        """Refuse names that could escape their segment or select another name grammar."""
        for label, value in (("tenant", self.tenant_id), ("organization", self.organization_id)):
            if not _SEGMENT.fullmatch(value) or value in _RESERVED:
                msg = (
                    f"{label} {value!r} is not allowed: use letters, digits, '-' and '_', "
                    f"at most 63, and none of {sorted(_RESERVED)}"
                )
                raise UsageError(msg)


@lru_cache(maxsize=4096)
def scope_of(tenant_id: str, organization_id: str) -> Scope:
    """The scope of two names, checked once: hot paths ask for the same few over and over."""
    return Scope(tenant_id=tenant_id, organization_id=organization_id)
