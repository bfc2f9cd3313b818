"""The reference for a parallel loop: one no-op Ray task per item, nothing durable.

Runs as a process of its own that is a driver of the cluster under test. Each question is a number
of items; the answer is how many seconds they took.
"""

from __future__ import annotations

import logging
import sys
import time

import ray

from bench._child import answer


@ray.remote
def noop(item: int) -> int:
    """One item."""
    return item


def run(items: int) -> float:
    """Submit all items, then wait for what they give, in order."""
    began = time.perf_counter()
    given = ray.get([noop.remote(item) for item in range(items)])
    seconds = time.perf_counter() - began
    if given != list(range(items)):
        msg = "Ray gave something else"
        raise RuntimeError(msg)
    return seconds


def main() -> None:
    """Join the cluster given on the command line."""
    # Ray prints to standard output when it starts; the answers go there.
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
    answer(run)
    ray.shutdown()


if __name__ == "__main__":
    main()
