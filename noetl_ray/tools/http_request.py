"""From a rendered http task to a request: method, URL, query, headers, body, authorization.

Pure rules of dsl section 7; sending and judging the answer is http.py's. Credential values are put
where the request needs them and remembered in ``secret_headers``, so that no other host gets them.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import msgspec

from noetl_ray.errors import ToolError
from noetl_ray.events.canonical import to_jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.tools.auth import Auth

_QUERY_METHODS = frozenset({"GET", "DELETE", "HEAD", "OPTIONS"})
_UNSAFE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SPLIT_KEYS = frozenset({"query", "params", "body", "json"})
_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
IDEMPOTENCY_HEADER = "idempotency-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request ready to send."""

    method: str
    url: httpx.URL
    headers: dict[str, str] = field(repr=False)
    content: bytes | None = field(repr=False)
    secret_headers: tuple[str, ...] = ()
    secret_params: tuple[str, ...] = ()

    def shown_url(self, url: httpx.URL) -> str:
        """A URL as results and messages may show it: without user, password and key parameters."""
        for name in self.secret_params:
            url = url.copy_remove_param(name)
        if url.userinfo:
            url = url.copy_with(username="", password="")
        return str(url)


def prepare(config: Mapping[str, Any], auth: Auth | None, idempotency_key: str) -> Prepared:
    """Build the request. Raises ToolError of kind ``client_error`` for what cannot be sent."""
    method = str(config.get("method") or "GET").upper()
    headers = _texts(config.get("headers"), "headers")
    query = _query(config.get("params"))
    body = _pick_body(config, method, query, headers)
    secret_headers, secret_params = _authorize(auth, headers, query)
    url = _url(config)
    if query:
        url = url.copy_merge_params(query)
    wanted = config.get("idempotency_header", IDEMPOTENCY_HEADER)
    if method in _UNSAFE_METHODS and idempotency_key and wanted:
        headers.setdefault(_header_name(wanted), idempotency_key)
    return Prepared(
        method=method,
        url=url,
        headers=headers,
        content=body,
        secret_headers=secret_headers,
        secret_params=secret_params,
    )


def _header_name(wanted: Any) -> str:
    """The name a task gives the header of its idempotency key; true means the usual one."""
    if wanted is True:
        return IDEMPOTENCY_HEADER
    if not isinstance(wanted, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,64}", wanted):
        msg = f"idempotency_header must be a header name or false, not {wanted!r}"
        raise ToolError(msg, "client_error")
    return wanted


def _url(config: Mapping[str, Any]) -> httpx.URL:
    text = str(config.get("url") or config.get("endpoint") or "").strip()
    if not text:
        msg = "an http task needs `url` (or `endpoint`)"
        raise ToolError(msg, "client_error")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        # The text itself may carry a token: only the reason is told.
        msg = f"the url of the http task cannot be read: {error}"
        raise ToolError(msg, "client_error") from None
    if url.scheme not in ("http", "https") or not url.host:
        msg = f"the url of an http task must start with http:// or https://, not {url.scheme!r}"
        raise ToolError(msg, "client_error")
    return url


def _texts(values: Any, what: str) -> dict[str, str]:
    """Header values as text, names in lower case, None left out."""
    if values in (None, ""):
        return {}
    if not isinstance(values, dict):
        msg = f"{what} of an http task must be a mapping, not {type(values).__name__}"
        raise ToolError(msg, "client_error")
    return {str(key).lower(): _text(value) for key, value in values.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return msgspec.json.encode(to_jsonable(value)).decode()
    return str(to_jsonable(value))


def _query(values: Any) -> dict[str, Any]:
    """Query values as text; a list repeats its name; None is left out."""
    if values in (None, ""):
        return {}
    if isinstance(values, str):
        return dict(httpx.QueryParams(values.removeprefix("?")))
    if not isinstance(values, dict):
        msg = f"params of an http task must be a mapping, not {type(values).__name__}"
        raise ToolError(msg, "client_error")
    return {
        str(key): [_text(item) for item in value if item is not None]
        if isinstance(value, list | tuple)
        else _text(value)
        for key, value in values.items()
        if value is not None
    }


def _pick_body(
    config: Mapping[str, Any], method: str, query: dict[str, Any], headers: dict[str, str]
) -> bytes | None:
    """The body by the first key given; plain ``data`` of a query method joins the query instead."""
    for key in ("json", "payload"):
        if config.get(key) is not None:
            return _encode(config[key], headers, as_json=True)
    if config.get("body") is not None:
        return _encode(config["body"], headers, as_json=False)
    if config.get("form") is not None:
        headers.setdefault("content-type", _FORM)
        return _encode(config["form"], headers, as_json=False)
    data = config.get("data")
    if data is None or data == {}:
        return None
    if isinstance(data, dict) and set(data) <= _SPLIT_KEYS and {"query", "body"} & set(data):
        query.update(_query(data.get("query", data.get("params"))))
        inner = data.get("body", data.get("json"))
        return None if inner is None else _encode(inner, headers, as_json="json" in data)
    if method in _QUERY_METHODS and isinstance(data, dict):
        for key, value in _query(data).items():
            query.setdefault(key, value)
        return None
    return _encode(data, headers, as_json=False)


def _encode(value: Any, headers: dict[str, str], *, as_json: bool) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict) and headers.get("content-type", "").lower().startswith(_FORM):
        fields = [
            (str(key), _text(item))
            for key, given in value.items()
            for item in (given if isinstance(given, list | tuple) else [given])
            if item is not None
        ]
        return urlencode(fields).encode()
    if isinstance(value, str):
        if not as_json:
            return value.encode()
        headers.setdefault("content-type", _JSON)
        return value.encode() if _is_json(value) else msgspec.json.encode(value)
    headers.setdefault("content-type", _JSON)
    return msgspec.json.encode(to_jsonable(value))


def _is_json(text: str) -> bool:
    """Whether the text is a JSON document already (``"{{ x | tojson }}"``)."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _authorize(
    auth: Auth | None, headers: dict[str, str], query: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Add what the credential asks for; a header the playbook wrote itself stays."""
    if auth is None:
        return (), ()
    data = {key: value for key, value in auth.data.items() if value not in (None, "")}
    kind = auth.type.lower().replace("-", "_")
    if kind in ("basic", "http_basic") or (not kind and "username" in data):
        user = data.get("username", data.get("user", ""))
        pair = f"{user}:{data.get('password', '')}".encode()
        headers.setdefault("authorization", "Basic " + base64.b64encode(pair).decode())
        return ("authorization",), ()
    if kind in ("api_key", "apikey"):
        return _api_key(auth, data, headers, query)
    token = _first(data, "token", "access_token", "bearer", "bearer_token", "id_token", "value")
    if kind in ("bearer", "oauth2", "token", "http_bearer", "") and token:
        headers.setdefault("authorization", f"{data.get('prefix', 'Bearer')} {token}")
        return ("authorization",), ()
    # Anything else that names a header can still be used; the rest is a mistake worth telling.
    if "header" in data and _first(data, "value", "key", "token"):
        return _api_key(auth, data, headers, query)
    msg = (
        f"credential {auth.name!r} of type {auth.type!r} cannot authorize an http request: "
        "use bearer (token), api_key (key or value, header) or basic (username, password)"
    )
    raise ToolError(msg, "auth")


def _api_key(
    auth: Auth, data: Mapping[str, Any], headers: dict[str, str], query: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    value = _first(data, "value", "api_key", "apikey", "token", "secret", "key")
    if not value:
        msg = f"credential {auth.name!r} has no key: give it `value` or `api_key`"
        raise ToolError(msg, "auth")
    name = _first(data, "header", "header_name", "param", "name")
    if not name and "value" in data:
        name = _first(data, "key")
    name = name or "X-API-Key"
    if str(data.get("in", "header")).lower() == "query":
        query.setdefault(name, value)
        return (), (name,)
    prefix = data.get("prefix")
    headers.setdefault(name.lower(), f"{prefix} {value}" if prefix else value)
    return (name.lower(),), ()


def _first(data: Mapping[str, Any], *names: str) -> str:
    return next((str(data[name]) for name in names if data.get(name) not in (None, "")), "")
