"""asyncpg's errors as ToolError, by the kinds of dsl section 6. None of them is left out.

Messages carry the server's own first line and never its DETAIL, which quotes row values.
"""

from __future__ import annotations

import ssl
from typing import Any

import asyncpg

from noetl_ray.errors import ToolError

_BY_STATE: dict[str, tuple[str, bool]] = {
    "40001": ("db_deadlock", True),
    "40P01": ("db_deadlock", True),
    "57014": ("db_timeout", True),
    "55P03": ("db_timeout", True),
    "25P03": ("db_timeout", True),
    "25P04": ("db_timeout", True),
    "57P01": ("db_connection", True),
    "57P02": ("db_connection", True),
    "57P03": ("db_connection", True),
    "57P05": ("db_connection", True),
    "53300": ("db_connection", True),
    "3D000": ("not_found", False),
    "42501": ("auth", False),
    "42601": ("parse", False),
}
_BY_CLASS: dict[str, tuple[str, bool]] = {
    "08": ("db_connection", True),
    "23": ("db_constraint", False),
    "28": ("auth", False),
    "42": ("schema", False),
    "22": ("schema", False),
    "3F": ("schema", False),
}


def state_kind(sqlstate: str) -> tuple[str, bool]:
    """Kind and whether to retry, for a SQLSTATE."""
    return _BY_STATE.get(sqlstate) or _BY_CLASS.get(sqlstate[:2]) or ("unknown", False)


def map_error(error: BaseException, where: str, secrets: tuple[str, ...] = ()) -> ToolError:
    """An error of asyncpg or of the network below it, as ours.

    Args:
        error: What was raised.
        where: What was being done, to start the message with.
        secrets: Texts that must not appear in the message.
    """
    details: dict[str, Any] = {"exception_type": type(error).__name__}
    kind, retryable = "unknown", False
    reason = str(error) or type(error).__name__
    if isinstance(error, asyncpg.PostgresError | asyncpg.PostgresWarning):
        state = str(error.sqlstate or "")
        kind, retryable = state_kind(state)
        reason = _first_line(error)
        details |= {"sqlstate": state, "pg_code": state, "code": state} if state else {}
        details |= _named_objects(error)
    elif isinstance(error, asyncpg.OutdatedSchemaCacheError):
        kind, retryable = "schema", True
    elif isinstance(error, asyncpg.ClientConfigurationError):
        # Its text may quote the connection string.
        kind, reason = "schema", "the connection settings of the credential cannot be used"
    elif isinstance(error, asyncpg.TargetServerAttributeNotMatched | asyncpg.ProtocolError):
        kind, retryable = "db_connection", True
    elif isinstance(error, asyncpg.UnsupportedClientFeatureError):
        kind = "schema"
    elif isinstance(error, asyncpg.InterfaceError):
        retryable = "connection" in reason or "closed" in reason or "pool" in reason
        kind = "db_connection" if retryable else "unknown"
        reason = reason.partition("\n")[0]
    elif isinstance(error, ssl.SSLError):
        kind = "db_connection"
    elif isinstance(error, TimeoutError):
        kind, retryable, reason = "db_connection", True, "no connection in time"
    elif isinstance(error, OSError):
        kind, retryable = "db_connection", True
    for secret in secrets:
        if len(secret) > 2:
            reason = reason.replace(secret, "***")
    return ToolError(f"{where}: {reason}", kind, retryable, details)


def _first_line(error: BaseException) -> str:
    text = getattr(error, "message", None) or (error.args[0] if error.args else "")
    return str(text).partition("\n")[0] or type(error).__name__


def _named_objects(error: BaseException) -> dict[str, Any]:
    names = ("constraint_name", "table_name", "column_name", "hint", "position")
    return {name: value for name in names if (value := getattr(error, name, None))}
