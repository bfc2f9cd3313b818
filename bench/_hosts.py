"""Asks the hosts of a set what they are: a process of its own that is a driver of the set's Ray.

Each question is a host's name; the answer is what that host says of itself and of its roles, or an
empty object while it does not answer.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import ray

from bench._child import answer

NAMESPACE = "noetl"
ANSWER_S = 2.0


def summary(name: str) -> dict[str, Any]:
    """What a host says."""
    try:
        host: Any = ray.get_actor(f"noetl/{name}", namespace=NAMESPACE)
        asked: Any = host.summary.options(concurrency_group="health").remote()
        told: dict[str, Any] = ray.get(asked, timeout=ANSWER_S)
    except (ValueError, ray.exceptions.RayError, TimeoutError):
        return {}
    return told


def main() -> None:
    """Join the cluster given on the command line."""
    # Ray prints to standard output when it starts; the answers go there.
    ray.init(
        address=sys.argv[1], namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
    )
    answer(summary)
    ray.shutdown()


if __name__ == "__main__":
    main()
