"""The ``python`` kind: makes a request for the pool, turns its reply into a result or ToolError.

The rules of user code itself (dsl section 7) are in python_child.py, processes in python_pool.py.
User code sees an allowlist of our environment plus the task's ``env``, never the rest.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from noetl_ray.errors import NoetlError, ToolError
from noetl_ray.events.canonical import to_jsonable
from noetl_ray.tools.auth import resolve_auth
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.python_pool import ProcessEndedError, PythonPool, ReplyTooLargeError

CONFIG_KEYS: frozenset[str] = frozenset(
    {
        "args",
        "auth",
        "code",
        "code_b64",
        "credential",
        "env",
        "input",
        "libs",
        "script",
        "timeout",
        "timeout_seconds",
    }
)
ENV_ALLOWED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ")
_NAMES_WITHHELD = frozenset({"keychain"})
_LOOP_NAMES = ("loop_index", "_index", "_total")


def _plain(value: Any) -> Any:
    """What msgspec cannot encode itself: mappings by content, the rest as to_jsonable has it."""
    return dict(value) if isinstance(value, Mapping) else to_jsonable(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)


class PythonTool:
    """Runs user Python in warm processes of its own."""

    kind: ClassVar[str] = "python"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "py"
    text_keys: ClassVar[frozenset[str]] = frozenset({"code", "code_b64"})

    def __init__(
        self,
        *,
        processes: int = 2,
        base_env: Mapping[str, str],
        script_root: Path | None = None,
    ) -> None:
        """Make the tool; processes start at the first call or at ``warm``."""
        env = {name: base_env[name] for name in ENV_ALLOWED if name in base_env}
        # Without a locale the interpreter would print in ASCII.
        env.setdefault("LANG", "C.UTF-8")
        self._pool = PythonPool(size=processes, env=env)
        self._script_root = script_root

    def warm(self) -> None:
        """Start the processes now, so that the first task does not pay for it."""
        self._pool.warm()

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the task's code once in a process of the pool."""
        code = await self._code(config)
        request = await _request(code, config, context)
        limit = time_limit_s(config, context.timeout_s)
        reply: dict[str, Any] = {}

        def keep(raw: bytearray) -> bool:
            reply.update(_decode(raw))
            return not reply.get("dirty", True)

        try:
            await self._pool.call(request, context.log, limit, keep)
        except TimeoutError:
            msg = f"the Python code ran longer than {limit:g} s and was killed"
            raise ToolError(msg, "timeout", True, {"timeout_s": limit}) from None
        except ProcessEndedError as end:
            raise _ended(end.code) from None
        except ReplyTooLargeError as error:
            msg = f"the result of the Python code is too large: {error}"
            raise ToolError(msg, "schema") from None
        if reply.get("ok"):
            return ToolResult(data=reply.get("result"))
        if "exit_code" in reply:
            raise _ended(reply["exit_code"], str(reply.get("said") or ""))
        raise _failed(reply.get("error") or {})

    async def close(self) -> None:
        """Kill the processes."""
        await self._pool.close()

    async def _code(self, config: dict[str, Any]) -> str:
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
            return await self._script(script)
        msg = "a python task needs code: give `code`, `code_b64` or `script`"
        raise ToolError(msg, "schema")

    async def _script(self, script: dict[str, Any]) -> str:
        source = script.get("source") or {}
        kind = str(source.get("type") or ("inline" if "code" in {*source, *script} else "file"))
        if kind == "inline":
            code = source.get("code") or script.get("code")
            if not isinstance(code, str):
                msg = "script.source of type inline needs `code`"
                raise ToolError(msg, "schema")
            return code
        if kind != "file":
            msg = f"script.source.type {kind!r} is not supported: use inline or file"
            raise ToolError(msg, "schema")
        return await self._script_file(str(script.get("uri") or source.get("path") or ""))

    async def _script_file(self, uri: str) -> str:
        name = uri.removeprefix("file://")
        if self._script_root is None:
            msg = f"script file {name!r} refused: no script folder is set up; use inline code"
            raise ToolError(msg, "schema")
        root = self._script_root.resolve()
        path = (root / name).resolve()
        if not name or Path(name).is_absolute() or not path.is_relative_to(root):
            msg = f"script file {name!r} must be a relative path below the script folder"
            raise ToolError(msg, "schema")
        try:
            return await asyncio.to_thread(path.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            msg = f"script file {name!r} cannot be read: {reason}"
            raise ToolError(msg, "not_found") from None


async def _request(code: str, config: dict[str, Any], context: ToolContext) -> bytes:
    given = config.get("input")
    if not given:
        given = config.get("args")
    if given is not None and not isinstance(given, Mapping):
        msg = f"input of a python task must be a mapping, not {type(given).__name__}"
        raise ToolError(msg, "schema")
    request: dict[str, Any] = {
        "code": code,
        "input": given or {},
        "names": _names_read(code, context.names),
        "loop": _loop_names(context.names),
        "execution_id": str(context.execution_id),
        "libs": config.get("libs"),
        "env": config.get("env"),
    }
    auths = await resolve_auth(config, context)
    if auths:
        single = auths.get("")
        request["auth"] = single.data if single else {k: a.data for k, a in auths.items()}
    try:
        return _encoder.encode(request)
    except (TypeError, UnicodeEncodeError, RecursionError):
        # Keys that are not text, or lone surrogates: slow but forgiving.
        return json.dumps(_deep(request), ensure_ascii=False).encode("utf-8", "replace")


def _deep(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _deep(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_deep(item) for item in value]
    return to_jsonable(value)


def _names_read(code: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the render context the code can see: all of it is far too much for most calls."""
    whole = "context" in code
    if not whole and "main" not in code:
        return {}
    read: dict[str, Any] = {}
    for name in names:
        if (whole or name in code) and name not in _NAMES_WITHHELD:
            # A value that cannot be rendered is absent, as an undefined name is in a template.
            with contextlib.suppress(NoetlError):
                read[name] = names[name]
    return read


def _loop_names(names: Mapping[str, Any]) -> dict[str, Any]:
    """In a loop: the iterator under its own name, and the counters."""
    found = {name: names[name] for name in _LOOP_NAMES if name in names}
    item = names.get("iter")
    if isinstance(item, Mapping):
        found.update({k: v for k, v in item.items() if not k.startswith("_") and k != "index"})
    return found


def _decode(raw: bytearray) -> dict[str, Any]:
    try:
        reply = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        reply = None
    if not isinstance(reply, dict):
        # Only user code that wrote to our socket gets here.
        return {"ok": False, "dirty": True, "error": {"message": "the reply cannot be read"}}
    return reply


def _ended(code: int | None, said: str = "") -> ToolError:
    details: dict[str, Any] = {"exit_code": code, "exception_type": "ProcessEnded"}
    if code is None:
        how = "closed its channel"
    elif code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        details["signal"] = name
        how = f"was ended by signal {name}"
        if name == "SIGKILL":
            how += " (out of memory, or killed from outside)"
    else:
        how = f"ended with exit code {code}" + (f": {said}" if said else "")
    return ToolError(f"the step's Python process {how}", "unknown", False, details)


def _failed(error: dict[str, Any]) -> ToolError:
    name = str(error.get("exception_type") or "Exception")
    text = str(error.get("message") or "")
    line = error.get("line")
    where = f" (line {line} of the code)" if line else ""
    details = {
        "exception_type": name,
        "traceback": str(error.get("traceback") or ""),
        "line": line,
    }
    message = f"{name}: {text}{where}" if text else f"{name}{where}"
    return ToolError(message, "unknown", False, details)
