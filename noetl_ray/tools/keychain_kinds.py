"""How each kind of keychain entry gets its values. Owns no cache; every call asks anew.

Kinds that need an account come with a package: an entry point in the group ``noetl_ray.keychain``
whose name is the kind and whose object is ``async (config) -> fields``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from noetl_ray.credentials.port import Credential
from noetl_ray.dsl.keychain import PLUGIN_GROUP
from noetl_ray.errors import ToolError

TOKEN_S_DEFAULT = 300.0
"""How long a token is trusted whose answer does not say."""
_MARGIN_S = 60.0
_MARGIN_SHARE = 0.2
_REQUEST_KEYS = ("headers", "data", "params", "json", "form", "auth", "timeout", "verify_ssl")
_PLAIN_FIELDS = frozenset(
    {"token_type", "scope", "expires_in", "expires_at", "expires", "issued_at", "grant_type"}
)
_FORM = "application/x-www-form-urlencoded"
_TOKEN_FIELDS = ("access_token", "token", "id_token")
_FALSE_TEXTS = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeychainSources:
    """Where values may come from on this worker."""

    execution_id: int
    env: Mapping[str, str]
    """Only the names the configuration allows."""
    credential: Callable[[str], Awaitable[Credential]]
    """A stored credential; it conceals its secrets itself."""
    request: Callable[[str, dict[str, Any]], Awaitable[Any]]
    """``(entry, http config)``: send a request, give its body. Raises ToolError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Values of an entry."""

    fields: dict[str, Any] = field(repr=False)
    auth_type: str = ""
    lasts_s: float | None = None
    """Seconds from the request on during which it may be used; None when it says nothing."""
    renewable: bool = True
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


async def fetch(
    name: str, kind: str, config: Mapping[str, Any], sources: KeychainSources
) -> Fetched:
    """The values of one entry. Raises NoetlError with a reason that names no value."""
    match kind:
        case "static":
            return _plain(_mapping(config.get("map"), "map"), str(config.get("type") or ""))
        case "bearer":
            token = config.get("token")
            if not isinstance(token, str) or not token.strip():
                msg = "its token is empty"
                raise ToolError(msg, "auth")
            return _plain({"token": token.strip()}, "bearer")
        case "env":
            return _env(config, sources)
        case "credential" | "credential_ref":
            return await _credential(name, config, sources)
        case "oauth2":
            return await _oauth2(name, config, sources)
        case _:
            return await _plugin(kind, config)


def secret_texts(value: Any) -> frozenset[str]:
    """Every text and number in a value: the whole of it is secret."""
    found: set[str] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack.extend(below for key, below in item.items() if key not in _PLAIN_FIELDS)
        elif isinstance(item, list | tuple):
            stack.extend(item)
        elif isinstance(item, str) or (
            isinstance(item, int | float) and not isinstance(item, bool)
        ):
            found.add(str(item))
    return frozenset(found)


def _plain(fields: dict[str, Any], auth_type: str) -> Fetched:
    return Fetched(fields=fields, auth_type=auth_type, secrets=secret_texts(fields))


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        msg = f"its {what!r} is not a mapping"
        raise ToolError(msg, "auth")
    return dict(value)


def _env(config: Mapping[str, Any], sources: KeychainSources) -> Fetched:
    wanted = {str(key): str(value) for key, value in (config.get("map") or {}).items()}
    if config.get("variable"):
        wanted["value"] = str(config["variable"])
    fields: dict[str, Any] = {}
    for key, variable in wanted.items():
        if variable not in sources.env:
            msg = (
                f"the environment variable {variable!r} is not set on the worker "
                "or not listed in runtime.allowed_env"
            )
            raise ToolError(msg, "auth")
        fields[key] = sources.env[variable]
    return _plain(fields, str(config.get("type") or ""))


async def _credential(name: str, config: Mapping[str, Any], sources: KeychainSources) -> Fetched:
    given = (config.get(key) for key in ("credential", "credential_ref", "key", "ref"))
    wanted = next((str(one) for one in given if one), name)
    found = await sources.credential(wanted)
    # Hosts and user names of a credential are no secrets; `credential` conceals what is.
    return Fetched(fields=dict(found.data), auth_type=found.type)


async def _oauth2(name: str, config: Mapping[str, Any], sources: KeychainSources) -> Fetched:
    endpoint = config.get("endpoint")
    if not isinstance(endpoint, str) or not endpoint.strip():
        msg = "its endpoint is empty"
        raise ToolError(msg, "auth")
    request: dict[str, Any] = {key: config[key] for key in _REQUEST_KEYS if key in config}
    request["url"] = endpoint
    request["method"] = str(config.get("method") or "POST").upper()
    headers = {str(key).lower(): value for key, value in (config.get("headers") or {}).items()}
    headers.setdefault("accept", "application/json")
    if request["method"] != "GET":
        headers.setdefault("content-type", _FORM)
    request["headers"] = headers
    body = await sources.request(name, request)
    token = (
        next((body[key] for key in _TOKEN_FIELDS if body.get(key)), None)
        if (isinstance(body, dict))
        else None
    )
    if not isinstance(token, str):
        msg = "the token endpoint answered without an access_token"
        raise ToolError(msg, "auth")
    renew = config.get("auto_renew", True)
    if isinstance(renew, str):
        renew = renew.strip().lower() not in _FALSE_TEXTS
    return Fetched(
        fields=dict(body),
        auth_type="bearer",
        lasts_s=_lasts_s(body.get("expires_in"), early=bool(renew)),
        renewable=bool(renew),
        secrets=secret_texts(body) | secret_texts(request.get("data")),
    )


def _lasts_s(expires_in: Any, *, early: bool) -> float:
    """Seconds a token is used: it is renewed well before it ends, since requests take time."""
    try:
        seconds = float(expires_in)
    except (TypeError, ValueError):
        seconds = TOKEN_S_DEFAULT
    if not early:
        return seconds
    return max(0.0, seconds - min(_MARGIN_S, seconds * _MARGIN_SHARE))


async def _plugin(kind: str, config: Mapping[str, Any]) -> Fetched:
    found = next((p for p in entry_points(group=PLUGIN_GROUP) if p.name == kind), None)
    if found is None:
        msg = (
            f"the keychain kind {kind!r} is not built in; to have it, install a package with an "
            f"entry point of that name in the group {PLUGIN_GROUP!r}, whose object is called with "
            "the entry's config and gives its fields"
        )
        raise ToolError(msg, "auth")
    try:
        fields = await found.load()(dict(config))
    except Exception as error:
        # Its text is not ours to trust: it may quote what it was given.
        msg = f"the plugin {found.value} failed with {type(error).__name__}"
        raise ToolError(msg, "auth") from None
    return _plain(_mapping(fields, "answer"), str(config.get("type") or ""))
