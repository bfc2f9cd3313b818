"""Connections to the read model: a pool, the JSON codec, and values that Postgres can hold.

Postgres text cannot hold the NUL character and its JSONB refuses the escape of it, while an event
may carry one; it is replaced on the way in, so that one odd string cannot stop the projection of
everything after it. The log keeps the original.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 5.0
_REPLACEMENT = "\ufffd"
_encode = msgspec.json.Encoder(decimal_format="string").encode
_decode = msgspec.json.Decoder().decode


PROJECTOR_ROLE = "noetl_projector"
"""May change rows of the read model, and nothing else in the database (SEC-2)."""
READER_ROLE = "noetl_reader"
"""May read the read model."""

_TAKE_ROLE = """
SELECT set_config('role', r.rolname, false) FROM pg_roles r
WHERE r.rolname = $1 AND pg_has_role(session_user, r.oid, 'MEMBER')
  AND (to_regnamespace('noetl') IS NULL
       OR has_schema_privilege(r.oid, to_regnamespace('noetl'), 'USAGE'))
"""


async def open_pool(dsn: str, *, size_max: int, operator: bool) -> Pool:
    """A pool that connects when first used; so a server that is down now costs nothing yet.

    Where the database has a role for the purpose and ours belongs to it, connections take it on.

    Args:
        dsn: The database.
        size_max: Connections at most.
        operator: Whether its connections see every scope; a pool for queries must not (TEN-3).
    """
    return await asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=size_max,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=COMMAND_TIMEOUT_S,
        init=_as_projector if operator else _as_reader,
        reset=_keep,
        server_settings={
            "application_name": "noetl-projector" if operator else "noetl-queries",
            "noetl.operator": "on" if operator else "off",
        },
    )


async def close_pool(pool: Pool) -> None:
    """Close in order, and cut what does not answer in time."""
    try:
        await asyncio.wait_for(pool.close(), CLOSE_TIMEOUT_S)
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pool.terminate()


def clean(text: str | None) -> str | None:
    """Text as Postgres can hold it."""
    if text is not None and "\0" in text:
        return text.replace("\0", _REPLACEMENT)
    return text


@lru_cache(maxsize=4096)
def instant(text: str | None) -> datetime | None:
    """ISO text as what the driver takes for a TIMESTAMPTZ."""
    return None if text is None else datetime.fromisoformat(text)


def iso(value: datetime | None) -> str | None:
    """The inverse of :func:`instant`, in the envelope's form."""
    if value is None:
        return None
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def changed_rows(status: str) -> int:
    """How many rows a command tag such as ``INSERT 0 12`` speaks of."""
    return int(status.rpartition(" ")[2])


def columns_of(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows turned into columns, as ``unnest`` wants them."""
    return list(zip(*rows, strict=True))


async def _as_projector(connection: Connection) -> None:
    await _init(connection, PROJECTOR_ROLE)


async def _as_reader(connection: Connection) -> None:
    await _init(connection, READER_ROLE)


async def _init(connection: Connection, role: str) -> None:
    await connection.fetchval(_TAKE_ROLE, role)
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=encode_jsonb,
        decoder=decode_jsonb,
        format="binary",
    )


async def _keep(connection: Connection) -> None:
    """Nothing to reset: each query states its scope first, which saves a round trip per release."""


def encode_jsonb(value: Any) -> bytes:
    """JSONB in the binary protocol: a version byte and the JSON text."""
    data = _encode(value)
    if b"\\u0000" in data:
        data = _encode(_without_nul(_decode(data)))
    return b"\x01" + data


def decode_jsonb(data: bytes) -> Any:
    """The inverse of :func:`encode_jsonb`."""
    return _decode(data[1:])


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", _REPLACEMENT)
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return value
