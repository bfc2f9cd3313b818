"""Spark's errors in one line."""

from __future__ import annotations

import pytest

from noetl_ray.lake.causes import CAUSE_CHARS_MAX, spark_error

PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.hasNext(PythonRunner.scala:572)
"""
JAVA = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Foo(Foo.scala:1)
Caused by: java.io.IOException: the disk is full
\tat java.base/java.io.Foo(Foo.java:1)
"""
LOST = "Job aborted: ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137"


@pytest.mark.parametrize(
    ("text", "said", "code", "retryable"),
    [
        (PYTHON, "Spark: ZeroDivisionError: division by zero", "python", False),
        (JAVA, "Spark: IOException: the disk is full", "spark", False),
        (LOST, "Command exited with code 137", "executor_lost", True),
        (
            "java.lang.OutOfMemoryError: Java heap space",
            "executor_memory_mb",
            "out_of_memory",
            False,
        ),
        ("Error from python worker:\n  no module pyspark\n", "no module pyspark", "python", False),
        ("", "Exception", "spark", False),
    ],
)
def test_the_cause_is_found(text: str, said: str, code: str, retryable: bool) -> None:
    error = spark_error(Exception(text))
    assert said in error.message
    assert "\n" not in error.message
    assert ".scala" not in error.message
    assert (error.details["code"], error.retryable) == (code, retryable)


def test_a_cause_is_bounded() -> None:
    assert len(spark_error(Exception("x" * 50_000)).message) < CAUSE_CHARS_MAX + 20
