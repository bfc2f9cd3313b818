"""What runs inside a Ray task for user Python: one child process, its lines and its reply.

The code itself runs in a process below Ray's worker, by the same rules as on a worker of ours: so a
crash of user code is told apart from a loss of Ray's worker, and when that worker is killed the
kernel takes the child's whole group along. Refuses to import ray: Ray only calls it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl_ray.config.environ import environ
from noetl_ray.tools.python import child_environment
from noetl_ray.tools.python_pool import PythonPool
from noetl_ray.tools.python_process import (
    MemoryExceededError,
    ProcessEndedError,
    ReplyTooLargeError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINES_WAITING_MAX = 10_000
_LINES_AT_ONCE = 500
_PAUSE_S = 0.1
_DEVICES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

Item = tuple[str, Any]
"""``started``, ``lines``, then one of ``reply``, ``timeout``, ``ended``, ``memory``, ``large``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How to run a request, apart from what is in it."""

    timeout_s: float | None
    memory_bytes: int
    env_names: tuple[str, ...]
    """Names the task's own environment added, which its code may see."""
    in_working_dir: bool


def run_request(request: bytes, order: Order) -> Iterator[Item]:
    """Run one request in a process of its own; say that it starts, what it prints, how it ended."""
    yield ("started", None)
    waiting: queue.Queue[Item | None] = queue.Queue(_LINES_WAITING_MAX)
    end: list[Item] = []

    def drive() -> None:
        try:
            end.append(asyncio.run(_run(request, order, waiting)))
        finally:
            waiting.put(None)

    driver = threading.Thread(target=drive, name="noetl-task", daemon=True)
    driver.start()
    over = False
    while not over:
        lines, over = _batch(waiting)
        if lines:
            yield ("lines", lines)
    driver.join()
    if not end:
        msg = "the process of the task could not be run; see the log of its Ray worker"
        raise RuntimeError(msg)
    yield end[0]


async def _run(request: bytes, order: Order, waiting: queue.Queue[Item | None]) -> Item:
    env = child_environment(environ(), *_DEVICES, *order.env_names)
    cwd = str(Path.cwd()) if order.in_working_dir else None
    pool = PythonPool(
        size=1,
        env=env,
        calls_max=1,
        memory_bytes=order.memory_bytes,
        cwd=cwd,
        guarded=True,
    )

    def log(stream: str, line: str) -> None:
        # When nobody takes the lines this stops reading, and then the code stops printing.
        waiting.put((stream, line))

    try:
        reply = await pool.call(request, log, order.timeout_s, lambda _: False)
    except TimeoutError:
        return ("timeout", None)
    except ProcessEndedError as error:
        return ("ended", (error.code, error.started))
    except MemoryExceededError as error:
        return ("memory", error.limit_bytes)
    except ReplyTooLargeError as error:
        return ("large", str(error))
    finally:
        await pool.close()
    return ("reply", bytes(reply))


def _batch(waiting: queue.Queue[Item | None]) -> tuple[list[Item], bool]:
    """The next lines, gathered for a moment, and whether they were the last."""
    lines: list[Item] = []
    while len(lines) < _LINES_AT_ONCE:
        try:
            line = waiting.get(timeout=_PAUSE_S if lines else None)
        except queue.Empty:
            break
        if line is None:
            return lines, True
        lines.append(line)
    return lines, False
