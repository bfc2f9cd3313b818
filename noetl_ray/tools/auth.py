"""How ``auth:`` of a task names credentials (dsl section 12). It never shows values.

Accepted: a name; ``{type, credential|key}``; ``{alias: {source, key, service}, ...}``; and an
inline mapping of fields (as rendered from a keychain entry).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import NoetlError, ToolError

if TYPE_CHECKING:
    from noetl_ray.tools.port import ToolContext

_NAME_KEYS = ("credential", "key", "name")
_DESCRIBING_KEYS = frozenset(
    {"type", "source", "service", "scope", "header", "prefix", "in", *_NAME_KEYS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """A resolved credential. ``data`` must never be logged or put into a message."""

    name: str
    type: str
    data: dict[str, Any] = field(repr=False)
    service: str = ""


async def resolve_auth(config: dict[str, Any], context: ToolContext) -> dict[str, Auth]:
    """Resolve ``auth`` (or the older ``credential``) by alias; a lone one has the alias ``""``."""
    spec = config.get("auth")
    if spec in (None, "", {}):
        spec = config.get("credential")
    if spec in (None, "", {}):
        return {}
    if isinstance(spec, str):
        return {"": await _named(spec, {}, context)}
    if not isinstance(spec, dict):
        msg = f"auth must be a credential name or a mapping, not {type(spec).__name__}"
        raise ToolError(msg, "schema")
    if all(isinstance(item, dict) for item in spec.values()):
        return {str(alias): await _one(item, context) for alias, item in spec.items()}
    return {"": await _one(spec, context)}


def pick(auths: dict[str, Auth], services: frozenset[str]) -> Auth | None:
    """The one credential a tool wants: the one for its service, else the first."""
    for auth in auths.values():
        if auth.service in services or auth.type in services:
            return auth
    return next(iter(auths.values()), None)


async def _one(spec: dict[str, Any], context: ToolContext) -> Auth:
    name = next((spec[key] for key in _NAME_KEYS if isinstance(spec.get(key), str)), "")
    if name and set(spec) <= _DESCRIBING_KEYS:
        return await _named(name, spec, context)
    # Fields beside the describing ones mean that the mapping itself holds the values.
    data = {key: value for key, value in spec.items() if key not in ("type", "service", "source")}
    kind = str(spec.get("type", ""))
    return Auth(name="inline", type=kind, data=data, service=str(spec.get("service", "")))


async def _named(name: str, spec: dict[str, Any], context: ToolContext) -> Auth:
    try:
        credential = await context.credential(name)
    except NoetlError as error:
        if isinstance(error, ToolError):
            raise
        kind = "connection" if error.retryable else "auth"
        raise ToolError(error.message, kind, error.retryable, {"credential": name}) from error
    extra: dict[str, Any] = {key: spec[key] for key in ("header", "prefix", "in") if key in spec}
    return Auth(
        name=credential.name,
        type=str(spec.get("type") or credential.type),
        data={**credential.data, **extra},
        service=str(spec.get("service") or credential.type),
    )
