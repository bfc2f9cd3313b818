"""The ``transfer`` kind: moves rows from a source to a target in chunks, as Arrow tables.

Sources and targets are http, postgres, duckdb and files; a stored result is a source too. It owns
reading the task, the order of things and the counts; each end has a module of its own. A query of
Postgres and a file are never whole in memory; an HTTP answer and a DuckDB result are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from noetl_ray.errors import ToolError
from noetl_ray.tools.auth import pick, resolve_auth
from noetl_ray.tools.duckdb import DuckdbTool
from noetl_ray.tools.http import HttpTool
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.postgres_pools import PostgresPools, Target, target_of
from noetl_ray.tools.sqlsplit import split_statements
from noetl_ray.tools.stored_tables import stored_tables
from noetl_ray.tools.transfer_arrow import column_names, table_of
from noetl_ray.tools.transfer_files import FileTarget, format_of, path_below, read_file
from noetl_ray.tools.transfer_postgres import PostgresTarget, read_query
from noetl_ray.tools.transfer_targets import DuckdbTarget, HttpTarget

if TYPE_CHECKING:
    from pathlib import Path

    from noetl_ray.tools.limiter import Limiter

CONFIG_KEYS: frozenset[str] = frozenset(
    {
        "args",
        "chunk_size",
        "input",
        "key",
        "mapping",
        "mode",
        "source",
        "target",
        "timeout",
        "timeout_seconds",
    }
)
MODES = ("append", "replace", "upsert")
CHUNK_ROWS = 10_000
CHUNK_ROWS_MAX = 1_000_000
_SERVICES = frozenset({"postgres", "postgresql"})
_ROW_KEYS = ("data", "items", "results", "rows", "records")
_HTTP_KEYS = ("url", "endpoint", "method", "headers", "params", "json", "body", "auth", "timeout")

Writer = PostgresTarget | FileTarget | DuckdbTarget | HttpTarget


class TransferTool:
    """Moves rows; connections to Postgres are pooled over tasks."""

    kind: ClassVar[str] = "transfer"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "transfer"
    text_keys: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, *, data_root: Path | None = None, limiter: Limiter | None = None) -> None:
        """Make the tool.

        Args:
            data_root: The folder files lie below; None refuses files.
            limiter: Limits on http calls that workers share.
        """
        self._root = data_root
        self._pools = PostgresPools(connections_max=4, idle_s=60.0)
        self._http = HttpTool(limiter=limiter)
        self._duckdb = DuckdbTool(data_root=data_root)

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Move every row of the source; R counts rows and chunks."""
        source, target = _end(config, "source"), _end(config, "target")
        mode = str(config.get("mode") or target.get("mode") or "append")
        if mode not in MODES:
            msg = f"mode {mode!r} is not known; there are {', '.join(MODES)}"
            raise ToolError(msg, "schema")
        limit = time_limit_s(config, context.timeout_s)
        counts = {"rows_read": 0, "rows_written": 0, "chunks": 0}
        try:
            async with asyncio.timeout(limit):
                writer = await self._target(target, mode, config, context)
                chunks = await self._source(source, _chunk_size(config), context)
                await _move(chunks, writer, _mapping(config, target), counts)
        except TimeoutError:
            msg = f"the transfer ran longer than {limit:g} s and was undone"
            data = {"status": "error", **counts, "rows_written": 0}
            raise ToolError(msg, "timeout", True, {"timeout_s": limit}, data) from None
        return ToolResult(data={"status": "success", **counts}, meta=dict(counts))

    async def close(self) -> None:
        """Close every connection."""
        await self._pools.close()
        await self._http.close()
        await self._duckdb.close()

    async def _source(
        self, source: dict[str, Any], chunk_size: int, context: ToolContext
    ) -> AsyncIterator[pa.Table]:
        match _type(source, "source"):
            case "postgres":
                where = await _database(source, context, "source")
                return read_query(self._pools, where, _query(source), chunk_size)
            case "file":
                path = path_below(self._root, str(source.get("path") or ""), "file")
                return read_file(path, format_of(path, source.get("format")), chunk_size)
            case "http":
                given = {key: source[key] for key in _HTTP_KEYS if key in source}
                # Rows must be read out of the answer, so it may not go to the store instead.
                answer = (await self._http.run(given, replace(context, artifacts=None))).data
                rows = _rows(answer["data"], source.get("records"))
            case "duckdb":
                given = {key: value for key, value in source.items() if key not in ("type", "tool")}
                rows = (await self._duckdb.run(given, context)).data.get("rows", [])
            case "result":
                ref = source.get("result_ref") or source.get("uri") or source.get("key")
                stored = await stored_tables({"rows": ref}, (), context)
                if "rows" not in stored:
                    msg = "a result source needs `result_ref` or `uri`, a noetl:// name"
                    raise ToolError(msg, "schema")
                return _sliced(stored["rows"], chunk_size)
            case other:
                known = "http, postgres, duckdb, file, result"
                msg = f"source type {other!r} is not known; there are {known}"
                raise ToolError(msg, "schema")
        return _chunked(rows, chunk_size)

    async def _target(
        self, target: dict[str, Any], mode: str, config: dict[str, Any], context: ToolContext
    ) -> Writer:
        match _type(target, "target"):
            case "postgres":
                key = _key(target.get("key") or config.get("key"))
                if mode == "upsert" and not key:
                    msg = "mode upsert needs `key`: the columns of a unique constraint"
                    raise ToolError(msg, "schema")
                table = str(target.get("table") or "")
                if not table:
                    msg = "a postgres target needs `table`"
                    raise ToolError(msg, "schema")
                where = await _database(target, context, "target")
                return PostgresTarget(self._pools, where, table, mode, key)
            case "file":
                path = path_below(self._root, str(target.get("path") or ""), "file")
                if mode == "upsert" or (mode == "append" and path.exists()):
                    msg = f"file {path.name!r} can only be replaced: say `mode: replace`"
                    raise ToolError(msg, "schema")
                return FileTarget(path, format_of(path, target.get("format")))
            case "duckdb":
                name = str(target.get("database") or target.get("db_path") or "")
                table = str(target.get("table") or "")
                if not table or mode == "upsert":
                    msg = "a duckdb target needs `table`, and mode append or replace"
                    raise ToolError(msg, "schema")
                return DuckdbTarget(path_below(self._root, name, "database"), table, mode)
            case "http":
                if mode != "append":
                    msg = "an http target can only be appended to"
                    raise ToolError(msg, "schema")
                return HttpTarget(self._http, target, context)
            case other:
                known = "http, postgres, duckdb, file"
                msg = f"target type {other!r} is not known; there are {known}"
                raise ToolError(msg, "schema")


async def _move(
    chunks: AsyncIterator[pa.Table],
    writer: Writer,
    mapping: dict[str, str],
    counts: dict[str, int],
) -> None:
    done = False
    try:
        if not isinstance(writer, FileTarget):
            await writer.open()
        async for chunk in chunks:
            shaped = _mapped(chunk, mapping, first=not counts["chunks"])
            counts["rows_read"] += chunk.num_rows
            counts["chunks"] += 1
            counts["rows_written"] += await writer.write(shaped)
        await writer.finish()
        done = True
    finally:
        if not done:
            await writer.abandon()
        # A generator left half way holds a connection or a file until it is closed.
        await chunks.aclose()  # type: ignore[attr-defined]


async def _sliced(table: pa.Table, chunk_size: int) -> AsyncIterator[pa.Table]:
    for start in range(0, table.num_rows, chunk_size):
        yield table.slice(start, chunk_size)


async def _chunked(rows: list[dict[str, Any]], chunk_size: int) -> AsyncIterator[pa.Table]:
    names = column_names(rows)
    for start in range(0, len(rows), chunk_size):
        yield table_of(rows[start : start + chunk_size], names)


def _mapped(chunk: pa.Table, mapping: dict[str, str], *, first: bool) -> pa.Table:
    if not mapping:
        return chunk
    have = chunk.column_names
    missing = [field for field in mapping.values() if field not in have]
    if missing and first:
        msg = (
            f"mapping takes the field {missing[0]!r}, which the source lacks;"
            f" it has {', '.join(have)}"
        )
        raise ToolError(msg, "schema")
    columns = [
        chunk.column(field) if field in have else pa.nulls(chunk.num_rows)
        for field in mapping.values()
    ]
    return pa.table(columns, names=list(mapping))


def _end(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    if not isinstance(found, Mapping):
        msg = f"a transfer task needs `{name}`: a mapping with `type`"
        raise ToolError(msg, "schema")
    return dict(found)


def _type(end: dict[str, Any], name: str) -> str:
    found = str(end.get("type") or end.get("tool") or "").lower()
    if not found:
        msg = f"the {name} of a transfer needs `type`"
        raise ToolError(msg, "schema")
    return "postgres" if found == "postgresql" else found


async def _database(end: dict[str, Any], context: ToolContext, name: str) -> Target:
    auth = pick(await resolve_auth(end, context), _SERVICES)
    if auth is None:
        msg = f"the {name} of a transfer needs a database: give it `auth: <credential name>`"
        raise ToolError(msg, "auth")
    return target_of(auth, end.get("database"))


def _query(source: dict[str, Any]) -> str:
    statements = split_statements(str(source.get("query") or source.get("command") or ""))
    if len(statements) != 1:
        msg = f"a postgres source needs `query` with one statement, not {len(statements)}"
        raise ToolError(msg, "schema")
    return statements[0]


def _rows(body: Any, records: Any) -> list[dict[str, Any]]:
    """The rows in an HTTP answer: itself, the field the task names, or the only usual one."""
    found = body
    if records:
        for part in str(records).split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    elif isinstance(body, Mapping):
        lists = [key for key in _ROW_KEYS if isinstance(body.get(key), list)]
        found = body[lists[0]] if len(lists) == 1 else None
    if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
        msg = "the answer holds no list of mappings; name the field that does with `records`"
        raise ToolError(msg, "schema")
    return found


def _mapping(config: dict[str, Any], target: dict[str, Any]) -> dict[str, str]:
    found = target.get("mapping") or config.get("mapping") or {}
    if not isinstance(found, Mapping):
        msg = f"mapping must say which field each column takes, not be {type(found).__name__}"
        raise ToolError(msg, "schema")
    return {str(column): str(field) for column, field in found.items()}


def _key(given: Any) -> list[str]:
    if given in (None, "", []):
        return []
    items = given if isinstance(given, list) else str(given).split(",")
    return [str(item).strip() for item in items]


def _chunk_size(config: dict[str, Any]) -> int:
    given = config.get("chunk_size")
    try:
        size = CHUNK_ROWS if given in (None, "") else int(str(given))
    except ValueError:
        size = 0
    if not 1 <= size <= CHUNK_ROWS_MAX:
        msg = f"chunk_size must be between 1 and {CHUNK_ROWS_MAX}, not {given!r}"
        raise ToolError(msg, "schema")
    return size
