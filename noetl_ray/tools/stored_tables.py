"""Stored results as tables for SQL: names in the text, and references among a task's input.

Owns finding and fetching them. A name is written ``"noetl://…"``, or ``'noetl://…'`` after FROM or
JOIN; an input that is such a name or a ``result_ref`` record is a table under its own name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ObjectMissingError, ToolError, UsageError
from noetl_ray.tools.transfer_arrow import is_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.tools.port import ToolContext

SCHEME = "noetl://"
_QUOTED = re.compile(r'"(noetl://[^"]+)"')
_TEXT = re.compile(r"\b(from|join)(\s+)'(noetl://[^']+)'", re.IGNORECASE)


def with_names(statements: Sequence[str]) -> tuple[list[str], list[str]]:
    """The statements with every stored name as an identifier, and the names."""
    written = [_TEXT.sub(r'\1\2"\3"', statement) for statement in statements]
    found = dict.fromkeys(name for text in written for name in _QUOTED.findall(text))
    return written, list(found)


async def stored_tables(given: Any, names: Sequence[str], context: ToolContext) -> dict[str, Any]:
    """What a task's SQL can read as tables, by name: rows as they are, stored values as Arrow.

    Raises:
        ToolError: ``not_found`` (to be retried) when a stored value is not there, ``schema`` when
            it is no table.
    """
    tables: dict[str, Any] = {}
    for name, value in (given if isinstance(given, dict) else {}).items():
        if _is_reference(value):
            tables[str(name)] = await _table(value, context)
        elif isinstance(value, dict) and is_rows(value.get("rows")):
            tables[str(name)] = value["rows"]
        elif is_rows(value):
            tables[str(name)] = value
    for name in names:
        tables[name] = await _table(name, context)
    return tables


def _is_reference(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith(SCHEME)
    return isinstance(value, dict) and value.get("kind") == "result_ref"


async def _table(ref: Any, context: ToolContext) -> Any:
    if context.artifacts is None:
        msg = "there is no store to read results from here"
        raise ToolError(msg, "schema")
    try:
        return await context.artifacts.table(ref)
    except ObjectMissingError as error:
        details = {"code": ObjectMissingError.code}
        raise ToolError(error.message, "not_found", True, details) from None
    except UsageError as error:
        raise ToolError(error.message, "schema") from None
