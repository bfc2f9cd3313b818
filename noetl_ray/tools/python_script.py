"""Where the code of a python task comes from: inline, a file, an address, an object store.

Owns the forms of ``code``, ``code_b64`` and ``script``, and the bounds of what is fetched. It hands
on text and never looks into it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from noetl_ray.errors import ToolError
from noetl_ray.tools.auth import pick, resolve_auth
from noetl_ray.tools.limits import time_limit_s

if TYPE_CHECKING:
    from noetl_ray.tools.port import ToolContext

SCRIPT_BYTES_MAX = 4 << 20
FETCH_S = 60.0
SOURCES = ("file", "gcs", "http", "inline", "object", "s3")
_STORES = {"s3": ("s3",), "gcs": ("gs", "gcs"), "object": ()}
"""Which schemes an address of a source may have; none named means any a driver is there for."""
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
_NO_STORES = frozenset({"", "file", "local", "http", "https", "memory"})


async def read_code(config: dict[str, Any], context: ToolContext, root: Path | None) -> str:
    """The code of a task.

    Raises:
        ToolError: There is none, or it cannot be had; the message says from where.
    """
    code = config.get("code")
    if isinstance(code, str) and code.strip():
        return code
    encoded = config.get("code_b64")
    if encoded:
        try:
            return base64.b64decode(str(encoded), validate=False).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError) as error:
            msg = f"code_b64 is not base64 of UTF-8 text: {error}"
            raise ToolError(msg, "schema") from None
    script = config.get("script")
    if isinstance(script, str) and script.strip():
        return script
    if isinstance(script, dict):
        return await _script(script, context, root)
    msg = "a python task needs code: give `code`, `code_b64` or `script`"
    raise ToolError(msg, "schema")


async def _script(script: dict[str, Any], context: ToolContext, root: Path | None) -> str:
    source = script.get("source") or {}
    if not isinstance(source, dict):
        msg = "script.source must be a mapping with `type`"
        raise ToolError(msg, "schema")
    kind = str(source.get("type") or ("inline" if "code" in {*source, *script} else "file"))
    uri = str(script.get("uri") or source.get("uri") or "")
    match kind:
        case "inline":
            code = source.get("code") or script.get("code")
            if not isinstance(code, str):
                msg = "script.source of type inline needs `code`"
                raise ToolError(msg, "schema")
            return code
        case "file":
            return await _file(uri or str(source.get("path") or ""), root)
        case "http":
            return await _http(
                str(source.get("endpoint") or source.get("url") or uri), source, context
            )
        case "s3" | "gcs" | "object":
            return await _object(kind, uri or str(source.get("endpoint") or ""), source, context)
    msg = f"script.source.type {kind!r} is not known: use one of {', '.join(SOURCES)}"
    raise ToolError(msg, "schema")


async def _file(uri: str, root: Path | None) -> str:
    name = uri.removeprefix("file://")
    if root is None:
        msg = f"script file {name!r} refused: no script folder is set up; use inline code"
        raise ToolError(msg, "schema")
    try:
        return await asyncio.to_thread(_read_below, root, name)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        msg = f"script file {name!r} cannot be read: {reason}"
        raise ToolError(msg, "not_found") from None


def _read_below(root: Path, name: str) -> str:
    folder = root.resolve()
    path = (folder / name).resolve()
    if not name or Path(name).is_absolute() or not path.is_relative_to(folder):
        msg = f"script file {name!r} must be a relative path below the script folder"
        raise ToolError(msg, "schema")
    return path.read_text("utf-8")


async def _http(url: str, source: dict[str, Any], context: ToolContext) -> str:
    if not url:
        msg = "script.source of type http needs `endpoint`"
        raise ToolError(msg, "schema")
    from noetl_ray.tools.http import HttpTool

    keys = ("method", "headers", "params", "auth", "credential", "timeout", "verify")
    request = {key: source[key] for key in keys if source.get(key) is not None}
    tool = HttpTool(connections_max=1)
    try:
        answer = await tool.run({"url": url, **request}, context)
    finally:
        await tool.close()
    body = answer.data["body"]
    if not isinstance(body, str):
        msg = f"the script at {_shown(url)} is not text"
        raise ToolError(msg, "schema")
    return _bounded(body, url)


async def _object(kind: str, uri: str, source: dict[str, Any], context: ToolContext) -> str:
    scheme = urlsplit(uri).scheme
    allowed = _STORES[kind]
    if (allowed and scheme not in allowed) or scheme in _NO_STORES:
        wanted = " or ".join(f"{name}://" for name in allowed) or "a scheme such as s3://"
        msg = f"script.uri of a source of type {kind} must start with {wanted}, not {_shown(uri)!r}"
        raise ToolError(msg, "schema")
    auth = pick(await resolve_auth(source, context), frozenset({kind, scheme}))
    options = _options(auth.data if auth else {}, scheme)
    limit = time_limit_s(source, context.timeout_s, FETCH_S)
    try:
        async with asyncio.timeout(limit):
            raw = await asyncio.to_thread(_fetch, uri, scheme, options)
    except TimeoutError:
        msg = f"the script {_shown(uri)} did not come within {limit:g} s"
        raise ToolError(msg, "timeout", True) from None
    try:
        return _bounded(raw.decode("utf-8"), uri)
    except UnicodeDecodeError:
        msg = f"the script {_shown(uri)} is not UTF-8 text"
        raise ToolError(msg, "schema") from None


def _options(secret: dict[str, Any], scheme: str) -> dict[str, Any]:
    """What a driver takes of a credential; without one it looks where it always does."""
    if scheme != "s3" or not secret:
        return {"token": secret} if secret else {}
    options = {
        "key": secret.get("access_key") or secret.get("access_key_id") or secret.get("key_id"),
        "secret": secret.get("secret_key") or secret.get("secret_access_key"),
        "endpoint_url": secret.get("endpoint_url") or secret.get("endpoint"),
    }
    return {name: value for name, value in options.items() if value}


def _fetch(uri: str, scheme: str, options: dict[str, Any]) -> bytes:
    import fsspec

    try:
        with fsspec.open(uri, "rb", **options) as file:
            content: bytes = file.read(SCRIPT_BYTES_MAX + 1)
            return content
    except (ImportError, ValueError) as error:
        package = _PACKAGES.get(scheme)
        if package is None and not isinstance(error, ImportError):
            msg = f"no driver for {scheme}:// is known; the script {_shown(uri)} cannot be read"
            raise ToolError(msg, "schema") from None
        msg = f"scripts at {scheme}:// need the package {package or scheme} on the workers"
        raise ToolError(msg, "schema") from None
    except FileNotFoundError:
        msg = f"the script {_shown(uri)} does not exist"
        raise ToolError(msg, "not_found") from None
    except PermissionError:
        msg = f"the script {_shown(uri)} may not be read with these credentials"
        raise ToolError(msg, "auth") from None
    except OSError as error:
        msg = f"the script {_shown(uri)} cannot be read: {type(error).__name__}"
        raise ToolError(msg, "connection", True) from None


def _bounded(code: str, uri: str) -> str:
    if len(code) > SCRIPT_BYTES_MAX:
        msg = f"the script {_shown(uri)} is larger than {SCRIPT_BYTES_MAX} bytes"
        raise ToolError(msg, "schema")
    return code


def _shown(uri: str) -> str:
    """An address without its query and user, which may hold keys."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
