"""Jobs on a session that lives in this process: started, watched, cancelled, stopped when idle.

Owns the life of the session and the threads that watch jobs. How a session is started and ended is
given; so the same rules hold for Spark in this process and for RayDP's driver.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import NoetlError, StoreUnavailableError, UsageError
from noetl_ray.lake.causes import spark_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRESS_S = 1.0
CANCEL_LOOK_S = 0.2
_GROUP = "spark.jobGroup.id"
_JOB = re.compile(r"noetl_ray\.lake\.[a-z_]+:[a-z_]+")

Progress = dict[str, int]
"""``stages`` active now, ``tasks`` of them in all, ``done`` of those, ``failed`` of those."""


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
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Run one job in this thread; several threads may."""
        function = job_function(job)
        session = self._acquire()
        group = f"noetl-{threading.get_ident()}-{time.monotonic_ns()}"
        try:
            with _watched(session, group, progress, timeout_s, stop) as cancelled:
                session.sparkContext.setJobGroup(group, job, interruptOnCancel=True)
                try:
                    return function(session, arguments)
                except Exception as error:
                    if cancelled:
                        raise TimeoutError(cancelled[0]) from None
                    if isinstance(error, NoetlError):
                        raise
                    if not self._is_alive(session):
                        self.stop()
                        msg = (
                            f"the Spark session died during {job}, perhaps for want of memory "
                            "(spark.driver_memory_mb, spark.executor_memory_mb): "
                            f"{type(error).__name__}"
                        )
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


_cancels: dict[str, Callable[[], None]] = {}
"""By job group: what else must end with it."""


@contextlib.contextmanager
def when_cancelled(session: Any, end: Callable[[], None]) -> Iterator[None]:
    """While the block runs, cancelling its job calls ``end`` too; for work outside the JVM."""
    group = session.sparkContext.getLocalProperty(_GROUP) or ""
    _cancels[group] = end
    try:
        yield
    finally:
        _cancels.pop(group, None)


@contextlib.contextmanager
def _watched(
    session: Any,
    group: str,
    progress: Callable[[Progress], None] | None,
    timeout_s: float | None,
    stop: threading.Event | None,
) -> Iterator[list[str]]:
    """Tell how far a job group is while the block runs, and cancel it when its time is over.

    Gives a list that holds the reason once it was cancelled.
    """
    over = threading.Event()
    cancelled: list[str] = []
    deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def watch() -> None:
        pause = PROGRESS_S if deadline is None and stop is None else CANCEL_LOOK_S
        told_at = time.monotonic()
        while not over.wait(pause):
            if stop is not None and stop.is_set() and not cancelled:
                cancelled.append("the Spark job was cancelled")
            elif deadline is not None and time.monotonic() > deadline and not cancelled:
                msg = f"the Spark job ran longer than {timeout_s:g} s and was cancelled"
                cancelled.append(msg)
            if cancelled:
                with contextlib.suppress(Exception):
                    session.sparkContext.cancelJobGroup(group)
                end = _cancels.get(group)
                if end is not None:
                    end()
            elif progress is not None and time.monotonic() - told_at >= PROGRESS_S:
                told_at = time.monotonic()
                with contextlib.suppress(Exception):
                    progress(_progress(session, group))

    watcher = threading.Thread(target=watch, name="noetl-spark-progress", daemon=True)
    watcher.start()
    try:
        yield cancelled
    finally:
        over.set()
        watcher.join(PROGRESS_S * 2)


def current_progress(session: Any) -> Progress:
    """How far the job of this thread is."""
    return _progress(session, session.sparkContext.getLocalProperty(_GROUP) or "")


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
