"""The job behind tasks of kind ``spark``: named inputs, SQL or code, a table in the result tier.

Each task has a Spark session of its own on the shared context, so views of one are not seen by
another. SQL runs from here; code runs in a process of its own (:mod:`noetl_ray.lake.task_child`),
which can be killed and knows none of the driver's environment.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ToolError, UsageError
from noetl_ray.events.canonical import to_jsonable
from noetl_ray.lake.exchange import frame_of, write_frame
from noetl_ray.lake.query import table_view
from noetl_ray.lake.runner import current_progress
from noetl_ray.lake.sources import TABLE_PREFIX, sources_of
from noetl_ray.lake.tier import Tier

if TYPE_CHECKING:
    from noetl_ray.lake.tier import TierPlace

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PARTITIONS_LIMIT = 4_096


def run_task(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run one task.

    Args:
        spark: The session.
        arguments: ``tier`` and ``lake`` places; ``inputs`` by name; ``sql`` as a list of
            statements, or ``code``; ``partitions`` of the output.

    Returns:
        ``record`` of the output, its ``schema``, ``rows`` and ``parts``, or ``value`` where code
        gave no table; ``stages`` and ``tasks`` of Spark, ``took_s``, and what was ``printed``.
    """
    began = time.monotonic()
    if arguments.get("code"):
        from noetl_ray.lake.task_process import run_code

        answer = run_code(spark, arguments)
    else:
        answer = run_sql(spark.newSession(), arguments)
    seen = current_progress(spark)
    return {
        **answer,
        "stages": seen["stages"],
        "tasks": seen["done"],
        "failed_tasks": seen["failed"],
        "took_s": round(time.monotonic() - began, 3),
    }


def run_sql(session: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run statements over the inputs as views; the last one's rows are the output."""
    for name, frame in input_frames(session, arguments).items():
        frame.createOrReplaceTempView(name)
    *before, last = arguments["sql"]
    for statement in before:
        session.sql(statement)
    return written(session.sql(last), arguments)


def input_frames(session: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The inputs as DataFrames, by name.

    Raises:
        UsageError: a name or what it stands for cannot be used.
    """
    place: TierPlace = arguments["tier"]
    tier = Tier(place)
    frames: dict[str, Any] = {}
    for name, given in arguments["inputs"].items():
        if not _NAME.fullmatch(name):
            msg = f"the input {name!r} cannot name a table: use letters, digits and _"
            raise UsageError(msg)
        if isinstance(given, dict) and given.get("table"):
            frames[name] = _table(session, arguments, name, str(given["table"]))
        else:
            frames[name] = frame_of(session, place, sources_of(tier, name, given))
    return frames


def _table(session: Any, arguments: dict[str, Any], name: str, wanted: str) -> Any:
    """A table of the lake, and of it only what is this scope's."""
    if not wanted.startswith(TABLE_PREFIX):
        msg = f"the input {name!r}: tables are those of the lake, as {TABLE_PREFIX}events"
        raise UsageError(msg)
    view = table_view(session, arguments["lake"], wanted.removeprefix(TABLE_PREFIX))
    place = arguments["tier"]
    return view.where(
        (view["tenant"] == place["tenant"]) & (view["organization_id"] == place["organization"])
    )


def written(output: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a task gave: a DataFrame goes into the tier, anything else is a value.

    Raises:
        ToolError: it is neither.
    """
    if output is None:
        return {"value": None}
    if _is_pandas(output):
        msg = "the code gave a pandas DataFrame; return spark.createDataFrame(it) instead"
        raise ToolError(msg, "schema")
    if hasattr(output, "mapInArrow"):
        partitions = arguments.get("partitions")
        record, manifest = write_frame(output, arguments["tier"], partitions)
        return {
            "record": record,
            "schema": manifest.schema,
            "rows": manifest.rows,
            "parts": [part.uri for part in manifest.parts],
        }
    return {"value": to_jsonable(output)}


def _is_pandas(value: Any) -> bool:
    return type(value).__module__.startswith("pandas.")
