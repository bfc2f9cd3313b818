"""The ``spark`` kind: SQL or code on the cluster's Spark session, over results by name.

What goes in are names; executors fetch what they stand for. What comes out is a table in parts in
the result tier and its record; the rows themselves are in the answer only when they are few. Owns
the words of the kind and the wait for the job; Spark is behind a port.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from noetl_ray.errors import ObjectMissingError, ToolError, UsageError
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.sqlsplit import split_statements
from noetl_ray.tools.stored_tables import SCHEME
from noetl_ray.tools.transfer_arrow import is_rows, json_rows, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl_ray.scope import Scope

CONFIG_KEYS: frozenset[str] = frozenset(
    {"args", "code", "inline_rows", "input", "partitions", "sql", "timeout", "timeout_seconds"}
)
INLINE_ROWS = 200
"""Up to so many rows are in the answer too; more are only in the tier."""
INLINE_ROWS_MAX = 10_000
PARTITIONS_MAX = 4_096
_FEATHER = "application/vnd.apache.arrow.file"


class SparkTasks(Protocol):
    """Runs tasks on a Spark session somewhere."""

    def run(
        self,
        scope: Scope,
        order: dict[str, Any],
        *,
        progress: Callable[[dict[str, int]], None],
        timeout_s: float | None,
        stop: threading.Event,
    ) -> dict[str, Any]:
        """Run one task; blocks.

        Args:
            scope: Whose results it may read and writes.
            order: ``inputs`` by name, ``sql`` or ``code``, ``partitions``.
            progress: Told how many tasks of Spark are done.
            timeout_s: Of the job; starting a session is not counted.
            stop: Set when nobody waits any more.

        Raises:
            ToolError, StoreUnavailableError, TimeoutError, UsageError: as jobs do.
        """
        ...


class SparkTool:
    """Tasks on Spark."""

    kind: ClassVar[str] = "spark"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = ""
    text_keys: ClassVar[frozenset[str]] = frozenset({"sql", "code"})

    def __init__(self, tasks: SparkTasks | None) -> None:
        """Bind to who runs tasks; None fails them."""
        self._tasks = tasks

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run one task and give what it made."""
        if self._tasks is None or context.scope is None:
            msg = "there is no Spark here: pip install 'noetl-ray[spark]' where workers run"
            raise ToolError(msg, "schema")
        limit = time_limit_s(config, context.timeout_s)
        inline = _whole(config, "inline_rows", INLINE_ROWS, 0, INLINE_ROWS_MAX)
        order = await _order(config, context)
        stop = threading.Event()
        work = asyncio.to_thread(
            self._tasks.run,
            context.scope,
            order,
            progress=_Teller(context).told,
            timeout_s=limit,
            stop=stop,
        )
        try:
            answer = await work
        except asyncio.CancelledError:
            raise
        except TimeoutError as error:
            raise ToolError(str(error), "timeout", True, {"timeout_s": limit}) from None
        except UsageError as error:
            raise ToolError(error.message, "schema") from None
        except ObjectMissingError as error:
            details = {"code": ObjectMissingError.code}
            raise ToolError(error.message, "not_found", True, details) from None
        except ToolError as error:
            _print(context, (error.details or {}).pop("printed", ()))
            raise
        finally:
            stop.set()
        _print(context, answer.get("printed", ()))
        return await self._result(answer, context, inline)

    async def close(self) -> None:
        """The session is the cluster's, not this process's."""

    @staticmethod
    async def _result(answer: dict[str, Any], context: ToolContext, inline: int) -> ToolResult:
        counts = {name: answer[name] for name in ("stages", "tasks", "took_s")}
        context.log(
            "stdout", "spark: {tasks} tasks in {stages} stages, {took_s} s".format(**counts)
        )
        record = answer.get("record")
        if record is None:
            return ToolResult(data={"status": "success", "value": answer.get("value"), **counts})
        data = {
            "status": "success",
            "row_count": answer["rows"],
            "columns": [column["name"] for column in answer["schema"]],
            "schema": answer["schema"],
            "parts": answer["parts"],
            "result_ref": record,
            **counts,
        }
        if answer["rows"] <= inline:
            assert context.artifacts is not None
            data["rows"] = json_rows(await context.artifacts.table(record))
        return ToolResult(data=data)


class _Teller:
    """Says how far a job is, not every second of it."""

    def __init__(self, context: ToolContext) -> None:
        self._log = context.log
        self._loop = asyncio.get_running_loop()
        self._said: tuple[int, int] | None = None

    def told(self, seen: dict[str, int]) -> None:
        """From the thread of the job."""
        now = seen["done"], seen["tasks"]
        if seen["tasks"] and now != self._said:
            self._said = now
            line = f"spark: {now[0]} of {now[1]} tasks in {seen['stages']} stages"
            self._loop.call_soon_threadsafe(self._log, "stdout", line)


async def _order(config: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    code, sql = config.get("code"), config.get("sql")
    if bool(code) == bool(sql):
        msg = "a spark task needs either `sql` or `code`"
        raise ToolError(msg, "schema")
    given = config.get("input") or {}
    order: dict[str, Any] = {
        "inputs": {str(name): await _input(value, context) for name, value in given.items()},
    }
    if config.get("partitions") not in (None, ""):
        order["partitions"] = _whole(config, "partitions", 1, 1, PARTITIONS_MAX)
    if code:
        order["code"] = str(code)
        return order
    texts = sql if isinstance(sql, list) else [sql]
    order["sql"] = [statement for text in texts for statement in split_statements(str(text))]
    if not order["sql"]:
        msg = "the `sql` of a spark task has no statement"
        raise ToolError(msg, "schema")
    return order


async def _input(value: Any, context: ToolContext) -> Any:
    """An input as it can travel: names as they are, rows by way of the store."""
    if isinstance(value, str) and value.startswith(SCHEME):
        return value
    if isinstance(value, dict):
        for key in ("result_ref", "_ref"):
            if isinstance(value.get(key), dict):
                return dict(value[key])
        if value.get("kind") == "result_ref" or value.get("path") or value.get("table"):
            return dict(value)
        if is_rows(value.get("rows")):
            value = value["rows"]
    if is_rows(value):
        return await _stored(value, context)
    return value


async def _stored(rows: list[Any], context: ToolContext) -> dict[str, Any]:
    """Rows that a template gave, stored once, so that executors fetch them like any other input."""
    assert context.artifacts is not None
    table = await asyncio.to_thread(table_of, rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    spool = context.artifacts.spool()
    try:
        await spool.write(sink.getvalue().to_pybytes())
        return await spool.finish(_FEATHER)
    except BaseException:
        await spool.discard()
        raise


def _whole(config: dict[str, Any], key: str, default: int, least: int, most: int) -> int:
    given = config.get(key)
    if given in (None, ""):
        return default
    try:
        value = int(given)
    except (TypeError, ValueError):
        value = least - 1
    if not least <= value <= most:
        msg = f"{key} of a spark task must be a number from {least} to {most}, not {given!r}"
        raise ToolError(msg, "schema")
    return value


def _print(context: ToolContext, lines: Any) -> None:
    for line in lines:
        context.log("stdout", line)
