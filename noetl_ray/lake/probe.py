"""The smallest job: whether Spark answers, and what it answers with. Used by checks and tests."""

from __future__ import annotations

import time
from typing import Any


def ping(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Count ``rows`` numbers on the executors and say which Spark did it."""
    rows = int(arguments.get("rows", 1_000))
    total = spark.range(rows).selectExpr("sum(id) AS total").collect()[0]["total"]
    return {"rows": rows, "total": int(total or 0), "version": spark.version}


def fail(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Fail on an executor in the way asked for, to see that the cause comes back."""
    message = str(arguments.get("message", "as asked"))

    def refuse(batches: Any) -> Any:
        for _ in batches:
            raise ValueError(message)
        yield from ()

    spark.range(1).mapInArrow(refuse, "id long").collect()
    return {}


def nap(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Sleep ``seconds`` in each of ``tasks`` tasks, for whoever watches or disturbs a job."""
    seconds, tasks = float(arguments["seconds"]), int(arguments["tasks"])

    def sleep(batches: Any) -> Any:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    done = spark.range(0, tasks, 1, tasks).mapInArrow(sleep, "id long").count()
    return {"tasks": done}
