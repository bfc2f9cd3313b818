"""Kills hosts of the set under test by SIGKILL, one name a question; a driver of its Ray.

The answer is the process id that was killed, or 0 when the host did not answer just then.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

import ray
from ray.exceptions import RayError

from bench._child import answer

NAMESPACE = "noetl"
HEALTH_S = 2.0


def kill(name: str) -> int:
    """End the process that hosts this name, if it says which one it is."""
    try:
        actor: Any = ray.get_actor(name, namespace=NAMESPACE)
        asked = actor.health.options(concurrency_group="health").remote()
        health = ray.get(asked, timeout=HEALTH_S)
    except (ValueError, RayError):
        return 0
    if health.get("state") != "running":
        return 0
    os.kill(int(health["pid"]), signal.SIGKILL)
    return int(health["pid"])


if __name__ == "__main__":
    ray.init(
        address=sys.argv[1], namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
    )
    answer(kill)
    ray.shutdown()
