"""Values of PostgreSQL as JSON values: one converter per column, chosen by the column's type.

Decimals become floats, dates ISO text, json structures, uuid text, bytea base64 text, arrays lists.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

Converter = Callable[[Any], Any]

_AS_IS = frozenset(
    {"bool", "int2", "int4", "int8", "oid", "text", "varchar", "bpchar", "name", "char", "xml"}
)


def converter_for(type_name: str) -> Converter | None:
    """How to turn a non-null value of a column into JSON; None when it is JSON already."""
    if type_name in _AS_IS:
        return None
    if type_name in ("json", "jsonb"):
        return _json
    if type_name in ("json[]", "jsonb[]"):
        return _json_array
    return plain


def plain(value: Any) -> Any:
    """Any value asyncpg gives, as JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return float(value) if value.is_finite() else None
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta() | UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case asyncpg.Record():
            return {key: plain(item) for key, item in value.items()}
        case asyncpg.Range():
            return _range(value)
        case asyncpg.BitString():
            return value.as_string().replace(" ", "")
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _:
            return str(value)


def _json(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str | bytes) else plain(value)


def _json_array(value: Any) -> Any:
    if isinstance(value, list):
        return [_json_array(item) for item in value]
    return None if value is None else _json(value)


def _range(value: Any) -> str:
    """A range in PostgreSQL's own notation."""
    if value.isempty:
        return "empty"
    lower = "" if value.lower is None else plain(value.lower)
    upper = "" if value.upper is None else plain(value.upper)
    opening = "[" if value.lower_inc else "("
    closing = "]" if value.upper_inc else ")"
    return f"{opening}{lower},{upper}{closing}"
