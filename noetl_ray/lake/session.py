"""The session port: whoever runs jobs on Spark, and the adapter for Spark in this process.

A job is the name of a function of ours and plain JSON arguments; its answer is plain JSON. So one
job runs on RayDP, on a Spark master and in this process, and no rows pass through the port. The
session starts with the first job, is used again by the next, and stops when nobody needs it.
Refuses names outside :mod:`noetl_ray.lake`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import noetl_ray
from noetl_ray.config.environ import environ, set_environ
from noetl_ray.lake.java import find_java, java_environment, java_options
from noetl_ray.lake.runner import JobRunner

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from noetl_ray.config.settings import SparkSettings
    from noetl_ray.lake.runner import Progress

JVM_END_S = 20.0


class SparkJobs(Protocol):
    """Runs jobs on the one Spark session of a cluster."""

    def run(
        self,
        job: str,
        arguments: dict[str, Any],
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Run ``module:function(spark, arguments)`` and give its answer.

        Args:
            job: Its name.
            arguments: Plain JSON.
            progress: Told now and then how far it is.
            timeout_s: It is cancelled after so long.
            stop: When set, nobody waits for the job any more; it is cancelled.

        Raises:
            ToolError: Spark or the job failed; the message is the cause.
            StoreUnavailableError: the session could not be started, or died.
            TimeoutError: the job was cancelled, after its time or because it was told to stop.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Where the session runs and with what; ``state`` is ``down`` when there is none."""
        ...

    def stop(self) -> None:
        """End the session; the next job starts another."""
        ...


def session_config(settings: SparkSettings) -> dict[str, str]:
    """Spark's own options for a session of these settings."""
    options = java_options()
    home = str(Path(noetl_ray.__file__).resolve().parents[1])
    return {
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options,
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.executorEnv.PYTHONPATH": _python_path(home),
        "spark.python.worker.reuse": "true",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # A part that was written twice has the same name and the same bytes, so a second attempt
        # is harmless; more than a few mean the job is wrong.
        "spark.task.maxFailures": "4",
    }


class LocalSpark:
    """Spark in this process, or on a master given by address."""

    def __init__(self, settings: SparkSettings, *, app_name: str = "noetl") -> None:
        """Start nothing yet."""
        self._settings = settings
        self._app_name = app_name
        self._runner = JobRunner(self._start, self._end, idle_stop_s=settings.idle_stop_s)

    def run(
        self,
        job: str,
        arguments: dict[str, Any],
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Run a job; see the port."""
        return self._runner.run(job, arguments, progress=progress, timeout_s=timeout_s, stop=stop)

    def describe(self) -> dict[str, Any]:
        """See the port."""
        return {"master": self._master(), **self._runner.describe()}

    def stop(self) -> None:
        """See the port."""
        self._runner.stop()

    def _master(self) -> str:
        given = self._settings.master
        return given if given not in ("", "raydp") else f"local[{self._settings.executor_cores}]"

    def _start(self) -> Any:
        home = find_java(self._settings.java_home, environ())
        set_environ(java_environment(home, environ()))
        config = session_config(self._settings)
        if _is_here(self._master()):
            set_environ({"SPARK_LOCAL_IP": "127.0.0.1"})
            config["spark.driver.host"] = config["spark.driver.bindAddress"] = "127.0.0.1"
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        builder = builder.master(self._master()).appName(self._app_name)
        if not self._master().startswith("local"):
            config["spark.executor.memory"] = f"{self._settings.executor_memory_mb}m"
            config["spark.cores.max"] = str(
                self._settings.executors * self._settings.executor_cores
            )
        for key, value in config.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session

    def _end(self, session: Any) -> None:
        end_session(session)


def end_session(session: Any) -> None:
    """End a session and its JVM, also one whose JVM is gone already.

    PySpark keeps the JVM for the life of the process, and one that died as well; it would hand the
    dead session out again.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with contextlib.suppress(Exception):
        session.stop()
    holder: Any = SparkSession
    holder._instantiatedSession = holder._activeSession = None
    context: Any = SparkContext
    gateway = context._gateway
    context._gateway = context._jvm = context._active_spark_context = None
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            gateway.proc.stdin.close()
            gateway.proc.wait(JVM_END_S)


def _is_here(master: str) -> bool:
    """Whether all of the session is on this machine, so that nobody outside needs to reach it."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def _python_path(home: str) -> str:
    existing = environ().get("PYTHONPATH", "").split(":")
    return ":".join(dict.fromkeys([home, *(part for part in existing if part)]))
