"""Targets of a transfer beside Postgres and files: a table of a DuckDB file, and an address.

A DuckDB table takes everything in one transaction. What was sent to an address cannot be taken
back: each chunk carries an idempotency key of its own, and the error says how many were accepted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb

from noetl_ray.errors import ToolError
from noetl_ray.tools.transfer_arrow import conform, json_rows, steady
from noetl_ray.tools.transfer_files import in_thread
from noetl_ray.tools.transfer_postgres import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from noetl_ray.tools.http import HttpTool
    from noetl_ray.tools.port import ToolContext

_CHUNK = "_noetl_chunk"
_CLOSED: dict[str, Any] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1024MB",
    "threads": "2",
}


class DuckdbTarget:
    """Writes chunks into a table of a database file; they are there after ``finish``."""

    def __init__(self, path: Path, table: str, mode: str) -> None:
        self._path = path
        self._table = ".".join(quoted(part) for part in table.split("."))
        self._mode = mode
        self._schema: pa.Schema | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None

    async def open(self) -> None:
        """Begin."""
        await in_thread(self._open)

    async def write(self, table: pa.Table) -> int:
        """Add a chunk."""
        await in_thread(self._write, table)
        return int(table.num_rows)

    async def finish(self) -> None:
        """Make it all visible."""
        await in_thread(self._end, "COMMIT")

    async def abandon(self) -> None:
        """Leave the table as it was."""
        if self._connection is not None:
            await in_thread(self._end, "ROLLBACK")

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = duckdb.connect(str(self._path), config=_CLOSED)
            self._connection.execute("BEGIN")
        except duckdb.Error as error:
            raise _mapped(error) from None

    def _write(self, table: pa.Table) -> None:
        assert self._connection is not None
        run = self._connection.execute
        try:
            if self._schema is None:
                self._schema = steady(table.schema)
                if self._mode == "replace":
                    run(f"DROP TABLE IF EXISTS {self._table}")
            self._connection.register(_CHUNK, conform(table, self._schema))
            run(f"CREATE TABLE IF NOT EXISTS {self._table} AS SELECT * FROM {_CHUNK} LIMIT 0")
            run(f"INSERT INTO {self._table} BY NAME SELECT * FROM {_CHUNK}")
            self._connection.unregister(_CHUNK)
        except duckdb.Error as error:
            raise _mapped(error) from None

    def _end(self, how: str) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.execute(how)
        except duckdb.Error as error:
            if how == "COMMIT":
                raise _mapped(error) from None
        finally:
            connection.close()


class HttpTarget:
    """Sends each chunk as one request."""

    def __init__(self, http: HttpTool, target: Mapping[str, Any], context: ToolContext) -> None:
        self._http = http
        self._context = context
        self._records = str(target.get("records") or "")
        self._config = {
            key: target[key]
            for key in ("url", "endpoint", "headers", "params", "auth", "timeout", "verify")
            if key in target
        }
        self._config["method"] = str(target.get("method") or "POST")
        self._sent = 0

    async def open(self) -> None:
        """Nothing is held between chunks."""

    async def write(self, table: pa.Table) -> int:
        """Send a chunk: a list of rows, or a mapping with them under ``records``."""
        rows: Any = json_rows(table)
        body = {self._records: rows} if self._records else rows
        key = f"{self._context.idempotency_key}/{self._sent}"
        context = replace(self._context, idempotency_key=key, artifacts=None)
        try:
            await self._http.run({**self._config, "json": body}, context)
        except ToolError as error:
            msg = f"chunk {self._sent + 1}: {error.message}"
            details = {**error.details, "chunks_sent": self._sent}
            raise ToolError(msg, error.kind, error.retryable, details) from None
        self._sent += 1
        return int(table.num_rows)

    async def finish(self) -> None:
        """Everything was sent."""

    async def abandon(self) -> None:
        """What was sent cannot be taken back."""


def _mapped(error: duckdb.Error) -> ToolError:
    retryable = isinstance(error, duckdb.IOException | duckdb.ConnectionException)
    kind = "db_connection" if retryable else "schema"
    if isinstance(error, duckdb.ConstraintException):
        kind = "db_constraint"
    msg = f"writing to the duckdb table failed: {str(error).partition(chr(10))[0]}"
    return ToolError(msg, kind, retryable, {"exception_type": type(error).__name__})
