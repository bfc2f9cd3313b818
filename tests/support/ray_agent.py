"""A process that talks to a set's Ray for a test: says where hosts are, and removes them.

Ray keeps one cluster and one token per process, and the test's own process may belong to another
set. As a program: one JSON request per line in, one JSON answer per line out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from actors.local import LocalSet
from actors.ray_head import client_environment, import_path

NAMESPACE = "noetl"
START_S = 60.0
BACK_S = 60.0


class RayAgent:
    """The process, started and asked."""

    def __init__(self, running: LocalSet) -> None:
        environment = {
            **os.environ,
            **client_environment(Path(running.data_dir)),
            "PYTHONPATH": import_path(),
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, running.ray_address],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def health(self, name: str) -> dict[str, Any]:
        """What a host says of itself; empty while it does not answer."""
        return dict(self._ask("health", name))

    def remove(self, name: str) -> None:
        """Take a host out of Ray for good: Ray itself will not restart it."""
        assert self._ask("remove", name)["removed"]

    def running(self, name: str, *, other_than: str = "") -> dict[str, Any]:
        """Health of a host once it runs, as another incarnation than the given one."""
        deadline = time.monotonic() + BACK_S
        while True:
            health = self.health(name)
            if health.get("state") == "running" and health["incarnation"] != other_than:
                return health
            assert time.monotonic() < deadline, f"{name} does not run: {health}"
            time.sleep(0.05)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(START_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _ask(self, verb: str, name: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([verb, name]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def serve(address: str) -> None:
    """Answer until standard input ends."""
    # Ray may print; only answers belong on the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import ray

    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")

    def health(name: str) -> dict[str, Any]:
        try:
            actor = ray.get_actor(name, namespace=NAMESPACE)
            return dict(
                ray.get(actor.health.options(concurrency_group="health").remote(), timeout=2)
            )
        except (ValueError, ray.exceptions.RayError, TimeoutError):
            return {}

    def remove(name: str) -> dict[str, Any]:
        ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
        return {"removed": True}

    verbs = {"health": health, "remove": remove}
    for line in sys.stdin:
        verb, name = json.loads(line)
        answers.write(json.dumps(verbs[verb](name)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
