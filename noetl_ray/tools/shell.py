"""The ``shell`` kind: runs commands in process groups of their own and gives back what they wrote.

Owns how a command is read and the life of its processes. A rendered text never reaches a shell
unless the task says ``shell: true``: words are cut apart, before values are filled in, and run as
they are, so that ``;``, ``$()`` or a blank out of data do nothing. The environment is an allowlist
plus the task's ``env``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from noetl_ray.errors import ToolError
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.python import ENV_ALLOWED

COMMAND_KEYS = ("cmds", "cmd", "command", "commands")
CONFIG_KEYS: frozenset[str] = frozenset(
    {*COMMAND_KEYS, "args", "env", "input", "shell", "timeout", "timeout_seconds"}
)
OUTPUT_BYTES_MAX = 16 << 20
"""What is kept of one stream; the rest is only logged."""
LINE_BYTES_MAX = 1 << 16
_READ_BYTES = 1 << 16
_DRAIN_READS_MAX = 256
_REAP_TRIES_MAX = 100
_KILL_WAIT_S = 2.0
_SHELL = "/bin/sh"
_SHELL_MARKS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})


class ShellTool:
    """Runs commands one after the other; the first that fails ends the task."""

    kind: ClassVar[str] = "shell"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "shell"
    text_keys: ClassVar[frozenset[str]] = frozenset(COMMAND_KEYS)

    def __init__(self, *, base_env: Mapping[str, str]) -> None:
        """Make the tool; commands see the allowed part of ``base_env`` and no more."""
        self._env = {name: base_env[name] for name in ENV_ALLOWED if name in base_env}
        self._env.setdefault("PATH", os.defpath)
        self._env.setdefault("LANG", "C.UTF-8")

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run every command; R has what all of them wrote and the last exit code."""
        through_shell = config.get("shell") is True
        commands = _commands(config, through_shell)
        env = {**self._env, **_extra_env(config.get("env"))}
        limit = time_limit_s(config, context.timeout_s)
        outputs = (_Output("stdout", context.log), _Output("stderr", context.log))
        try:
            async with asyncio.timeout(limit):
                for index, words in enumerate(commands):
                    if not through_shell and (marks := _SHELL_MARKS.intersection(words)):
                        hint = f"{min(marks)!r} is a plain word here; `shell: true` runs a shell"
                        context.log("stderr", hint)
                    code = await _run(words, env, outputs)
                    if code:
                        where = f"command {index + 1} of {len(commands)}: {words[0]!r}"
                        raise _failed(where, code, _shape(outputs, code))
        except TimeoutError:
            msg = f"the command ran longer than {limit:g} s and was killed"
            data = _shape(outputs, None)
            raise ToolError(msg, "timeout", True, {"timeout_s": limit}, data) from None
        return ToolResult(data=_shape(outputs, 0), meta={"exit_code": 0})

    async def close(self) -> None:
        """Nothing outlives a task."""


class _Output:
    """One stream of all commands of a task: lines to the log, the first bytes to the result."""

    def __init__(self, stream: str, log: Callable[[str, str], None]) -> None:
        self.kept = bytearray()
        self.truncated = False
        self._stream = stream
        self._log = log
        self._rest = b""

    def take(self, data: bytes) -> None:
        room = OUTPUT_BYTES_MAX - len(self.kept)
        self.kept += data[:room]
        self.truncated = self.truncated or len(data) > room
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._emit(line)
        while len(rest) > LINE_BYTES_MAX:
            self._emit(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._rest = rest

    def end_line(self) -> None:
        """A command ended: what it wrote without a line end is a line too."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._emit(rest)

    def text(self) -> str:
        return self.kept.decode("utf-8", "replace")

    def _emit(self, line: bytes) -> None:
        self._log(self._stream, line.rstrip(b"\r").decode("utf-8", "replace"))


async def _run(words: list[str], env: dict[str, str], outputs: tuple[_Output, _Output]) -> int:
    process = _start(words, env)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    watch = os.pidfd_open(process.pid)
    pipes = [
        (pipe.fileno(), output)
        for pipe, output in zip((process.stdout, process.stderr), outputs, strict=True)
        if pipe is not None
    ]

    def read(descriptor: int, output: _Output) -> bool:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            loop.remove_reader(descriptor)
            return False
        output.take(data)
        return True

    def over() -> None:
        loop.remove_reader(watch)
        ended.set()

    try:
        for descriptor, output in pipes:
            os.set_blocking(descriptor, False)
            loop.add_reader(descriptor, read, descriptor, output)
        loop.add_reader(watch, over)
        await ended.wait()
    except BaseException:
        _kill(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_WAIT_S):
                await ended.wait()
        raise
    finally:
        _kill(process)  # what it left behind
        loop.remove_reader(watch)
        os.close(watch)
        for descriptor, output in pipes:
            for _ in range(_DRAIN_READS_MAX):
                if not read(descriptor, output):
                    break
            output.end_line()
            loop.remove_reader(descriptor)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        _reap(process, loop, 0)
    code = process.returncode
    return code if code is not None else -signal.SIGKILL


def _start(words: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except FileNotFoundError:
        msg = f"there is no command {words[0]!r} on this worker"
        raise ToolError(msg, "not_found") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"the command {words[0]!r} cannot be started: {reason}"
        raise ToolError(msg, "schema") from None


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Not reaped yet, so the number still names this group and nobody else's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _reap(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, tries: int) -> None:
    # A killed process is gone within milliseconds; one stuck in the kernel is left to it.
    if process.poll() is None and tries < _REAP_TRIES_MAX:
        loop.call_later(0.002 * (1 + tries), _reap, process, loop, tries + 1)


def _commands(config: dict[str, Any], through_shell: bool) -> list[list[str]]:
    for key in COMMAND_KEYS:
        given = config.get(key)
        if given in (None, "", []):
            continue
        entries = given if isinstance(given, list) else [given]
        return [_words(entry, through_shell) for entry in entries]
    msg = "a shell task needs `cmds`: a command, or a list of commands"
    raise ToolError(msg, "schema")


def _words(entry: Any, through_shell: bool) -> list[str]:
    if isinstance(entry, list):
        words = [_word(item) for item in entry]
    elif not isinstance(entry, str):
        msg = f"a command must be text or a list of words, not {type(entry).__name__}"
        raise ToolError(msg, "schema")
    elif through_shell:
        return [_SHELL, "-c", entry]
    else:
        words = _split(entry)
    if not words or not words[0]:
        msg = "a command of `cmds` is empty"
        raise ToolError(msg, "schema")
    return words


def _word(item: Any) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str | int | float):
        return str(item)
    msg = f"a word of a command must be text or a number, not {type(item).__name__}"
    raise ToolError(msg, "schema")


def _split(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and all(_is_whole(line) for line in lines):
        msg = "a command over several lines needs `shell: true`, or a list with one command each"
        raise ToolError(msg, "schema")
    try:
        return shlex.split(text)
    except ValueError as error:
        msg = f"the command cannot be cut into words: {error}"
        raise ToolError(msg, "schema") from None


def _is_whole(line: str) -> bool:
    """Whether no quote is open at the end of a line."""
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True


def _extra_env(given: Any) -> dict[str, str]:
    if given in (None, ""):
        return {}
    if not isinstance(given, Mapping):
        msg = f"env must be a mapping of names to values, not {type(given).__name__}"
        raise ToolError(msg, "schema")
    extra = {}
    for name, value in given.items():
        if not isinstance(name, str) or not name or "=" in name:
            msg = f"{name!r} cannot be the name of an environment variable"
            raise ToolError(msg, "schema")
        if value is not None:
            extra[name] = _word(value)
    return extra


def _shape(outputs: tuple[_Output, _Output], code: int | None) -> dict[str, Any]:
    out, err = outputs
    stdout = out.text()
    data = {
        "stdout": stdout,
        "stderr": err.text(),
        "exit_code": code,
        "text": stdout.rstrip("\r\n"),
    }
    if out.truncated or err.truncated:
        data["truncated"] = True
    return data


def _failed(where: str, code: int, data: dict[str, Any]) -> ToolError:
    details: dict[str, Any] = {"exit_code": code}
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        details["signal"] = name
        how = f"was ended by signal {name}"
    else:
        how = f"ended with exit code {code}"
    said = [line for line in data["stderr"].splitlines() if line.strip()]
    last = f": {said[-1].strip()[:300]}" if said else ""
    return ToolError(f"{where} {how}{last}", "unknown", False, details, data)
