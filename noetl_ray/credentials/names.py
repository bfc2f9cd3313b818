"""Common to all credential stores: names, what may be shown, the error for a missing one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from noetl_ray.credentials.port import Credential, CredentialInfo
from noetl_ray.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from noetl_ray.scope import Scope

NAME_LENGTH_MAX = 128


def checked_name(name: str) -> str:
    """The name, if it can be one.

    Raises:
        UsageError: it is empty, too long or holds control characters.
    """
    if not name.strip() or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        msg = (
            f"credential name {name[:NAME_LENGTH_MAX]!r} is not allowed: "
            f"1 to {NAME_LENGTH_MAX} printable characters"
        )
        raise UsageError(msg)
    return name


def store_key(scope: Scope, name: str) -> str:
    """The key of a credential, scope first, of characters a key-value bucket allows."""
    encoded = quote(name, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", "=")
    return f"{scope.tenant_id}.{scope.organization_id}.{encoded}"


def info_of(credential: Credential) -> CredentialInfo:
    """What may be shown."""
    return CredentialInfo(
        name=credential.name,
        type=credential.type,
        description=credential.description,
        fields=tuple(sorted(credential.data)),
    )


def missing(name: str) -> NotFoundError:
    """The error for a credential that is not there, with what to do."""
    return NotFoundError(
        f"there is no credential {name!r} here; add it with: "
        f"noetl-ray credential add {name} --type TYPE --data-file FILE"
    )
