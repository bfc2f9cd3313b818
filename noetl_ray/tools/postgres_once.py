"""Exactly-once for databases: a task's statements and the mark that they ran, in one transaction.

Owns the table of marks. Because effect and mark commit together, a task that is run again after a
crash at any moment finds either both or neither: with the mark there, the first run's result is
given back and nothing is executed. The price is one small row per task run, kept in the user's own
database until somebody deletes it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ToolError
from noetl_ray.tools.sqlsplit import head_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MARKS = "noetl_effects"
RESULT_BYTES_MAX = 1_000_000
"""A larger result is not kept; a repeated run then gives counts only."""

_CREATE = f"""
CREATE TABLE IF NOT EXISTS {MARKS} (
    key text PRIMARY KEY,
    result jsonb,
    done_at timestamptz NOT NULL DEFAULT now()
)"""
_OUTSIDE_TRANSACTIONS = frozenset({"VACUUM", "CALL", "BEGIN", "START", "COMMIT", "ROLLBACK", "END"})


def refuse_unfit(statements: list[str]) -> None:
    """Refuse statements that cannot share one transaction with their mark.

    Raises:
        ToolError: of kind ``schema``, naming the statement.
    """
    for statement in statements:
        words = head_words(statement)
        concurrently = words[:1] == ("CREATE",) and "CONCURRENTLY" in statement.upper()
        database = len(words) > 1 and words[1] in ("DATABASE", "TABLESPACE")
        if concurrently or database or (words and words[0] in _OUTSIDE_TRANSACTIONS):
            msg = (
                f"{' '.join(words[:2])} cannot be part of `exactly_once: true`, which runs all "
                "statements in one transaction: leave it to a task of its own"
            )
            raise ToolError(msg, "schema")


async def once(
    connection: Any, key: str, work: Callable[[], Awaitable[dict[str, Any]]]
) -> tuple[dict[str, Any], bool]:
    """Do the work unless its mark is there; its data, and whether an earlier run did it."""
    await _ensure_table(connection)
    transaction = connection.transaction()
    await transaction.start()
    try:
        # The insert waits for another transaction that holds the same key: whoever is second
        # learns what the first one came to.
        taken = await connection.fetchval(
            f"INSERT INTO {MARKS} (key) VALUES ($1) ON CONFLICT (key) DO NOTHING RETURNING key", key
        )
        if taken is None:
            kept = await connection.fetchval(f"SELECT result FROM {MARKS} WHERE key = $1", key)
            await transaction.rollback()
            return (json.loads(kept) if kept else _forgotten()), True
        data = await work()
        text = json.dumps(data, default=str)
        if len(text) <= RESULT_BYTES_MAX:
            await connection.execute(
                f"UPDATE {MARKS} SET result = $2::jsonb WHERE key = $1", key, text
            )
        await transaction.commit()
    except BaseException:
        if connection.is_in_transaction():
            await transaction.rollback()
        raise
    return data, False


async def _ensure_table(connection: Any) -> None:
    """Make the table where it lacks; two tasks may try at once, so a lost race is no error."""
    if await connection.fetchval("SELECT to_regclass($1)", MARKS) is None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", MARKS)
            await connection.execute(_CREATE)


def _forgotten() -> dict[str, Any]:
    return {
        "status": "success",
        "row_count": 0,
        "statement_count": 0,
        "message": "done by an earlier run, whose result was too large to keep",
    }
