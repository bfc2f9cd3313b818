"""The ``postgres`` kind: runs the statements of a task one by one and shapes their results.

Each statement is its own transaction because it is sent alone in autocommit, which is also what
CREATE DATABASE, VACUUM, CALL and CREATE INDEX CONCURRENTLY need. The first failure stops the rest.
Connections, lexical rules, values and error kinds have modules of their own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import asyncpg

from noetl_ray.errors import ToolError
from noetl_ray.tools.auth import pick, resolve_auth
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.postgres_cursor import PostgresCursor
from noetl_ray.tools.postgres_errors import map_error
from noetl_ray.tools.postgres_once import once, refuse_unfit
from noetl_ray.tools.postgres_pools import PostgresPools, Target, is_alive, target_of
from noetl_ray.tools.postgres_values import converter_for
from noetl_ray.tools.sqlsplit import gives_no_rows, head_words, split_statements

if TYPE_CHECKING:
    from collections.abc import Sequence

SQL_KEYS = ("query", "command", "queries", "commands", "cmd", "cmds", "sql", "script")
CONFIG_KEYS: frozenset[str] = frozenset(
    {
        *SQL_KEYS,
        "args",
        "auth",
        "credential",
        "database",
        "exactly_once",
        "input",
        "pool",
        "timeout",
        "timeout_seconds",
    }
)
_SERVICES = frozenset({"postgres", "postgresql"})
_ROWS_PER_TURN = 2_000
_AUTH_HELP = (
    "a postgres task needs a database: give it `auth: <credential name>` and add that credential "
    "with `noetl-ray credential add <name> --type postgres`"
)


class PostgresTool:
    """Runs SQL over pooled connections, one pool per database and user."""

    kind: ClassVar[str] = "postgres"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "pg"
    text_keys: ClassVar[frozenset[str]] = frozenset(SQL_KEYS) - {"script"}

    def __init__(self, *, connections_max: int = 8, idle_s: float = 60.0) -> None:
        """Make the tool; ``connections_max`` counts per credential."""
        self._pools = PostgresPools(connections_max=connections_max, idle_s=idle_s)
        self.cursor = PostgresCursor(self._pools)

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run every statement; R is the last one's result with the others as ``command_<i>``."""
        statements = _statements(config)
        auth = pick(await resolve_auth(config, context), _SERVICES)
        if auth is None:
            raise ToolError(_AUTH_HELP, "auth")
        target = target_of(auth, config.get("database"))
        limit = time_limit_s(config, context.timeout_s)
        results: list[dict[str, Any]] = []
        key = ""
        if config.get("exactly_once") is True:
            refuse_unfit(statements)
            key = context.idempotency_key
        try:
            async with asyncio.timeout(limit):
                kept = await self._run_all(target, statements, results, key)
        except TimeoutError:
            msg = f"the SQL ran longer than {limit:g} s and was cancelled"
            data = _shape(results, len(statements), failed=msg)
            raise ToolError(msg, "db_timeout", True, {"timeout_s": limit}, data) from None
        data = kept or _shape(results, len(statements))
        meta = {"code": "00000", "sqlstate": "00000", "row_count": data["row_count"]}
        if key:
            meta["adopted"] = kept is not None
        return ToolResult(data=data, meta=meta)

    async def close(self) -> None:
        """Close every connection."""
        await self._pools.close()

    async def _run_all(
        self,
        target: Target,
        statements: Sequence[str],
        results: list[dict[str, Any]],
        key: str,
    ) -> dict[str, Any] | None:
        """Run the statements; what an earlier run under the same key gave instead, if one did."""
        connection = await self._pools.acquire(target)
        reusable = False
        kept: dict[str, Any] | None = None

        async def work() -> dict[str, Any]:
            await _run_each(connection, target, statements, results)
            return _shape(results, len(statements))

        try:
            if key:
                try:
                    found, adopted = await once(connection, key, work)
                except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    raise map_error(error, "exactly_once", target.secrets) from None
                kept = found if adopted else None
            else:
                await work()
            if is_alive(connection) and connection.is_in_transaction():
                msg = "the SQL left a transaction open, so its changes were rolled back: add COMMIT"
                raise ToolError(msg, "schema")
            reusable = not any(_leaves_traces(statement) for statement in statements)
            return kept
        finally:
            keep = reusable or _is_clean(connection, statements)
            await self._pools.release(target, connection, keep=keep)


async def _run_each(
    connection: Any, target: Target, statements: Sequence[str], results: list[dict[str, Any]]
) -> None:
    for index, statement in enumerate(statements):
        try:
            results.append(await _run_one(connection, statement))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            many = len(statements) > 1
            where = f"statement {index + 1} of {len(statements)}" if many else "SQL error"
            mapped = map_error(error, where, target.secrets)
            mapped.details["statement_index"] = index
            data = _shape(results, len(statements), failed=mapped.message)
            raise ToolError(
                mapped.message, mapped.kind, mapped.retryable, mapped.details, data
            ) from None


async def _run_one(connection: Any, statement: str) -> dict[str, Any]:
    if gives_no_rows(statement):
        # One message there and one back, where a statement of unknown shape takes three of each.
        return _changed(await connection.execute(statement))
    prepared = await connection.prepare(statement)
    attributes = prepared.get_attributes()
    records = await prepared.fetch()
    message = prepared.get_statusmsg() or ""
    if not attributes:
        return _changed(message)
    columns = [attribute.name for attribute in attributes]
    converters = [converter_for(attribute.type.name) for attribute in attributes]
    rows: list[dict[str, Any]] = []
    for start in range(0, len(records), _ROWS_PER_TURN):
        if start:
            await asyncio.sleep(0)  # a big result must not stop everything else of this process
        rows.extend(
            {
                column: value if value is None or convert is None else convert(value)
                for column, convert, value in zip(columns, converters, record, strict=True)
            }
            for record in records[start : start + _ROWS_PER_TURN]
        )
    return {"status": "success", "columns": columns, "rows": rows, "row_count": len(rows)}


def _changed(message: str) -> dict[str, Any]:
    count = _affected(message)
    return {
        "status": "success",
        "row_count": count,
        "affected_rows": count,
        "message": message,
    }


def _affected(message: str) -> int:
    """The count at the end of a command tag such as ``INSERT 0 3``; 0 where there is none."""
    last = message.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


def _shape(results: list[dict[str, Any]], count: int, failed: str | None = None) -> dict[str, Any]:
    """R: the last result on top, each statement's own under ``command_<i>`` (older playbooks)."""
    if failed is None:
        top = dict(results[-1])
    else:
        top = {"status": "error", "row_count": 0, "message": failed}
    top["statement_count"] = count
    top.update({f"command_{index}": result for index, result in enumerate(results)})
    return top


def _statements(config: dict[str, Any]) -> list[str]:
    for key in SQL_KEYS:
        value = config.get(key)
        if isinstance(value, dict):
            source = value.get("source")
            value = source.get("code") if isinstance(source, dict) else value.get("code")
        texts = value if isinstance(value, list) else [value]
        found = [
            statement
            for text in texts
            if isinstance(text, str)
            for statement in split_statements(text)
        ]
        if found:
            return found
    msg = "a postgres task needs SQL: give `query` or `command`"
    raise ToolError(msg, "schema")


def _leaves_traces(statement: str) -> bool:
    """Whether a statement changes the session in a way the pool's reset does not undo."""
    words = head_words(statement)
    match words:
        case ("SET", "ROLE", *_) | ("SET", _, "ROLE", *_) | ("SET", "SESSION", *_):
            return True
        case ("PREPARE", *_) | ("LOAD", *_) | ("DEALLOCATE", *_) | ("DISCARD", *_):
            return True
        case ("CREATE", *rest):
            return bool({"TEMP", "TEMPORARY"} & set(rest))
        case ("SELECT", *_) | ("WITH", *_):
            upper = statement.upper()
            return "INTO" in upper and "TEMP" in upper
        case ("DO", *_) | ("CALL", *_):
            return True  # a body may do any of the above
        case _:
            return False


def _is_clean(connection: Any, statements: Sequence[str]) -> bool:
    """After a failure: whether the session can serve another task."""
    if not is_alive(connection) or connection.is_in_transaction():
        return False
    return not any(_leaves_traces(statement) for statement in statements)
