"""Cursor claims over Postgres: one transaction each, named by its transaction id (P21)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg

from noetl_ray.errors import ToolError
from noetl_ray.events.canonical import canonical_json, to_jsonable
from noetl_ray.tools.auth import pick, resolve_auth
from noetl_ray.tools.cursor import Claimed, CursorClaim, Fate, Keep, Row
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.postgres_errors import map_error
from noetl_ray.tools.postgres_pools import PostgresPools, Target, is_alive, target_of
from noetl_ray.tools.postgres_values import converter_for
from noetl_ray.tools.sqlsplit import split_statements

if TYPE_CHECKING:
    from noetl_ray.tools.port import ToolContext

_SERVICES = frozenset({"postgres", "postgresql"})
_CLAIM_TIMEOUT_S = 60.0
_EVICT_POLL_S = 0.05
_EVICT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE application_name = $1 AND pid <> pg_backend_pid()"
)
_BEGIN = "SELECT pg_current_xact_id()::text, set_config('application_name', $1, true)"
_FATES: dict[str, Fate] = {
    "committed": "committed",
    "aborted": "aborted",
    "in progress": "running",
}


class PostgresCursor:
    """Claims rows over the pools of the postgres kind."""

    def __init__(self, pools: PostgresPools) -> None:
        self._pools = pools

    async def claim(self, wanted: CursorClaim, keep: Keep, context: ToolContext) -> Claimed:
        """Claim, keep, commit; too many bytes are rolled back and claimed anew as fewer rows."""
        target = await _target(wanted.config, context)
        limit = time_limit_s(wanted.config, context.timeout_s) or _CLAIM_TIMEOUT_S
        rows_max = wanted.max_rows
        while True:
            statements = split_statements(wanted.statement(rows_max))
            if not statements:
                msg = "the cursor's claim is empty"
                raise ToolError(msg, "schema")
            try:
                async with asyncio.timeout(limit):
                    found, fewer = await self._once(target, statements, wanted, keep)
            except TimeoutError:
                msg = f"the claim ran longer than {limit:g} s and was rolled back"
                raise ToolError(msg, "db_timeout", True, {"timeout_s": limit}) from None
            if fewer is None:
                return found
            rows_max = fewer

    async def evict(self, config: dict[str, Any], tag: str, context: ToolContext) -> None:
        """End sessions of earlier holders that still claim, and see them gone."""
        target = await _target(config, context)
        connection = await self._pools.acquire(target)
        keep = False
        try:
            async with asyncio.timeout(_CLAIM_TIMEOUT_S):
                left = await connection.fetchval(_EVICT, tag)
                while left:
                    await asyncio.sleep(_EVICT_POLL_S)
                    left = await connection.fetchval(_EVICT, tag)
            keep = True
        except TimeoutError:
            msg = "an earlier claim of this frame is still open in the database"
            raise ToolError(msg, "db_timeout", True) from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise map_error(error, "ending an earlier claim", target.secrets) from None
        finally:
            await self._pools.release(target, connection, keep=keep)

    async def fate(self, config: dict[str, Any], token: str, context: ToolContext) -> Fate:
        """Ask the server what became of a transaction."""
        target = await _target(config, context)
        connection = await self._pools.acquire(target)
        keep = False
        try:
            with_status = "SELECT pg_xact_status($1::text::xid8)"
            status = await connection.fetchval(with_status, token, timeout=_CLAIM_TIMEOUT_S)
            keep = True
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise map_error(error, "asking about a claim", target.secrets) from None
        finally:
            await self._pools.release(target, connection, keep=keep)
        if status not in _FATES:
            msg = f"the server does not remember transaction {token} of a claim; its rows are lost"
            raise ToolError(msg, "unknown")
        return _FATES[status]

    async def _once(
        self, target: Target, statements: list[str], wanted: CursorClaim, keep: Keep
    ) -> tuple[Claimed, int | None]:
        """One transaction: the rows, or how many to ask for instead."""
        connection = await self._pools.acquire(target)
        reusable = False
        transaction = None
        try:
            transaction = connection.transaction()
            await transaction.start()
            token = await connection.fetchval(_BEGIN, wanted.tag)
            rows = await _run(connection, statements)
            size = len(canonical_json(to_jsonable(rows)))
            if size > wanted.max_bytes and len(rows) > 1:
                await transaction.rollback()
                reusable = True
                return Claimed(), max(1, len(rows) * wanted.max_bytes // size)
            if rows:
                await keep(rows, token)
            await transaction.commit()
            reusable = True
            return Claimed(rows=rows, size_bytes=size), None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise map_error(error, "the cursor's claim", target.secrets) from None
        finally:
            # A session that may still hold the claim must end now: its rows are someone else's.
            await self._pools.release(target, connection, keep=reusable and is_alive(connection))


async def _run(connection: Any, statements: list[str]) -> list[Row]:
    rows: list[Row] = []
    for statement in statements:
        prepared = await connection.prepare(statement)
        attributes = prepared.get_attributes()
        records = await prepared.fetch()
        if not attributes:
            continue
        columns = [(a.name, converter_for(a.type.name)) for a in attributes]
        rows = [
            {
                name: value if value is None or convert is None else convert(value)
                for (name, convert), value in zip(columns, record, strict=True)
            }
            for record in records
        ]
    return rows


async def _target(config: dict[str, Any], context: ToolContext) -> Target:
    auth = pick(await resolve_auth(config, context), _SERVICES)
    if auth is None:
        msg = "the cursor needs a database: give it `auth: <credential name>`"
        raise ToolError(msg, "auth")
    return target_of(auth, config.get("database"))
