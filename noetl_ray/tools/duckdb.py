"""The ``duckdb`` kind: SQL in this process, over rows the task is given and stored results.

Each task has a connection of its own, in a thread that is interrupted when time is over. Nothing
outside the database can be read or written unless the task says ``external: true``; files of
databases lie below the data folder. Memory and threads are bounded, and cannot be set by SQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import duckdb
import msgspec

from noetl_ray.errors import ToolError
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.sqlsplit import head_words, split_statements
from noetl_ray.tools.stored_tables import stored_tables, with_names
from noetl_ray.tools.transfer_arrow import json_rows, table_of
from noetl_ray.tools.transfer_files import path_below

if TYPE_CHECKING:
    from pathlib import Path

SQL_KEYS = ("query", "command", "queries", "commands", "cmd", "cmds", "sql")
CONFIG_KEYS: frozenset[str] = frozenset(
    {
        *SQL_KEYS,
        "args",
        "database",
        "db_path",
        "external",
        "input",
        "timeout",
        "timeout_seconds",
    }
)
MEMORY = ":memory:"
ROWS_PER_BATCH = 10_000
_INTERRUPT_EVERY_S = 0.02
_INTERRUPT_TRIES_MAX = 250
_CLOSED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
_Options = dict[str, str | bool | int | float | list[str]]
_KINDS: tuple[tuple[type[Exception], str, bool], ...] = (
    (duckdb.ParserException, "parse", False),
    (duckdb.SyntaxException, "parse", False),
    (duckdb.ConstraintException, "db_constraint", False),
    (duckdb.TransactionException, "db_deadlock", True),
    (duckdb.PermissionException, "auth", False),
    (duckdb.HTTPException, "connection", True),
    (duckdb.IOException, "db_connection", True),
    (duckdb.ConnectionException, "db_connection", True),
    (duckdb.ProgrammingError, "schema", False),
    (duckdb.DataError, "schema", False),
    (duckdb.NotSupportedError, "schema", False),
)


class DuckdbTool:
    """Runs SQL in threads of this process."""

    kind: ClassVar[str] = "duckdb"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "duckdb"
    text_keys: ClassVar[frozenset[str]] = frozenset(SQL_KEYS)

    def __init__(
        self, *, data_root: Path | None = None, threads: int = 2, memory_mb: int = 1024
    ) -> None:
        """Make the tool.

        Args:
            data_root: Folder of database files; None refuses files.
            threads: Threads of one query, and tasks at once.
            memory_mb: Memory one task's database may use.
        """
        self._root = data_root
        self._limits = {"threads": str(threads), "memory_limit": f"{memory_mb}MB"}
        self._files: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="duckdb")

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run every statement; R is the last one's result with the others as ``command_<i>``."""
        if config.get("auth") not in (None, "", {}):
            msg = "a duckdb task takes no `auth`: bring rows in as `input`, or use kind transfer"
            raise ToolError(msg, "schema")
        statements, names = with_names(_statements(config))
        limit = time_limit_s(config, context.timeout_s)
        database = self._database(config)
        closed = config.get("external") is not True
        options: _Options = {**self._limits, **(_CLOSED if closed else {})}
        tables = await stored_tables(config.get("input"), names, context)
        work = _Work(database, options, tables, statements)
        try:
            async with asyncio.timeout(limit):
                if database == MEMORY:
                    await self._run(work)
                else:
                    # Connections of one process share a file's settings, so they take turns.
                    async with self._files.setdefault(database, asyncio.Lock()):
                        await self._run(work)
        except TimeoutError:
            msg = f"the SQL ran longer than {limit:g} s and was interrupted"
            raise ToolError(
                msg, "db_timeout", True, {"timeout_s": limit}, work.shape(failed=msg)
            ) from None
        data = work.shape()
        return ToolResult(data=data, meta={"row_count": data["row_count"]})

    async def close(self) -> None:
        """Take no more work; what runs ends by its own limits."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _database(self, config: dict[str, Any]) -> str:
        given = str(config.get("database") or config.get("db_path") or MEMORY)
        if given == MEMORY:
            return given
        return str(path_below(self._root, given, "database"))

    async def _run(self, work: _Work) -> None:
        future = asyncio.get_running_loop().run_in_executor(self._executor, work.run)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            await _stop(work, future)
            raise


class _Work:
    """One task in its thread."""

    def __init__(
        self, database: str, options: _Options, tables: dict[str, Any], statements: list[str]
    ) -> None:
        self._database = database
        self._options = options
        self._tables = tables
        self._statements = statements
        self._results: list[dict[str, Any]] = []
        self._stopped = threading.Event()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def run(self) -> None:
        if self._stopped.is_set():
            return
        index = -1
        try:
            with duckdb.connect(self._database, config=self._options) as connection:
                self._connection = connection
                connection.execute("SET TimeZone = 'UTC'")
                if "enable_external_access" in self._options:
                    connection.execute("SET lock_configuration = true")
                for name, value in self._tables.items():
                    rows = isinstance(value, list)
                    connection.register(name, table_of(value) if rows else value)
                for index, statement in enumerate(self._statements):  # noqa: B007
                    if self._stopped.is_set():
                        return
                    self._results.append(self._one(connection, statement))
        except duckdb.Error as error:
            raise self._mapped(error, index) from None
        finally:
            self._connection = None

    def stop(self) -> None:
        """Interrupt what runs now; an interrupt before the query starts is lost, so repeat it."""
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            # It may have ended by itself a moment ago.
            with contextlib.suppress(duckdb.ConnectionException):
                connection.interrupt()

    def shape(self, failed: str | None = None) -> dict[str, Any]:
        """R: the last result on top, each statement's own under ``command_<i>``."""
        results = list(self._results)
        if failed is None:
            top = dict(results[-1])
        else:
            top = {"status": "error", "row_count": 0, "message": failed}
        top["statement_count"] = len(self._statements)
        top.update({f"command_{index}": result for index, result in enumerate(results)})
        return top

    def _one(self, connection: duckdb.DuckDBPyConnection, statement: str) -> dict[str, Any]:
        changes = _changes_rows(connection, statement)
        relation = connection.sql(statement)
        types = [str(kind) for kind in relation.types]
        reader = relation.to_arrow_reader(ROWS_PER_BATCH)
        names = list(reader.schema.names)
        rows: list[dict[str, Any]] = []
        for batch in reader:
            if self._stopped.is_set():
                break
            rows.extend(json_rows(batch))
        if names == ["Success"] and types == ["BOOLEAN"] and not rows:
            return _counted(0, statement)
        if changes and names == ["Count"]:
            return _counted(rows[0]["Count"] if rows else 0, statement)
        documents = [name for name, kind in zip(names, types, strict=True) if kind == "JSON"]
        for row in rows if documents else ():
            for name in documents:
                row[name] = None if row[name] is None else msgspec.json.decode(row[name])
        return {"status": "success", "columns": names, "rows": rows, "row_count": len(rows)}

    def _mapped(self, error: duckdb.Error, index: int) -> ToolError:
        found = next((row for row in _KINDS if isinstance(error, row[0])), None)
        kind, retryable = (found[1], found[2]) if found else ("unknown", False)
        count = len(self._statements)
        where = f"statement {index + 1} of {count}" if count > 1 and index >= 0 else "SQL error"
        # Further lines quote the SQL, and with it whatever was pasted into it.
        message = f"{where}: {str(error).partition(chr(10))[0]}"
        if isinstance(error, duckdb.PermissionException):
            message += "; a task that says `external: true` may"
        details: dict[str, Any] = {"exception_type": type(error).__name__}
        if index >= 0:
            details["statement_index"] = index
        return ToolError(message, kind, retryable, details, self.shape(failed=message))


async def _stop(work: _Work, future: asyncio.Future[None]) -> None:
    for _ in range(_INTERRUPT_TRIES_MAX):
        work.stop()
        done, _ = await asyncio.wait({future}, timeout=_INTERRUPT_EVERY_S)
        if done:
            future.exception()  # nobody else asks for it
            return


def _changes_rows(connection: duckdb.DuckDBPyConnection, statement: str) -> bool:
    """Whether the answer to a statement is only how many rows it changed."""
    found = connection.extract_statements(statement)
    counted = bool(found) and duckdb.ExpectedResultType.CHANGED_ROWS in (
        found[0].expected_result_type
    )
    return counted and "returning" not in statement.lower()


def _counted(count: int, statement: str) -> dict[str, Any]:
    word = next(iter(head_words(statement, 1)), "")
    return {
        "status": "success",
        "row_count": count,
        "affected_rows": count,
        "message": f"{word} {count}",
    }


def _statements(config: dict[str, Any]) -> list[str]:
    for key in SQL_KEYS:
        value = config.get(key)
        texts = value if isinstance(value, list) else [value]
        found = [
            statement
            for text in texts
            if isinstance(text, str)
            for statement in split_statements(text)
        ]
        if found:
            return found
    msg = "a duckdb task needs SQL: give `query` or `command`"
    raise ToolError(msg, "schema")
