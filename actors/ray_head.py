"""A Ray head for the local set: started bound to loopback, closed by a token, and kept small.

Owns the ``ray start`` command line and its environment. Ending it is done by the mark every one
of its processes carries, never by ``ray stop``, which would end every Ray of this machine.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import actors
from actors.processes import ProcessRef, end, family, write_private
from noetl_ray.config.environ import environ
from noetl_ray.embedded.ports import free_port
from noetl_ray.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl_ray.config.settings import RaySettings

HOST = "127.0.0.1"
MARK_NAME = "NOETL_RAY_LOCAL_SET"
START_S = 60.0
_START_TRIES = 2
_OUTPUT_CHARS_MAX = 2_000
_SOCKET_PATH_BYTES = 103
_SESSION_PATH_BYTES = 64
"""What Ray appends to its temp dir for the longest of its sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayHead:
    """A running head."""

    address: str
    dashboard_url: str | None
    temp_dir: Path


def start_ray(
    settings: RaySettings,
    data_dir: Path,
    *,
    set_id: str,
    python_path: Sequence[str] = (),
) -> RayHead:
    """Start a head node that outlives this process.

    Args:
        settings: CPUs, object store and dashboard.
        data_dir: Holds the token, and the session files where its path is short enough.
        set_id: Mark by which every process of this head can be found.
        python_path: Folders the workers must be able to import from.

    Raises:
        InternalError: Ray did not start; the message ends with what it printed.
    """
    temp_dir = temp_dir_of(data_dir)
    _make_private(temp_dir.parent)
    temp_dir.mkdir(exist_ok=True, mode=0o700)
    _drop_old_sessions(temp_dir)
    ensure_token(data_dir)
    environment = {
        **environ(),
        **client_environment(data_dir),
        MARK_NAME: set_id,
        "RAY_START_HOOK": "actors.ray_head.trim",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray makes its workers nice by default; ours are the servers of this set, and a starved
        # conductor looks like a lost one.
        "RAY_worker_niceness": "0",
        "PYTHONPATH": import_path(python_path),
    }
    problem = ""
    for _ in range(_START_TRIES):
        port, dashboard_port = free_port(), free_port()
        command = _command(settings, temp_dir, port, dashboard_port)
        problem = _run(command, environment, temp_dir / "start.log")
        if not problem:
            url = f"http://{HOST}:{dashboard_port}" if settings.dashboard else None
            return RayHead(address=f"{HOST}:{port}", dashboard_url=url, temp_dir=temp_dir)
        end(processes(set_id), grace_s=0)
    msg = f"ray start failed: {problem}"
    raise InternalError(msg)


def client_environment(data_dir: Path) -> dict[str, str]:
    """What a process must have in its environment to join the head of this data directory."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_path(data_dir)),
        # Ray's switch for single-machine use: nodes call themselves 127.0.0.1, not the address of
        # a network card. Nothing listens outside, and a laptop may change its network meanwhile.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }


def processes(set_id: str) -> list[ProcessRef]:
    """Every process of the head of this mark, workers and their children included."""
    return family(f"{MARK_NAME}={set_id}")


def ensure_token(data_dir: Path) -> Path:
    """Make the token of a data directory once; it stays the same over restarts."""
    path = token_path(data_dir)
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    return path


def import_path(more: Sequence[str] = ()) -> str:
    """``PYTHONPATH`` of a process that must find these packages and ``more``."""
    # Where the packages are: needed as long as they run from a checkout that is not installed.
    home = str(Path(actors.__file__).resolve().parent.parent)
    existing = environ().get("PYTHONPATH", "").split(":")
    return ":".join(dict.fromkeys([home, *more, *(part for part in existing if part)]))


def temp_dir_of(data_dir: Path) -> Path:
    """Where Ray keeps its session: in the data directory unless socket paths get too long.

    Ray opens this folder to everyone, so it lies in one that nobody else may enter.
    """
    inside = data_dir / "ray" / "s"
    if len(str(inside).encode()) + _SESSION_PATH_BYTES <= _SOCKET_PATH_BYTES:
        return inside
    return _outside(data_dir) / "s"


def forget(data_dir: Path) -> None:
    """Remove what Ray kept outside the data directory; call it when nothing of it runs."""
    folder = _outside(data_dir)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def _outside(data_dir: Path) -> Path:
    digest = hashlib.sha256(str(data_dir).encode()).hexdigest()[:10]
    return Path(tempfile.gettempdir()) / f"noetl-{digest}"


def _make_private(folder: Path) -> None:
    """A folder only we may enter; its name can be guessed, so one that a stranger made is refused.

    Raises:
        InternalError: It is there and not ours.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        msg = f"{folder} belongs to somebody else; remove it or choose another data directory"
        raise InternalError(msg)
    folder.chmod(0o700)


def trim(parameters: Any, head: bool) -> None:
    """Called by ``ray start``: leave out the Ray Client server, which nobody here uses."""
    if head:
        parameters.ray_client_server_port = None


def _command(settings: RaySettings, temp_dir: Path, port: int, dashboard_port: int) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        f"--node-ip-address={HOST}",
        f"--port={port}",
        f"--temp-dir={temp_dir}",
        f"--include-dashboard={str(settings.dashboard).lower()}",
        f"--dashboard-host={HOST}",
        f"--dashboard-port={dashboard_port}",
        f"--dashboard-agent-listen-port={free_port()}",
        f"--object-store-memory={settings.object_store_mb * 1024 * 1024}",
        "--include-log-monitor=false",
        "--no-monitor",
        "--disable-usage-stats",
    ]
    if settings.num_cpus:
        command.append(f"--num-cpus={settings.num_cpus}")
    return command


def _run(command: list[str], environment: Mapping[str, str], log_path: Path) -> str:
    """Empty when it worked, else why not."""
    with log_path.open("wb") as output:
        try:
            # A session of its own: Ctrl-C in the terminal must not reach Ray.
            code = subprocess.run(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=START_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"no answer in {START_S:g} s, see {log_path}"
    if code == 0:
        return ""
    return f"exit code {code}: {log_path.read_text(errors='replace')[-_OUTPUT_CHARS_MAX:]}"


def token_path(data_dir: Path) -> Path:
    """Where the token of a local set's Ray lies; its dashboard asks for it."""
    return data_dir / "ray.token"


def _drop_old_sessions(temp_dir: Path) -> None:
    sessions = sorted(path for path in temp_dir.glob("session_2*") if path.is_dir())
    # The newest stays: its logs tell why the last set ended.
    for path in sessions[:-1]:
        shutil.rmtree(path, ignore_errors=True)
