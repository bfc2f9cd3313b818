"""Spark inside the Ray cluster: RayDP's session in one detached actor, and the port to it.

Owns the driver's actor, how it is made and what is asked of it. The executors are actors of the
same cluster; a session whose executors are not is refused, because RayDP starts a Ray of its own
when it cannot join. Refuses to carry rows: jobs and answers are plain JSON.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import exceptions

from noetl_ray.config.convert import from_dict, to_dict
from noetl_ray.config.environ import environ, set_environ
from noetl_ray.errors import InternalError, StoreUnavailableError
from noetl_ray.lake.java import find_java, java_environment, java_options
from noetl_ray.lake.runner import PROGRESS_S, JobRunner
from noetl_ray.lake.session import end_session, session_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl_ray.config.settings import Settings
    from noetl_ray.lake.runner import Progress

DRIVER_NAME = "noetl-spark/driver"
"""Not below the prefix of hosts: a session comes and goes, nobody makes it again by itself."""
APP_NAME = "noetl"
EXECUTOR_CLASS = "org.apache.spark.executor.RayDPExecutor"
JOBS_MAX = 8
STOP_S = 30.0
_LOOK = "look"
_POLL_S = 0.1


class SparkDriver:
    """The actor: the driver of the cluster's one Spark session."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Start nothing yet; the first job does."""
        self._settings = from_dict(settings)
        self._runner = JobRunner(
            self._start, self._end, idle_stop_s=self._settings.spark.idle_stop_s
        )
        self._progress: dict[str, Progress] = {}
        self._stops: dict[str, threading.Event] = {}
        self._executor_pids: list[int] = []

    def run(
        self, job_id: str, job: str, arguments: dict[str, Any], timeout_s: float | None
    ) -> dict[str, Any]:
        """Run one job to its end."""

        def note(progress: Progress) -> None:
            self._progress[job_id] = progress

        stop = self._stops.setdefault(job_id, threading.Event())
        try:
            return self._runner.run(job, arguments, progress=note, timeout_s=timeout_s, stop=stop)
        finally:
            self._progress.pop(job_id, None)
            self._stops.pop(job_id, None)

    def cancel(self, job_id: str) -> None:
        """Nobody waits for a job any more; one that has not begun ends when it does."""
        self._stops.setdefault(job_id, threading.Event()).set()

    def progress(self, job_id: str) -> Progress | None:
        """How far a job is, when that is known."""
        return self._progress.get(job_id)

    def describe(self) -> dict[str, Any]:
        """The session, and its executors as the cluster knows them."""
        return {
            "master": "raydp",
            **self._runner.describe(),
            "executors": [
                {"pid": actor["pid"], "actor_id": actor["actor_id"], "node_id": actor["node_id"]}
                for actor in executor_actors()
            ],
            "seen_executor_pids": self._executor_pids,
        }

    def stop(self) -> None:
        """End the session; the actor stays for the next."""
        self._runner.stop()

    def _start(self) -> Any:
        spark = self._settings.spark
        home = find_java(spark.java_home, environ())
        address = {"SPARK_LOCAL_IP": ray.util.get_node_ip_address()}  # type: ignore[no-untyped-call]
        set_environ({**java_environment(home, environ()), **address})
        import raydp

        config = session_config(spark)
        config["spark.ray.raydp_app_master.extraJavaOptions"] = java_options()
        config["spark.ray.raydp_spark_master.actor.resource.CPU"] = "0"
        _fail_without_room(spark.executors, spark.executor_cores)
        session = raydp.init_spark(
            app_name=f"{APP_NAME}-{uuid.uuid4().hex[:8]}",
            num_executors=spark.executors,
            executor_cores=spark.executor_cores,
            executor_memory=f"{spark.executor_memory_mb}M",
            # Conversions to Ray datasets are not used: data goes through the tier.
            fault_tolerant_mode=False,
            configs=config,
        )
        session.sparkContext.setLogLevel("OFF")
        try:
            self._executor_pids = _check_cluster(session, spark.executors)
        except BaseException:
            self._end(session)
            raise
        return session

    @staticmethod
    def _end(session: Any) -> None:
        import raydp

        with contextlib.suppress(Exception):
            raydp.stop_spark()
        # After a half start RayDP forgets the session, and Spark would hand it out again.
        end_session(session)


class RaySpark:
    """The port to the driver's actor, from any process of the cluster."""

    def __init__(self, settings: Settings) -> None:
        """Bind to the cluster this process is connected to; makes nothing yet."""
        self._settings = settings

    def run(
        self,
        job: str,
        arguments: dict[str, Any],
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Run a job on the cluster's session; see the port."""
        driver = self._driver()
        job_id = uuid.uuid4().hex
        answer = driver.run.remote(job_id, job, arguments, timeout_s)
        # Starting the session is not the job's time.
        start_s = self._settings.spark.start_timeout_s
        limit = None if timeout_s is None else time.monotonic() + timeout_s + start_s
        try:
            while not ray.wait([answer], timeout=PROGRESS_S)[0]:
                if stop is not None and stop.is_set():
                    driver.cancel.options(concurrency_group=_LOOK).remote(job_id)
                if progress is not None:
                    _tell(driver, job_id, progress)
                if limit is not None and time.monotonic() > limit:
                    msg = f"the Spark job gave no answer in {timeout_s:g} s"
                    raise TimeoutError(msg)
            found: dict[str, Any] = ray.get(answer)
        except exceptions.RayTaskError as error:
            raise _cause(error) from None
        except exceptions.RayError as error:
            msg = f"the driver of the Spark session was lost during {job}: {type(error).__name__}"
            raise StoreUnavailableError(msg) from None
        return found

    def describe(self) -> dict[str, Any]:
        """See the port; does not make the actor."""
        try:
            driver: Any = ray.get_actor(DRIVER_NAME, namespace=self._settings.ray.namespace)
            call = driver.describe.options(concurrency_group=_LOOK).remote()
            found: dict[str, Any] = ray.get(call, timeout=STOP_S)
        except (ValueError, exceptions.RayError):
            return {"master": "raydp", "state": "down"}
        return found

    def stop(self) -> None:
        """End the session and its actor; nothing happens when there is none."""
        try:
            driver: Any = ray.get_actor(DRIVER_NAME, namespace=self._settings.ray.namespace)
        except ValueError:
            return
        with contextlib.suppress(exceptions.RayError):
            ray.get(driver.stop.options(concurrency_group=_LOOK).remote(), timeout=STOP_S)
        deadline = time.monotonic() + STOP_S
        while executor_actors() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        ray.kill(driver, no_restart=True)

    def _driver(self) -> Any:
        wrap: Any = ray.remote  # its stubs do not know concurrency groups
        remote_class = wrap(concurrency_groups={_LOOK: 2})(SparkDriver)
        home = find_java(self._settings.spark.java_home, environ())
        return remote_class.options(
            name=DRIVER_NAME,
            namespace=self._settings.ray.namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=JOBS_MAX,
            num_cpus=0,
            # RayDP's own actor inherits it, and runs the first java of the path.
            runtime_env={"env_vars": java_environment(home, environ())},
        ).remote(to_dict(self._settings))


def executor_actors() -> list[dict[str, Any]]:
    """The living executors of Spark among the actors of the cluster we are connected to."""
    from ray._private.state import actors as actor_table

    table: dict[str, Any] = actor_table()
    return [
        {
            "actor_id": actor_id,
            "pid": int(actor.get("Pid") or 0),
            "node_id": actor.get("Address", {}).get("NodeID", ""),
        }
        for actor_id, actor in table.items()
        if actor.get("State") == "ALIVE" and actor.get("ActorClassName") == EXECUTOR_CLASS
    ]


def executor_pid(_: Any) -> int:
    """Runs on an executor: the process id of its JVM, above Python's daemon."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def _check_cluster(session: Any, executors: int) -> list[int]:
    """The executors' processes, all of them actors of our cluster.

    Raises:
        InternalError: Spark runs somewhere else.
    """
    context = session.sparkContext
    tasks = executors * 2
    seen = sorted(set(context.parallelize(range(tasks), tasks).map(executor_pid).collect()))
    ours = {actor["pid"] for actor in executor_actors()}
    foreign = [pid for pid in seen if pid not in ours]
    if foreign:
        msg = (
            f"Spark did not join this Ray cluster: its executors run in processes {foreign}, the "
            f"cluster's executor actors are {sorted(ours)}; is RAY_AUTH_MODE the same everywhere?"
        )
        raise InternalError(msg)
    return seen


def _fail_without_room(executors: int, cores: int) -> None:
    """RayDP waits for ever for executors that no node can hold."""
    total = float(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
    if executors * cores > total:
        msg = (
            f"spark.executors × spark.executor_cores asks for {executors * cores} CPUs, "
            f"the Ray cluster has {total:g}"
        )
        raise StoreUnavailableError(msg)


def _tell(driver: Any, job_id: str, progress: Callable[[Progress], None]) -> None:
    with contextlib.suppress(exceptions.RayError):
        call = driver.progress.options(concurrency_group=_LOOK).remote(job_id)
        found = ray.get(call, timeout=PROGRESS_S)
        if found:
            progress(found)


def _cause(error: exceptions.RayTaskError) -> BaseException:
    """What the job raised, without Ray's wrapping."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
