"""Rows as Arrow and Arrow as JSON values, for kinds that move tables. It does no I/O.

A column whose values have no common type becomes text: JSON for structures, the value's own text
otherwise, so that no row is refused because another one looks different.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import ToolError
from noetl_ray.tools.postgres_values import plain


def is_rows(value: Any) -> bool:
    """Whether a value is a list of mappings with at least one of them."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
    )


def column_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every key of every row, in the order they first appear."""
    return [str(name) for name in dict.fromkeys(name for row in rows for name in row)]


def table_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> pa.Table:
    """Rows as a table; a row without a key has null there."""
    names = column_names(rows) if names is None else names
    columns = [_column([row.get(name) for row in rows]) for name in names]
    return pa.table(columns, names=list(names))


def steady(schema: pa.Schema) -> pa.Schema:
    """A schema later chunks can keep: a column that only had nulls so far is text."""
    kinds = [pa.string() if pa.types.is_null(field.type) else field.type for field in schema]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A chunk with the columns and types of the first one.

    Raises:
        ToolError: of kind ``schema`` when a column is new or its values do not fit.
    """
    extra = [name for name in table.column_names if name not in schema.names]
    if extra:
        msg = f"column {extra[0]!r} is not in the first chunk; say what to take with `mapping`"
        raise ToolError(msg, "schema")
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(table.column(field.name).cast(field.type))
        except pa.ArrowException as error:
            msg = f"column {field.name!r} changes its type: {str(error).partition(chr(10))[0]}"
            raise ToolError(msg, "schema") from None
    return pa.table(columns, schema=schema)


def json_rows(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows of a batch as JSON values."""
    rows = batch.to_pylist(maps_as_pydicts="lossy")
    return [{name: json_value(value) for name, value in row.items()} for row in rows]


def json_value(value: Any) -> Any:
    """One value as JSON: whole decimals as integers, other decimals as floats, dates ISO text."""
    match value:
        case Decimal() if value.is_finite() and value.as_tuple().exponent == 0:
            return int(value)
        case pa.MonthDayNano():
            seconds = value.nanoseconds / 1_000_000_000
            return f"P{value.months}M{value.days}DT{seconds:g}S"
        case dict():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case _:
            return plain(value)


def _column(values: list[Any]) -> pa.Array:
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([_text(value) for value in values], pa.string())
    if isinstance(array.type, pa.BaseExtensionType) or _is_empty_struct(array.type):
        return pa.array([_text(value) for value in values], pa.string())
    return array


def _is_empty_struct(kind: pa.DataType) -> bool:
    """A structure nobody put a field into has no place in a table."""
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_is_empty_struct(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_empty_struct(kind.value_type)
    return False


def _text(value: Any) -> str | None:
    shown = json_value(value)
    if shown is None or isinstance(shown, str):
        return shown
    return msgspec.json.encode(shown).decode()
