"""The session port: whoever runs jobs on Spark, and the adapter for Spark in this process.

A job is the name of a function of ours and plain JSON arguments; its answer is plain JSON. So one
job runs on RayDP, on a Spark master and in this process, and no rows pass through the port. The
session starts with the first job, is used again by the next, and stops when nobody needs it.
Refuses names outside :mod:`noetl_ray.lake`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import noetl_ray
from noetl_ray.config.environ import environ, set_environ
from noetl_ray.errors import NoetlError, StoreUnavailableError, UsageError
from noetl_ray.lake.causes import spark_error
from noetl_ray.lake.java import find_java, java_environment, java_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl_ray.config.settings import SparkSettings

PROGRESS_S = 1.0
JVM_END_S = 20.0
_JOB = re.compile(r"noetl_ray\.lake\.[a-z_]+:[a-z_]+")

Progress = dict[str, int]
"""``stages`` active now, ``tasks`` of them in all, ``done`` of those, ``failed`` of those."""


class SparkJobs(Protocol):
    """Runs jobs on the one Spark session of a cluster."""

    def run(
        self,
        job: str,
        arguments: dict[str, Any],
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Run ``module:function(spark, arguments)`` and give its answer.

        Raises:
            ToolError: Spark or the job failed; the message is the cause.
            StoreUnavailableError: the session could not be started, or died.
            TimeoutError: the job was cancelled after its time.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Where the session runs and with what; ``state`` is ``down`` when there is none."""
        ...

    def stop(self) -> None:
        """End the session; the next job starts another."""
        ...


def job_function(name: str) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    """The function of a job's name.

    Raises:
        UsageError: it does not name a job of ours.
    """
    if not _JOB.fullmatch(name):
        msg = f"{name[:80]!r} names no job: it is written noetl_ray.lake.<module>:<function>"
        raise UsageError(msg)
    module, _, function = name.partition(":")
    found: Callable[[Any, dict[str, Any]], dict[str, Any]] = getattr(
        importlib.import_module(module), function
    )
    return found


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
    ) -> dict[str, Any]:
        """Run a job; see the port."""
        return self._runner.run(job, arguments, progress=progress, timeout_s=timeout_s)

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
        from pyspark import SparkContext

        session.stop()
        # PySpark keeps the JVM for the life of the process; ours is to give its memory back.
        gateway = SparkContext._gateway
        SparkContext._gateway = SparkContext._jvm = None
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(JVM_END_S)


@dataclass(slots=True)
class _Life:
    """The session as it is now."""

    session: Any = None
    started_at: float = 0.0
    start_s: float = 0.0
    used_at: float = 0.0
    jobs: int = 0
    running: int = 0
    timer: threading.Timer | None = field(default=None)


class JobRunner:
    """Holds a session in the driver's process: starts it, runs jobs on it, stops it when idle."""

    def __init__(
        self, start: Callable[[], Any], end: Callable[[Any], None], *, idle_stop_s: float
    ) -> None:
        """Bind how a session is started and ended."""
        self._start = start
        self._end = end
        self._idle_stop_s = idle_stop_s
        self._life = _Life()
        self._lock = threading.RLock()

    def run(
        self,
        job: str,
        arguments: dict[str, Any],
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Run one job in this thread; several threads may."""
        function = job_function(job)
        session = self._acquire()
        group = f"noetl-{threading.get_ident()}-{time.monotonic_ns()}"
        try:
            with _watched(session, group, progress, timeout_s) as timed_out:
                session.sparkContext.setJobGroup(group, job, interruptOnCancel=True)
                try:
                    return function(session, arguments)
                except NoetlError:
                    raise
                except Exception as error:
                    if timed_out.is_set():
                        msg = f"the Spark job ran longer than {timeout_s:g} s and was cancelled"
                        raise TimeoutError(msg) from None
                    if not self._is_alive(session):
                        self.stop()
                        msg = f"the Spark session died during {job}: {spark_error(error).message}"
                        raise StoreUnavailableError(msg) from None
                    raise spark_error(error) from None
        finally:
            self._release()

    def describe(self) -> dict[str, Any]:
        """What is known without asking Spark for work."""
        with self._lock:
            life = self._life
            if life.session is None:
                return {"state": "down", "jobs": life.jobs}
            context = life.session.sparkContext
            return {
                "state": "up",
                "jobs": life.jobs,
                "running": life.running,
                "application": context.applicationId,
                "start_s": round(life.start_s, 3),
                "idle_s": round(time.monotonic() - life.used_at, 3),
                "parallelism": context.defaultParallelism,
                "process_id": os.getpid(),
            }

    def stop(self) -> None:
        """End the session if there is one."""
        with self._lock:
            life = self._life
            session, life.session = life.session, None
            if life.timer is not None:
                life.timer.cancel()
                life.timer = None
            if session is not None:
                # It may be dead already, which is as good.
                with contextlib.suppress(Exception):
                    self._end(session)

    def _acquire(self) -> Any:
        with self._lock:
            life = self._life
            if life.timer is not None:
                life.timer.cancel()
                life.timer = None
            if life.session is not None and not self._is_alive(life.session):
                self.stop()
            if life.session is None:
                began = time.monotonic()
                try:
                    life.session = self._start()
                except NoetlError:
                    raise
                except Exception as error:
                    msg = f"no Spark session could be started: {spark_error(error).message}"
                    raise StoreUnavailableError(msg) from None
                life.start_s = time.monotonic() - began
            life.jobs += 1
            life.running += 1
            return life.session

    def _release(self) -> None:
        with self._lock:
            life = self._life
            life.running -= 1
            life.used_at = time.monotonic()
            if life.running == 0 and life.session is not None:
                life.timer = threading.Timer(self._idle_stop_s, self._stop_if_idle)
                life.timer.daemon = True
                life.timer.start()

    def _stop_if_idle(self) -> None:
        with self._lock:
            if self._life.running == 0:
                self.stop()

    @staticmethod
    def _is_alive(session: Any) -> bool:
        try:
            context = session.sparkContext
            return context._jsc is not None and not context._jsc.sc().isStopped()
        except Exception:  # py4j raises what it likes when the JVM is gone
            return False


@contextlib.contextmanager
def _watched(
    session: Any,
    group: str,
    progress: Callable[[Progress], None] | None,
    timeout_s: float | None,
) -> Iterator[threading.Event]:
    """Tell how far a job group is while the block runs, and cancel it when its time is over."""
    over, timed_out = threading.Event(), threading.Event()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def watch() -> None:
        while not over.wait(PROGRESS_S if deadline is None else min(PROGRESS_S, 0.2)):
            if deadline is not None and time.monotonic() > deadline:
                timed_out.set()
                with contextlib.suppress(Exception):
                    session.sparkContext.cancelJobGroup(group)
            elif progress is not None:
                with contextlib.suppress(Exception):
                    progress(_progress(session, group))

    watcher = threading.Thread(target=watch, name="noetl-spark-progress", daemon=True)
    watcher.start()
    try:
        yield timed_out
    finally:
        over.set()
        watcher.join(PROGRESS_S * 2)


def _progress(session: Any, group: str) -> Progress:
    tracker = session.sparkContext.statusTracker()
    seen: Progress = {"stages": 0, "tasks": 0, "done": 0, "failed": 0}
    for job_id in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job_id)
        for stage_id in info.stageIds if info else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is None:
                continue
            seen["stages"] += 1
            seen["tasks"] += stage.numTasks
            seen["done"] += stage.numCompletedTasks
            seen["failed"] += stage.numFailedTasks
    return seen


def _is_here(master: str) -> bool:
    """Whether all of the session is on this machine, so that nobody outside needs to reach it."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def _python_path(home: str) -> str:
    existing = environ().get("PYTHONPATH", "").split(":")
    return ":".join(dict.fromkeys([home, *(part for part in existing if part)]))
