"""The schema's version: applies the numbered SQL files of ``migrations`` in order, each once.

Runs at start-up under an advisory lock, so that several processes may try at the same time. A
schema newer than this code is refused: old code must not write rows it does not understand.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import asyncpg

from noetl_ray.errors import StoreError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.readmodel.postgres_errors import store_errors
from noetl_ray.readmodel.postgres_pool import PROJECTOR_ROLE, READER_ROLE

_LOCK_KEY = 0x6E6F65746C  # "noetl"
_TIMEOUT_S = 60.0
_RIGHTS = {
    PROJECTOR_ROLE: (
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA noetl "
        f"TO {PROJECTOR_ROLE}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA noetl TO {PROJECTOR_ROLE}; "
        f"REVOKE UPDATE ON noetl.event FROM {PROJECTOR_ROLE}; "
        f"REVOKE INSERT, UPDATE, DELETE ON noetl.schema_version FROM {PROJECTOR_ROLE}"
    ),
    READER_ROLE: f"GRANT SELECT ON ALL TABLES IN SCHEMA noetl TO {READER_ROLE}",
}
"""What the roles of :mod:`postgres_pool` may do, where a database has them (SEC-2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered SQL file."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """What a database remembers of the text it was given."""
        return sha256_hex(self.sql.encode())


def migrations() -> list[Migration]:
    """All migrations this code knows, by ascending version without gaps."""
    found = []
    for file in resources.files("noetl_ray.readmodel").joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(version=int(number), name=name, sql=file.read_text("utf-8")))
    found.sort(key=lambda migration: migration.version)
    return found


async def migrate(dsn: str, known: list[Migration] | None = None) -> int:
    """Bring a database to the newest schema this code knows; returns the schema's version.

    Args:
        dsn: The database; its role must be allowed to create the schema ``noetl``.
        known: Other migrations than the shipped ones, for tests.

    Raises:
        StoreError: the schema is newer than this code, or was made from other text.
        StoreUnavailableError: the database cannot be reached.
    """
    todo = migrations() if known is None else known
    with store_errors():
        connection = await asyncpg.connect(dsn, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S)
        try:
            async with connection.transaction():
                return await _apply(connection, todo)
        finally:
            await connection.close(timeout=5)


async def drop_schema(dsn: str) -> None:
    """Forget the whole read model; projectors then build it anew from the log (P1)."""
    with store_errors():
        connection = await asyncpg.connect(dsn, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S)
        try:
            await connection.execute("DROP SCHEMA IF EXISTS noetl CASCADE")
        finally:
            await connection.close(timeout=5)


async def _apply(connection: asyncpg.Connection[asyncpg.Record], todo: list[Migration]) -> int:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
    # Looked up before it is created: a role that may use the schema need not be allowed to make
    # one.
    if not await connection.fetchval("SELECT to_regclass('noetl.schema_version') IS NOT NULL"):
        await connection.execute("CREATE SCHEMA IF NOT EXISTS noetl")
        await connection.execute(
            "CREATE TABLE noetl.schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
            "checksum TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
        )
    rows = await connection.fetch("SELECT version, checksum FROM noetl.schema_version")
    applied = {row["version"]: row["checksum"] for row in rows}
    newest = todo[-1].version if todo else 0
    if applied and max(applied) > newest:
        msg = (
            f"the read model has schema {max(applied)}, this code knows {newest}: "
            "upgrade this program, or drop the schema and let it be rebuilt from the log"
        )
        raise StoreError(msg)
    for migration in todo:
        held = applied.get(migration.version)
        if held == migration.checksum:
            continue
        if held is not None:
            msg = (
                f"migration {migration.version} ({migration.name}) was applied with other text: "
                "drop the schema and let it be rebuilt from the log"
            )
            raise StoreError(msg)
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO noetl.schema_version (version, name, checksum) VALUES ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.checksum,
        )
    for role, rights in _RIGHTS.items():
        if await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
            await connection.execute(f"GRANT USAGE ON SCHEMA noetl TO {role}; {rights}")
    return newest
