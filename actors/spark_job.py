"""Jobs on the cluster's Spark session for whoever is no part of the cluster: the command line.

Ray keeps its driver and its token in the process that joins it; here that is a process of its own,
this module as a program: one request in, lines of progress and one answer out. Owns that exchange.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from actors import ray_head, state_file
from noetl_ray.config.convert import from_dict, to_dict
from noetl_ray.config.environ import environ
from noetl_ray.errors import InternalError, NoetlError, ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from noetl_ray.config.settings import Settings
    from noetl_ray.lake.runner import Progress

END_S = 10.0
JOB_S = 24 * 3_600.0


class ClusterSpark:
    """Runs jobs on the Spark session of the cluster that the settings name."""

    def __init__(self, settings: Settings, data_dir: Path) -> None:
        """Bind to a cluster; starts nothing yet."""
        self._settings = settings
        self._data_dir = data_dir.expanduser().absolute()

    def run(
        self,
        job: str,
        arguments: dict[str, Any],
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Run a job; see the port. Nobody can tell it to stop: Ctrl-C ends the command line."""
        if stop is not None:
            msg = "a job of the command line cannot be stopped by an event"
            raise UsageError(msg)
        request = {"job": job, "arguments": arguments, "timeout_s": timeout_s}
        return self._ask(request, progress)

    def describe(self) -> dict[str, Any]:
        """See the port."""
        return self._ask({"describe": True}, None)

    def stop(self) -> None:
        """See the port."""
        self._ask({"stop": True}, None)

    def _ask(
        self, request: dict[str, Any], progress: Callable[[Progress], None] | None
    ) -> dict[str, Any]:
        log_path = self._data_dir / "spark-job.log"
        record = state_file.read(self._data_dir)
        ours = record is not None and record.ray_is_ours
        joining = ray_head.client_environment(self._data_dir) if ours else {}
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "actors.spark_job"],
                env={**environ(), **joining, "PYTHONPATH": ray_head.import_path(())},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        overdue = threading.Timer(request.get("timeout_s") or JOB_S, process.kill)
        overdue.daemon = True
        try:
            overdue.start()
            return self._exchange(process, request, progress, log_path)
        finally:
            overdue.cancel()
            if process.poll() is None:
                process.kill()
            process.wait(END_S)
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def _exchange(
        self,
        process: subprocess.Popen[str],
        request: dict[str, Any],
        progress: Callable[[Progress], None] | None,
        log_path: Path,
    ) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"settings": to_dict(self._settings), **request}) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line)
            if "progress" in told:
                if progress is not None:
                    progress(told["progress"])
            elif "ok" in told:
                answer: dict[str, Any] = told["ok"]
                return answer
            else:
                raise _raised(told)
        msg = f"the process that talks to Ray died; see {log_path}"
        raise InternalError(msg)


def _raised(told: dict[str, Any]) -> NoetlError:
    if "details" in told:
        return ToolError(told["error"], told["kind"], told["retryable"], told["details"])
    return UsageError(told["error"]) if told.get("usage") else InternalError(told["error"])


def main() -> int:
    """Serve the request on standard input."""
    request = json.loads(sys.stdin.readline() or "null")
    out = sys.stdout

    def tell(value: dict[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    # Ray and what it loads may print; only our lines belong on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            tell({"ok": _serve(request, lambda seen: tell({"progress": seen}))})
        except ToolError as error:
            tell(
                {
                    "error": error.message,
                    "kind": error.kind,
                    "retryable": error.retryable,
                    "details": error.details,
                }
            )
            return 1
        except (NoetlError, TimeoutError) as error:
            tell({"error": str(error), "usage": isinstance(error, UsageError)})
            return 1
    return 0


def _serve(request: dict[str, Any], progress: Callable[[Progress], None]) -> dict[str, Any]:
    from actors.cluster import connected
    from actors.spark import RaySpark

    settings = from_dict(request["settings"])
    with connected(settings):
        spark = RaySpark(settings)
        if request.get("describe"):
            return spark.describe()
        if request.get("stop"):
            spark.stop()
            return {}
        return spark.run(
            request["job"],
            request["arguments"],
            progress=progress,
            timeout_s=request.get("timeout_s"),
        )


if __name__ == "__main__":
    # Classes of a program's own main module would be pickled by value and not found in the actor.
    from actors.spark_job import main as importable_main

    sys.exit(importable_main())
