"""Connections for postgres tasks: one bounded asyncpg pool per database and user, closed when idle.

It owns reading a credential (dsl section 12) and connecting. Nothing is taken from this process's
environment or password files: a playbook's host must never be offered the operator's password.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from noetl_ray.errors import ToolError
from noetl_ray.events.canonical import digest
from noetl_ray.tools.postgres_errors import map_error

if TYPE_CHECKING:
    from noetl_ray.tools.auth import Auth

POOLS_MAX = 32
CONNECT_TIMEOUT_S = 15.0
_ALIASES = {
    "host": ("db_host", "host", "hostname", "server"),
    "port": ("db_port", "port"),
    "user": ("db_user", "user", "username"),
    "password": ("db_password", "password"),
    "database": ("db_name", "database", "dbname", "db"),
    "ssl": ("sslmode", "ssl", "db_sslmode"),
}
_DSN_KEYS = ("dsn", "connection_string", "url", "uri")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to connect and as whom. ``options`` holds the password: it is never shown."""

    key: str
    label: str
    options: dict[str, Any] = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may contain."""
        password = str(self.options.get("password") or "")
        return (password,) if password else ()


def target_of(auth: Auth, database: Any = None) -> Target:
    """Read a credential. Raises ToolError of kind ``auth`` naming what is missing."""
    fields = _from_dsn(auth)
    for name, aliases in _ALIASES.items():
        given = next((auth.data[a] for a in aliases if auth.data.get(a) not in (None, "")), None)
        if given is not None:
            fields.setdefault(name, given)
    if database not in (None, ""):
        fields["database"] = database
    missing = [name for name in ("host", "user", "database") if not fields.get(name)]
    if missing:
        wanted = ", ".join(f"db_{'name' if n == 'database' else n}" for n in missing)
        msg = f"credential {auth.name!r} cannot reach a database: it lacks {wanted} (or a dsn)"
        raise ToolError(msg, "auth", False, {"credential": auth.name})
    try:
        port = int(fields.get("port") or 5432)
    except ValueError:
        msg = f"credential {auth.name!r}: the port is not a number"
        raise ToolError(msg, "auth", False, {"credential": auth.name}) from None
    options: dict[str, Any] = {
        "host": str(fields["host"]),
        "port": port,
        "user": str(fields["user"]),
        # Empty, not absent: asyncpg would fill an absent one from the environment or ~/.pgpass.
        "password": str(fields.get("password") or ""),
        "database": str(fields["database"]),
    }
    if fields.get("ssl") not in (None, "", False):
        options["ssl"] = "require" if fields["ssl"] is True else str(fields["ssl"])
    label = f"{options['host']}:{port}/{options['database']}"
    return Target(key=digest(options), label=label, options=options)


def _from_dsn(auth: Auth) -> dict[str, Any]:
    text = next((str(auth.data[key]) for key in _DSN_KEYS if auth.data.get(key)), "").strip()
    if not text:
        return {}
    try:
        if "://" in text:
            return _from_uri(text)
        pairs = (part.split("=", 1) for part in shlex.split(text))
        given = {key.strip(): value for key, value in pairs}
    except ValueError:
        msg = f"credential {auth.name!r}: its connection string cannot be read"
        raise ToolError(msg, "auth", False, {"credential": auth.name}) from None
    return _by_libpq_names(given)


def _from_uri(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if parts.scheme not in ("postgres", "postgresql"):
        raise ValueError(parts.scheme)
    given = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    if parts.hostname:
        given["host"] = unquote(parts.hostname)
    if parts.port:
        given["port"] = str(parts.port)
    if parts.username:
        given["user"] = unquote(parts.username)
    if parts.password:
        given["password"] = unquote(parts.password)
    if parts.path.strip("/"):
        given["dbname"] = unquote(parts.path.removeprefix("/"))
    return _by_libpq_names(given)


def _by_libpq_names(given: dict[str, str]) -> dict[str, Any]:
    names = {"dbname": "database", "sslmode": "ssl"}
    known = ("host", "port", "user", "password", "database", "ssl")
    renamed = {names.get(key, key): value for key, value in given.items()}
    return {key: value for key, value in renamed.items() if key in known and value}


def is_alive(connection: Any) -> bool:
    """Whether a connection still has a session; the pool takes back one that broke by itself."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False


@dataclass(slots=True)
class _Entry:
    pool: Any
    users: int = 0
    idle_since: float = 0.0


class PostgresPools:
    """At most ``POOLS_MAX`` pools; one nobody used for ``idle_s`` is closed."""

    def __init__(self, *, connections_max: int, idle_s: float) -> None:
        self._connections_max = connections_max
        self._idle_s = idle_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def acquire(self, target: Target) -> Any:
        """A connection, waiting in line when all are taken."""
        entry = self._entry(target)
        entry.users += 1
        try:
            return await entry.pool.acquire()
        except BaseException as error:
            entry.users -= 1
            if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
                raise
            where = f"cannot connect to the database at {target.label}"
            raise map_error(error, where, target.secrets) from None

    async def release(self, target: Target, connection: Any, *, keep: bool) -> None:
        """Give a connection back; one not to be kept is closed."""
        entry = self._entries[target.key]
        try:
            if not keep and is_alive(connection):
                # The session must end whatever else happens, and at once: no goodbye is awaited.
                connection.terminate()
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await entry.pool.release(connection)
        finally:
            entry.users -= 1
            loop = asyncio.get_running_loop()
            entry.idle_since = loop.time()
            if self._sweeper is None:
                self._sweeper = loop.call_later(self._idle_s, self._sweep)

    async def close(self) -> None:
        """Close all pools, breaking what still runs after a moment."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        entries, self._entries = list(self._entries.values()), OrderedDict()
        await asyncio.gather(*(_close(entry.pool) for entry in entries), *self._closing)

    def _entry(self, target: Target) -> _Entry:
        entry = self._entries.get(target.key)
        if entry is None:
            if len(self._entries) >= POOLS_MAX:
                self._evict()
            pool = _LazyPool(target.options, self._connections_max, self._idle_s)
            entry = self._entries[target.key] = _Entry(pool)
        self._entries.move_to_end(target.key)
        return entry

    def _evict(self) -> None:
        for key, entry in self._entries.items():
            if not entry.users:
                self._drop(key)
                return
        msg = f"tasks use more than {POOLS_MAX} databases at once; try again later"
        raise ToolError(msg, "db_connection", True)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        old = loop.time() - self._idle_s
        for key, entry in list(self._entries.items()):
            if not entry.users and entry.idle_since <= old:
                self._drop(key)
        self._sweeper = loop.call_later(self._idle_s, self._sweep) if self._entries else None

    def _drop(self, key: str) -> None:
        task = asyncio.get_running_loop().create_task(_close(self._entries.pop(key).pool))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _LazyPool:
    """An asyncpg pool that is made by its first user."""

    def __init__(self, options: dict[str, Any], connections_max: int, idle_s: float) -> None:
        self._pool = asyncpg.create_pool(
            min_size=0,
            max_size=connections_max,
            max_inactive_connection_lifetime=idle_s,
            timeout=CONNECT_TIMEOUT_S,
            server_settings={"application_name": "noetl-ray"},
            **options,
        )
        self._ready = False
        self._lock = asyncio.Lock()

    async def acquire(self) -> Any:
        if not self._ready:
            async with self._lock:
                if not self._ready:
                    await self._pool
                    self._ready = True
        return await self._pool.acquire()

    async def release(self, connection: Any) -> None:
        await self._pool.release(connection)

    async def close(self) -> None:
        if self._ready:
            await self._pool.close()

    def terminate(self) -> None:
        if self._ready:
            self._pool.terminate()


async def _close(pool: _LazyPool) -> None:
    try:
        async with asyncio.timeout(2.0):
            await pool.close()
    except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        pool.terminate()
