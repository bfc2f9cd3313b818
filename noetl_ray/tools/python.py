"""The ``python`` kind: makes a request for the pool, turns its reply into a result or ToolError.

The rules of user code itself (dsl section 7) are in python_child.py, processes in python_pool.py,
where code comes from in python_script.py, tasks that ask for resources in python_remote.py.
User code sees an allowlist of our environment plus the task's ``env``, never the rest.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from noetl_ray.errors import NoetlError, ToolError
from noetl_ray.events.canonical import to_jsonable
from noetl_ray.tools.auth import resolve_auth
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.python_pool import PythonPool
from noetl_ray.tools.python_process import (
    MemoryExceededError,
    ProcessEndedError,
    ReplyTooLargeError,
)
from noetl_ray.tools.python_remote import RemotePython, Wish, nobody, read_wish
from noetl_ray.tools.python_script import read_code

if TYPE_CHECKING:
    from pathlib import Path

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
        "resources",
        "runtime_env",
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
        memory_bytes: int = 0,
        remote: RemotePython | None = None,
    ) -> None:
        """Make the tool; processes start at the first call or at ``warm``.

        Args:
            processes: How many run at once.
            base_env: Environment of this process; user code sees an allowlist of it.
            script_root: Folder that ``script`` files lie in; None refuses files.
            memory_bytes: What one call may use; 0 sets no limit.
            remote: Who runs the tasks that ask for resources; None fails them.
        """
        self._pool = PythonPool(
            size=processes, env=child_environment(base_env), memory_bytes=memory_bytes
        )
        self._script_root = script_root
        self._remote = remote

    def warm(self) -> None:
        """Start the processes now, so that the first task does not pay for it."""
        self._pool.warm()

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the task's code once, in a process of the pool or where its wish can be met."""
        wish = read_wish(config)
        if wish is not None and self._remote is None:
            raise nobody(wish)
        code = await read_code(config, context, self._script_root)
        request = await _request(code, config, context)
        limit = time_limit_s(config, context.timeout_s)
        try:
            reply = await self._call(request, wish, context, limit)
        except TimeoutError:
            msg = f"the Python code ran longer than {limit:g} s and was killed"
            raise ToolError(msg, "timeout", True, {"timeout_s": limit}) from None
        except ProcessEndedError as end:
            raise _ended(end.code) from None
        except MemoryExceededError as error:
            raise _too_much(error.limit_bytes) from None
        except ReplyTooLargeError as error:
            msg = f"the result of the Python code is too large: {error}"
            raise ToolError(msg, "schema") from None
        if reply.get("ok"):
            return ToolResult(data=reply.get("result"))
        if "exit_code" in reply:
            raise _ended(reply["exit_code"], str(reply.get("said") or ""))
        raise _failed(reply.get("error") or {})

    async def _call(
        self, request: bytes, wish: Wish | None, context: ToolContext, limit: float | None
    ) -> dict[str, Any]:
        if wish is not None and self._remote is not None:
            name = f"{context.execution_id}/{context.step}/{context.task}/{context.attempt}"
            raw = await self._remote.call(
                request, wish, name=name, log=context.log, timeout_s=limit
            )
            return _decode(raw)
        reply: dict[str, Any] = {}

        def keep(raw: bytearray) -> bool:
            reply.update(_decode(raw))
            return not reply.get("dirty", True)

        await self._pool.call(request, context.log, limit, keep)
        return reply

    async def close(self) -> None:
        """Kill the processes."""
        await self._pool.close()


def child_environment(base_env: Mapping[str, str], *more: str) -> dict[str, str]:
    """What user code sees of an environment: the allowlist, and ``more`` names."""
    env = {name: base_env[name] for name in (*ENV_ALLOWED, *more) if name in base_env}
    # Without a locale the interpreter would print in ASCII.
    env.setdefault("LANG", "C.UTF-8")
    return env


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
        "idempotency_key": context.idempotency_key,
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


def _decode(raw: bytearray | bytes) -> dict[str, Any]:
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


def _too_much(limit_bytes: int) -> ToolError:
    size_mb = round(limit_bytes / (1 << 20))
    msg = f"the Python code used more than {size_mb} MiB of memory and was killed"
    details = {"exception_type": "MemoryExceeded", "memory_limit_bytes": limit_bytes}
    return ToolError(msg, "unknown", False, details)


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
