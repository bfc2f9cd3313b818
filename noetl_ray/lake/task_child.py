"""What runs the code of a Spark task: a process that joins the session's JVM. One task, then ends.

The code is a function ``main`` of ``spark`` and the inputs it names, or statements that set
``result``. What it prints goes to standard error; only the answer goes to standard output.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from typing import Any

from noetl_ray.errors import NoetlError, ToolError
from noetl_ray.lake.causes import spark_error
from noetl_ray.lake.task import input_frames, written
from noetl_ray.lake.task_process import failure

_MODULE = "noetl_task"


def main() -> int:
    """Serve the request on standard input."""
    out = os.fdopen(os.dup(1), "w")
    # What the code and what it starts print must not be taken for the answer.
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    try:
        told: dict[str, Any] = {"ok": _run(request["arguments"], request["group"])}
    except NoetlError as error:
        told = failure(error)
    except Exception as error:
        told = failure(_explained(error))
    out.write(json.dumps(told) + "\n")
    out.flush()
    return 0


def _run(arguments: dict[str, Any], group: str) -> dict[str, Any]:
    session = _joined(group)
    code = compile(arguments["code"], f"<{_MODULE}>", "exec")
    frames = input_frames(session, arguments)
    # Functions of this namespace are pickled by value, so executors need no such module.
    names: dict[str, Any] = {"__name__": "__main__", "spark": session, **frames}
    exec(code, names)
    if "main" in names:
        output = names["main"](**_wanted(names["main"], {"spark": session, **frames}))
    else:
        output = names.get("result")
    return written(output, arguments)


def _wanted(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments a function names, or all for one that takes anything.

    Raises:
        ToolError: it wants something that is no input.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return given
    for one in parameters:
        if one.name not in given and one.default is inspect.Parameter.empty:
            msg = f"main() wants {one.name!r}; there are {', '.join(given)}"
            raise ToolError(msg, "schema")
    return {one.name: given[one.name] for one in parameters if one.name in given}


def _joined(group: str) -> Any:
    """A session of our own on the context that runs in the JVM."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    jvm: Any = gateway.jvm
    default = jvm.org.apache.spark.sql.SparkSession.getDefaultSession().get()
    jsc = jvm.org.apache.spark.api.java.JavaSparkContext(default.sparkContext())
    conf = SparkConf(_jvm=jvm, _jconf=jsc.getConf())
    context = SparkContext(conf=conf, gateway=gateway, jsc=jsc)
    session = SparkSession(context, default.newSession())
    # Making it set the JVM's default, which belongs to everybody.
    jvm.org.apache.spark.sql.SparkSession.setDefaultSession(default)
    context.setJobGroup(group, "task", interruptOnCancel=True)
    return session


def _explained(error: Exception) -> ToolError:
    """Spark's cause, or what the code raised and where."""
    module = type(error).__module__
    if module.startswith(("pyspark", "py4j")):
        return spark_error(error)
    line = next(
        (
            frame.lineno
            for frame in reversed(traceback.extract_tb(error.__traceback__))
            if frame.filename == f"<{_MODULE}>"
        ),
        getattr(error, "lineno", None),
    )
    where = f" (line {line} of the code)" if line else ""
    message = f"{type(error).__name__}: {error}{where}"
    return ToolError(message, "unknown", False, {"exception_type": type(error).__name__})


if __name__ == "__main__":
    sys.exit(main())
