"""Code of a Spark task from outside: its process, what it prints, and how it is ended.

The process joins the JVM of the running session by its gateway; it gets no environment but what
Python and Spark need. Owns its life: it ends with its answer, or is killed with its group when the
job is cancelled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

import noetl_ray
from noetl_ray.config.environ import environ
from noetl_ray.errors import NoetlError, ToolError, UsageError
from noetl_ray.lake.runner import when_cancelled

PRINTED_MAX = 1_000
LINE_CHARS_MAX = 8_000
ANSWER_BYTES_MAX = 1 << 20
_KEPT = (
    "HOME",
    "JAVA_HOME",
    "LANG",
    "LC_ALL",
    "PATH",
    "PYSPARK_PYTHON",
    "SPARK_LOCAL_IP",
    "TMPDIR",
)


def run_code(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run the code of a task beside the session and give its answer.

    Raises:
        ToolError: the code failed, or its process ended without an answer.
        UsageError: the inputs cannot be used.
    """
    context = spark.sparkContext
    gateway = context._gateway.gateway_parameters
    process = subprocess.Popen(
        [sys.executable, "-m", "noetl_ray.lake.task_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(gateway.port, gateway.auth_token),
        start_new_session=True,
        text=True,
        errors="replace",
    )
    printed: deque[str] = deque(maxlen=PRINTED_MAX)
    assert process.stderr is not None
    reader = threading.Thread(target=_collect, args=(process.stderr, printed), daemon=True)
    reader.start()
    group = context.getLocalProperty("spark.jobGroup.id") or ""
    try:
        with when_cancelled(spark, lambda: _kill(process)):
            told = _exchange(process, {"arguments": arguments, "group": group})
    finally:
        _kill(process)
        process.wait()
        reader.join(1.0)
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
    return {**_settled(told, process.returncode, list(printed)), "printed": list(printed)}


def _exchange(process: subprocess.Popen[str], request: dict[str, Any]) -> dict[str, Any] | None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    line = process.stdout.readline(ANSWER_BYTES_MAX + 1)
    if len(line) > ANSWER_BYTES_MAX:
        msg = f"the code gave a value of over {ANSWER_BYTES_MAX} bytes; return a DataFrame instead"
        raise ToolError(msg, "schema")
    return json.loads(line) if line.endswith("\n") else None


def _settled(told: dict[str, Any] | None, code: int, printed: list[str]) -> dict[str, Any]:
    if told is None:
        last = f": {printed[-1]}" if printed else ""
        msg = f"the process of the code ended by itself (exit {code}){last}"
        raise ToolError(msg, "unknown", False, {"code": "process_ended", "printed": printed})
    if "error" in told:
        details = {**told.get("details", {}), "printed": printed}
        if told.get("usage"):
            raise UsageError(told["error"])
        raise ToolError(told["error"], told["kind"], told["retryable"], details)
    answer: dict[str, Any] = told["ok"]
    return answer


def failure(error: NoetlError) -> dict[str, Any]:
    """An error as the child tells it."""
    if isinstance(error, ToolError):
        return {
            "error": error.message,
            "kind": error.kind,
            "retryable": error.retryable,
            "details": error.details or {},
        }
    return {
        "error": error.message,
        "kind": error.code,
        "retryable": error.retryable,
        "usage": isinstance(error, UsageError),
    }


def _environment(port: int, secret: str) -> dict[str, str]:
    here = environ()
    home = str(Path(noetl_ray.__file__).resolve().parents[1])
    return {
        **{name: here[name] for name in _KEPT if name in here},
        "PYTHONPATH": home,
        "PYTHONUNBUFFERED": "1",
        # What executors compute of a hash must not differ from what the code does.
        "PYTHONHASHSEED": "0",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": secret,
    }


def _collect(stream: Any, printed: deque[str]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            printed.append(line.rstrip("\n")[:LINE_CHARS_MAX])


def _kill(process: subprocess.Popen[str]) -> None:
    """End it and all it started; its group is its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
