"""The Postgres end of a transfer: a cursor to read from, COPY to write to.

All chunks of one transfer are one transaction: it is there whole or not at all. Values go as text,
so that the server reads them by the types of its columns. Names are quoted, never pasted.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import pyarrow as pa

from noetl_ray.errors import ToolError
from noetl_ray.tools.postgres_errors import map_error
from noetl_ray.tools.transfer_arrow import json_value, table_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl_ray.tools.postgres_pools import PostgresPools, Target

_STAGE = "noetl_transfer_stage"
_LINES_PER_WRITE = 1_000
_NUMERIC = pa.decimal128(38, 9)
_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int64(),
    "int4": pa.int64(),
    "int8": pa.int64(),
    "float4": pa.float64(),
    "float8": pa.float64(),
    "numeric": _NUMERIC,
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "time": pa.time64("us"),
}
"""Types with a place in Arrow; values of others travel as text."""


def quoted(name: str) -> str:
    """A name as SQL reads it, whatever is in it."""
    if not name or "\0" in name:
        msg = f"{name!r} cannot be the name of a table or a column"
        raise ToolError(msg, "schema")
    return '"' + name.replace('"', '""') + '"'


async def read_query(
    pools: PostgresPools, target: Target, query: str, chunk_size: int
) -> AsyncIterator[pa.Table]:
    """The rows of one query, through a cursor of the server."""
    connection = await pools.acquire(target)
    clean = False
    try:
        async with connection.transaction(readonly=True):
            prepared = await connection.prepare(query)
            attributes = prepared.get_attributes()
            cursor = await prepared.cursor()
            while records := await cursor.fetch(chunk_size):
                yield _table(records, attributes)
        clean = True
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise map_error(error, "reading the source", target.secrets) from None
    finally:
        await pools.release(target, connection, keep=clean)


def _table(records: Sequence[Any], attributes: Sequence[Any]) -> pa.Table:
    names = [attribute.name for attribute in attributes]
    columns = []
    for index, attribute in enumerate(attributes):
        values = [record[index] for record in records]
        kind = _TYPES.get(attribute.type.name)
        if kind is None:
            columns.append(table_of([{"v": value} for value in values], ["v"]).column("v"))
            continue
        try:
            columns.append(pa.chunked_array([pa.array(values, kind)]))
        except (pa.ArrowException, OverflowError):
            msg = f"column {attribute.name!r} holds values Arrow cannot keep; cast it in the query"
            raise ToolError(msg, "schema") from None
    if len(set(names)) < len(names):
        msg = "the query gives two columns of one name"
        raise ToolError(msg, "schema")
    return pa.table(columns, names=names)


class PostgresTarget:
    """Copies chunks into one table within one transaction."""

    def __init__(
        self, pools: PostgresPools, target: Target, table: str, mode: str, key: Sequence[str]
    ) -> None:
        schema, _, name = table.rpartition(".")
        self._pools = pools
        self._target = target
        self._schema = schema or None
        self._name = name
        self._full = f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)
        self._mode = mode
        self._key = list(key)
        self._connection: Any = None
        self._transaction: Any = None
        self._columns: list[str] = []

    async def open(self) -> None:
        """Begin; with ``replace`` the table is empty from here on, for this transaction."""
        self._connection = await self._pools.acquire(self._target)
        try:
            self._transaction = self._connection.transaction()
            await self._transaction.start()
            if self._mode == "replace":
                await self._connection.execute(f"DELETE FROM {self._full}")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self._mapped(error) from None

    async def write(self, table: pa.Table) -> int:
        """Add a chunk; the number of rows the table took."""
        columns = list(table.column_names)
        rows = table.to_pylist(maps_as_pydicts="lossy")
        try:
            if self._mode != "upsert":
                await self._copy(self._name, self._schema, columns, rows)
                return len(rows)
            return await self._upsert(columns, rows)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self._mapped(error) from None

    async def finish(self) -> None:
        """Commit."""
        try:
            await self._transaction.commit()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self._mapped(error) from None
        connection, self._connection = self._connection, None
        await self._pools.release(self._target, connection, keep=True)

    async def abandon(self) -> None:
        """Roll back, by ending the session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pools.release(self._target, connection, keep=False)

    async def _copy(
        self, name: str, schema: str | None, columns: list[str], rows: list[dict[str, Any]]
    ) -> None:
        async def source() -> AsyncIterator[bytes]:
            for start in range(0, len(rows), _LINES_PER_WRITE):
                part = rows[start : start + _LINES_PER_WRITE]
                lines = (",".join(_field(row[column]) for column in columns) for row in part)
                yield ("\n".join(lines) + "\n").encode()

        await self._connection.copy_to_table(
            name, source=source(), schema_name=schema, columns=columns, format="csv"
        )

    async def _upsert(self, columns: list[str], rows: list[dict[str, Any]]) -> int:
        missing = [name for name in self._key if name not in columns]
        if missing:
            msg = f"the key column {missing[0]!r} is not among the columns of the source"
            raise ToolError(msg, "schema")
        names = ", ".join(map(quoted, columns))
        if columns != self._columns:
            await self._connection.execute(f"DROP TABLE IF EXISTS pg_temp.{quoted(_STAGE)}")
            await self._connection.execute(
                f"CREATE TEMP TABLE {quoted(_STAGE)} ON COMMIT DROP"
                f" AS SELECT {names} FROM {self._full} WITH NO DATA"
            )
            self._columns = columns
        # One statement may touch a row once, so of rows with one key the last stays.
        last = {tuple(_field(row[name]) for name in self._key): row for row in rows}
        await self._copy(_STAGE, None, columns, list(last.values()))
        updates = ", ".join(
            f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in columns if name not in self._key
        )
        status = await self._connection.execute(
            f"INSERT INTO {self._full} ({names}) SELECT {names} FROM pg_temp.{quoted(_STAGE)}"
            f" ON CONFLICT ({', '.join(map(quoted, self._key))})"
            f" DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}"
        )
        await self._connection.execute(f"TRUNCATE pg_temp.{quoted(_STAGE)}")
        return int(status.rpartition(" ")[2])

    def _mapped(self, error: BaseException) -> ToolError:
        return map_error(error, "writing the target", self._target.secrets)


def _field(value: Any) -> str:
    """One value of a CSV line; nothing at all is null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return '"\\x' + value.hex() + '"'
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict | list):
        text = msgspec.json.encode(json_value(value)).decode()
    else:
        text = str(value if isinstance(value, Decimal) else json_value(value))
    return '"' + text.replace('"', '""') + '"'
