"""The reference for executions per second: three chained no-op Ray tasks each, nothing durable.

Runs as a process of its own that is a driver of the cluster under test. Each question is a number
of executions; the answer is how many seconds they took.
"""

from __future__ import annotations

import logging
import sys
import time

import ray

from bench._child import answer

TASKS_PER_EXECUTION = 3


@ray.remote
def noop(_before: object) -> None:
    """One step."""


def run(executions: int) -> float:
    """Submit all executions, then wait for all their last tasks."""
    began = time.perf_counter()
    last = []
    for _ in range(executions):
        reference = noop.remote(None)
        for _ in range(TASKS_PER_EXECUTION - 1):
            reference = noop.remote(reference)
        last.append(reference)
    ray.get(last)
    return time.perf_counter() - began


def main() -> None:
    """Join the cluster given on the command line."""
    # Ray prints to standard output when it starts; the answers go there.
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
    answer(run)
    ray.shutdown()


if __name__ == "__main__":
    main()
