"""Spark's errors as ours: the cause in one or two lines instead of pages of the JVM.

Owns the search for the innermost cause, in Python traces of executors and in chains of Java
exceptions. Refuses to pass stack traces on.
"""

from __future__ import annotations

import re

from noetl_ray.errors import ToolError

CAUSE_CHARS_MAX = 1_000
_CAUSED = re.compile(r"^Caused by: (?:[\w.$]+\.)?([\w$]+(?:Exception|Error)[^\n]*)", re.MULTILINE)
_JAVA = re.compile(r"^(?:[\w.$]+\.)?([\w$]+(?:Exception|Error): [^\n]*)", re.MULTILINE)
_PYTHON = re.compile(
    r"^((?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)(?:: [^\n]*)?)$", re.MULTILINE
)
_LOST = re.compile(r"ExecutorLostFailure[^\n]*?Reason: ([^\n]*)|SparkContext was shut down")
_WORKER = re.compile(r"Error from python worker:\s*\n\s*([^\n]+)")
_MEMORY = re.compile(r"OutOfMemoryError|Cannot allocate memory|exceeding memory limits")


def spark_error(error: BaseException) -> ToolError:
    """What went wrong, as an error of a task.

    Args:
        error: Whatever PySpark or py4j raised.

    Returns:
        An error whose ``details`` say the kind: ``analysis`` for bad SQL, ``python`` for code that
        failed on an executor, ``executor_lost``, ``out_of_memory`` or ``spark``.
    """
    text = _text_of(error)
    name = type(error).__name__
    if name in ("AnalysisException", "ParseException"):
        return _made(_first_line(text), "schema" if name[0] == "A" else "parse", "analysis", name)
    if _MEMORY.search(text):
        msg = "Spark ran out of memory; raise spark.executor_memory_mb or make partitions smaller"
        return _made(msg, "unknown", "out_of_memory", name)
    lost = _LOST.search(text)
    if lost:
        msg = (
            f"an executor of Spark was lost: {(lost.group(1) or 'the session was stopped').strip()}"
        )
        return _made(msg, "connection", "executor_lost", name, retryable=True)
    inside = _python_cause(text)
    if inside:
        return _made(inside, "unknown", "python", name)
    started = _WORKER.search(text)
    if started:
        msg = f"Python could not be started on an executor: {started.group(1)}"
        return _made(msg, "unknown", "python", name)
    causes = _CAUSED.findall(text) or _JAVA.findall(text)
    return _made(causes[-1] if causes else _first_line(text), "unknown", "spark", name)


def _made(
    cause: str, kind: str, code: str, exception_type: str, *, retryable: bool = False
) -> ToolError:
    cut = " ".join(cause.split())[:CAUSE_CHARS_MAX]
    details = {"code": code, "exception_type": exception_type}
    return ToolError(f"Spark: {cut}", kind, retryable, details)


def _text_of(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error) or type(error).__name__
    try:
        return f"{error}\n{java.toString()}"
    except Exception:  # the JVM may be gone, and then its words are too
        return str(error)


def _python_cause(text: str) -> str:
    """The last line of the innermost Python trace; the Java lines around it are left out."""
    if "Traceback (most recent call last)" not in text:
        return ""
    trace = text.rpartition("Traceback (most recent call last)")[2]
    found: list[str] = _PYTHON.findall(trace)
    return found[0] if found else ""


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "no reason was given")
