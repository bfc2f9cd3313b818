"""The process that runs user Python: a plain script, started with ``-I``, one call at a time.

It owns the rules of dsl section 7 (names, ``result``, top-level ``return``, ``main``) and the
restoring of process-wide state between calls. It refuses to outlive its parent. It never imports
noetl_ray: the two modules it needs are loaded by path, so that a start costs little more than
msgspec.

A request and a reply are each one frame on a private socket: 8 bytes of length, then JSON. One byte
before the reply says that user code starts now: without it the parent may safely ask elsewhere.
What user code prints goes through the ordinary descriptors 1 and 2, which the parent reads.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime
import fcntl
import importlib
import importlib.util
import inspect
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import types
import uuid
from pathlib import Path
from typing import Any

import msgspec

MODULE_NAME = "noetl_task"
STARTED = b"!"
GUARDED = "guarded"
_TOP_NAMES = {"<module>": "code", "__noetl_body__": "code"}


class _Exit(Exception):
    """User code ended the process on purpose with a code that is not 0."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(code, said)
        self.exit_code = code
        self.said = said


def load_module(name: str) -> Any:
    """A module of the project by its path below the package, without importing the package."""
    path = Path(__file__).resolve().parents[1] / name
    spec = importlib.util.spec_from_file_location(f"_noetl_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compile_user_code = load_module("tools/python_compile.py").compile_user_code


def run_user_code(request: dict[str, Any]) -> Any:
    """Run one request and give the raw result, by the order of dsl section 7."""
    given: dict[str, Any] = request["input"]
    names: dict[str, Any] = request["names"]
    module = types.ModuleType(MODULE_NAME)
    space = module.__dict__
    _fill(space, request, given, names)
    sys.modules[MODULE_NAME] = module  # dataclasses and typing look their module up by name
    _import_libs(request.get("libs"), space)
    code = compile_user_code(request["code"])
    returned = None
    try:
        exec(code, space)
        body = space.pop("__noetl_body__", None)
        if body is not None:
            returned = _settle(body())
        result = space.get("result")
        untouched = "result" in given and result is given["result"]
        if result is not None and not untouched:
            return _settle(result)
        if returned is not None:
            return returned
        main = space.get("main")
        if callable(main) and main is not given.get("main"):
            positional, keywords = _bind(main, request, space)
            value = _settle(main(*positional, **keywords))
            if value is not None:
                return value
    except SystemExit as leave:
        if leave.code not in (None, 0):
            if isinstance(leave.code, int):
                raise _Exit(leave.code, "") from None
            raise _Exit(1, str(leave.code)) from None
    # What is left: a `result` that came in as input and was perhaps changed in place, or nothing.
    result = space.get("result")
    return {} if result is None else result


def _fill(
    space: dict[str, Any], request: dict[str, Any], given: dict[str, Any], names: dict[str, Any]
) -> None:
    space.update(json=json, os=os, datetime=datetime, uuid=uuid)
    space["execution_id"] = request["execution_id"]
    space["idempotency_key"] = request.get("idempotency_key", "")
    space["context"] = {**names, "execution_id": request["execution_id"]}
    space["args"] = given
    space["input_data"] = given
    space.update(request["loop"])
    if request.get("auth") is not None:
        space["auth"] = request["auth"]
    space.update(given)


def _import_libs(libs: Any, space: dict[str, Any]) -> None:
    if not libs:
        return
    pairs = libs.items() if isinstance(libs, dict) else ((str(n).split(".")[0], n) for n in libs)
    for alias, target in pairs:
        if not isinstance(libs, dict) and not str(target).replace(".", "_").isidentifier():
            # The name of a package to install, as some playbooks list them; code imports it itself.
            continue
        if isinstance(target, dict):
            module = importlib.import_module(str(target["from"]))
            space[alias] = getattr(module, str(target["import"]))
        else:
            space[alias] = importlib.import_module(str(target))


def _settle(value: Any) -> Any:
    if not inspect.iscoroutine(value):
        return value
    import asyncio  # a third of the start-up time, and few tasks need it

    return asyncio.run(value)


def _bind(
    main: Any, request: dict[str, Any], space: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of ``main`` by name: from the input, then the context, then what every task has."""
    given, names = request["input"], request["names"]
    common: dict[str, Any] = {
        key: space[key]
        for key in ("input_data", "args", "context", "execution_id", "idempotency_key", "auth")
        if key in space
    }
    sources = (given, names, request["loop"], common)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    missing: list[inspect.Parameter] = []
    parameters = list(inspect.signature(main).parameters.values())
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            taken = {p.name for p in parameters}
            keywords.update({k: v for k, v in given.items() if k not in taken})
            continue
        source = next((s for s in sources if parameter.name in s), None)
        if source is not None:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(source[parameter.name])
            else:
                keywords[parameter.name] = source[parameter.name]
        elif parameter.default is parameter.empty:
            missing.append(parameter)
    if len(missing) == 1 and not positional and not keywords:
        return [given], {}  # main(anything) takes the whole input
    if missing:
        wanted = ", ".join(repr(p.name) for p in missing)
        msg = f"main() needs {wanted}, found neither in the input nor in the context"
        raise TypeError(msg)
    return positional, keywords


def describe(error: BaseException) -> dict[str, Any]:
    """What the parent may say about an exception: message, type, and the user's own frames."""
    name = type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith("<task code ")
    ]
    lines = [
        f"line {frame.lineno}, in {_TOP_NAMES.get(frame.name, frame.name)}: {frame.line}"
        for frame in frames
    ]
    line = frames[-1].lineno if frames else None
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    if isinstance(error, SyntaxError):
        line, text = error.lineno, str(error.msg)
        lines = [f"line {error.lineno}: {(error.text or '').rstrip()}"]
    lines.append(f"{name}: {text}" if text else name)
    return {"message": text, "exception_type": name, "line": line, "traceback": "\n".join(lines)}


class _Clean:
    """Process-wide state as it was before any user code, to be put back after each call."""

    def __init__(self) -> None:
        self.cwd = Path.cwd()
        self.env = dict(os.environ)
        self.path = list(sys.path)
        self.streams = (sys.stdin, sys.stdout, sys.stderr)
        self.builtins = dict(vars(builtins))
        self.threads = threading.active_count()
        self.limit = sys.getrecursionlimit()

    def restore(self) -> None:
        sys.stdin, sys.stdout, sys.stderr = self.streams
        if os.environ != self.env:
            os.environ.clear()
            os.environ.update(self.env)
        sys.path[:] = self.path
        sys.argv[:] = sys.argv[:1]
        sys.setrecursionlimit(self.limit)
        signal.alarm(0)
        if vars(builtins) != self.builtins:
            for name in set(vars(builtins)) - set(self.builtins):
                delattr(builtins, name)
            vars(builtins).update(self.builtins)
        os.chdir(self.cwd)
        sys.modules.pop(MODULE_NAME, None)

    def is_dirty(self) -> bool:
        """True when the call left threads or processes behind: such a process is not used again."""
        if threading.active_count() > self.threads:
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


def answer(request: dict[str, Any], to_jsonable: Any, clean: _Clean) -> bytes:
    """Run a request; give the reply's bytes. Nothing user code raises gets past this."""
    reply: dict[str, Any]
    try:
        os.environ.update({k: str(v) for k, v in (request.get("env") or {}).items()})
        reply = {"ok": True, "result": to_jsonable(run_user_code(request))}
    except _Exit as leave:
        reply = {"ok": False, "exit_code": leave.exit_code, "said": leave.said}
    except BaseException as error:
        reply = {"ok": False, "error": describe(error)}
    for stream in (sys.stdout, sys.stderr, *clean.streams[1:]):
        with contextlib.suppress(Exception):  # user code may have closed it
            stream.flush()
    try:
        clean.restore()
        reply["dirty"] = clean.is_dirty()
    except BaseException:
        reply["dirty"] = True
    try:
        return msgspec.json.encode(reply)
    except UnicodeEncodeError:  # lone surrogates have no UTF-8 form
        return json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace")


def _read_exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while len(view):
        count = connection.recv_into(view)
        if count == 0:
            os._exit(0)  # the parent is gone
        view = view[count:]
    return data


def _die_with_parent(connection: socket.socket, lifeline: int) -> None:
    """End the whole group with the parent, also while user code runs.

    The parent holds the other end of the lifeline and never writes. On Linux its closing makes the
    kernel itself signal the group, even while user code holds the interpreter's lock; the thread
    does the same elsewhere. (A parent-death signal would end this process only, not its children.)
    """
    os.set_inheritable(lifeline, False)
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    watch = select.poll()
    watch.register(connection.fileno(), getattr(select, "POLLRDHUP", select.POLLHUP))

    def wait() -> None:
        watch.poll()
        os.killpg(0, signal.SIGKILL)  # takes along what user code started

    threading.Thread(target=wait, name="noetl-parent-watch", daemon=True).start()


def _stand_before(*descriptors: int) -> None:
    """Go on in a child of our own, and end as it ends.

    Whoever started us may kill its direct children before it ends itself, as Ray's workers do. Then
    only the one that stands here dies early; the lifeline still ends the rest of the group.
    """
    pid = os.fork()
    if pid == 0:
        return
    for descriptor in descriptors:
        os.close(descriptor)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(max(status, 0))


def _offer_first_to_the_system() -> None:
    """When memory runs out, the system ends user code before anything else of ours."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def serve() -> None:
    """Answer requests until the parent hangs up."""
    _offer_first_to_the_system()
    descriptor, lifeline = int(sys.argv[1]), int(sys.argv[2])
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    if sys.argv[3] == GUARDED:
        _stand_before(descriptor, lifeline)
    sys.path[:0] = sys.argv[4:]
    sys.argv[1:] = []
    _die_with_parent(connection, lifeline)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    to_jsonable = load_module("events/canonical.py").to_jsonable
    clean = _Clean()
    while True:
        (size,) = struct.unpack(">Q", _read_exactly(connection, 8))
        request = msgspec.json.decode(_read_exactly(connection, size))
        connection.sendall(STARTED)
        payload = answer(request, to_jsonable, clean)
        del request
        connection.sendall(struct.pack(">Q", len(payload)))
        connection.sendall(payload)


if __name__ == "__main__":
    serve()
