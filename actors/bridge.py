"""User Python as Ray tasks: tasks that ask for resources or an environment of their own.

The other side of :class:`noetl_ray.tools.python_remote.RemotePython`, and the only place where
playbooks' work becomes Ray's. Ray never runs such a task twice by itself: only the policy and the
log say whether an attempt is made again. What waits for ever in Ray, a wish no node can meet, fails
here with what the cluster has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

import ray
from ray import exceptions

from actors.bridge_task import Order, run_request
from actors.options import HOSTS_POOL, POOL_LABEL
from noetl_ray.errors import ToolError
from noetl_ray.tools.python_process import (
    MemoryExceededError,
    ProcessEndedError,
    ReplyTooLargeError,
)
from noetl_ray.tools.python_remote import said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from noetl_ray.tools.python_remote import Wish

logger = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often a task that has not started is compared with what the cluster has."""
LOST_S = 30.0
"""How long after its time limit a task may stay silent before it counts as lost."""
ITEMS_AHEAD_MAX = 16
_TEXT_MAX = 2_000
_NODES_SAID_MAX = 5
_LINES_SAID = 4
_HIDDEN = ("node:", "object_store_memory", "accelerator_type:")


class RayPython:
    """Runs requests of user Python as Ray tasks, owned by the process it is made in."""

    def __init__(self, *, wait_s: float, memory_bytes: int = 0) -> None:
        """Make it in a process that is connected to Ray.

        Args:
            wait_s: How long a wish that no node can meet is kept up, for nodes that may come.
            memory_bytes: What a task may use that asks for no memory; 0 sets no limit.
        """
        self._wait_s = wait_s
        self._memory_bytes = memory_bytes
        wrap: Any = ray.remote
        self._remote = wrap(run_request)

    async def call(
        self,
        request: bytes,
        wish: Wish,
        *,
        name: str,
        log: Callable[[str, str], None],
        timeout_s: float | None,
    ) -> bytes:
        """Run one request as a Ray task; see the port for what it raises."""
        # Off the loop: large inputs are copied into the object store here.
        making = asyncio.ensure_future(
            asyncio.to_thread(self._submit, request, wish, name, timeout_s)
        )
        items: Any = None
        try:
            items = await asyncio.shield(making)
            await self._started(items, wish)
            async with asyncio.timeout(None if timeout_s is None else timeout_s + LOST_S):
                kind, value = await self._ended(items, log)
        except exceptions.RayError as error:
            raise failure(error) from None
        except BaseException:
            # Cancelled, lost or given up: whatever it was, nothing of it may go on.
            await asyncio.shield(asyncio.ensure_future(_kill(making)))
            raise
        return _settle(kind, value)

    def _submit(self, request: bytes, wish: Wish, name: str, timeout_s: float | None) -> Any:
        order = Order(
            timeout_s=timeout_s,
            memory_bytes=wish.memory_bytes or self._memory_bytes,
            env_names=tuple(wish.runtime_env.get("env_vars", ())),
            in_working_dir="working_dir" in wish.runtime_env,
        )
        try:
            options = task_options(wish, name, pooled=task_nodes()[1])
            return self._remote.options(**options).remote(request, order)
        except (ValueError, TypeError) as error:
            # Ray checks some of it while it takes the task.
            msg = f"Ray refuses the task: {_cut(error)}"
            raise ToolError(msg, "schema") from None

    async def _started(self, items: Any, wish: Wish) -> None:
        """Wait for the first word of the task, as long as some node could run it."""
        first = asyncio.ensure_future(_next(items))
        unmet_since: float | None = None
        try:
            while not (await asyncio.wait({first}, timeout=LOOK_S))[0]:
                nodes, _ = await asyncio.to_thread(task_nodes)
                if any(fits(wish, node) for node in nodes):
                    unmet_since = None
                    continue
                now = time.monotonic()
                unmet_since = unmet_since or now
                if now - unmet_since >= self._wait_s:
                    raise infeasible(wish, nodes, self._wait_s)
            await first
        finally:
            first.cancel()
            with contextlib.suppress(BaseException):
                await first

    async def _ended(self, items: Any, log: Callable[[str, str], None]) -> tuple[str, Any]:
        while True:
            kind, value = await _next(items)
            if kind != "lines":
                return kind, value
            for stream, line in value:
                log(stream, line)


def task_options(wish: Wish, name: str, *, pooled: bool) -> dict[str, Any]:
    """Ray's options for a wish; ``pooled`` keeps it off the nodes that are kept for hosts."""
    options: dict[str, Any] = {
        "name": f"noetl/{name}",
        "num_cpus": wish.num_cpus,
        "num_gpus": wish.num_gpus,
        "max_retries": 0,
        "num_returns": "streaming",
        "_generator_backpressure_num_objects": ITEMS_AHEAD_MAX,
    }
    if pooled:
        options["label_selector"] = {POOL_LABEL: f"!{HOSTS_POOL}"}
    if wish.memory_bytes:
        options["memory"] = wish.memory_bytes
    if wish.custom:
        options["resources"] = dict(wish.custom)
    if wish.runtime_env:
        options["runtime_env"] = dict(wish.runtime_env)
    return options


def task_nodes() -> tuple[list[dict[str, float]], bool]:
    """What every living node that runs tasks has in all, and whether others are kept for hosts."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return split_nodes(node for node in nodes if node["Alive"])


def split_nodes(nodes: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, float]], bool]:
    """Nodes as Ray lists them: what those for tasks have, and whether there are any for hosts.

    Hosts take no CPUs, so to Ray their nodes look idle; user code there would starve conductors.
    """
    totals: list[dict[str, float]] = []
    kept = False
    for node in nodes:
        if (node.get("Labels") or {}).get(POOL_LABEL) == HOSTS_POOL:
            kept = True
        else:
            totals.append(dict(node["Resources"]))
    return totals, kept


def fits(wish: Wish, node: Mapping[str, float]) -> bool:
    """Whether a node could run the task once it is idle."""
    return all(node.get(name, 0.0) >= amount for name, amount in wish.amounts().items())


def infeasible(wish: Wish, nodes: Sequence[Mapping[str, float]], waited_s: float) -> ToolError:
    """The failure of a wish that no node can meet."""
    listed = [
        said({key: value for key, value in node.items() if not key.startswith(_HIDDEN)})
        or "nothing"
        for node in nodes[:_NODES_SAID_MAX]
    ]
    more = f" and {len(nodes) - len(listed)} more" if len(nodes) > len(listed) else ""
    msg = (
        f"no node of the Ray cluster can give the task {wish}; waited {waited_s:g} s; "
        f"the nodes have: {'; '.join(listed) or 'nothing'}{more}"
    )
    details = {"code": "infeasible", "wanted": wish.amounts(), "waited_s": waited_s}
    return ToolError(msg, "unknown", False, details)


def failure(error: exceptions.RayError) -> ToolError:
    """Ray's errors as ours. A lost process may be tried again, a bad environment may not."""
    details = {"exception_type": type(error).__name__}
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        # A long trace of Ray's own; what went wrong stands at its end.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        msg = f"the runtime_env of the task cannot be made: {_cut(' '.join(lines[-_LINES_SAID:]))}"
        return ToolError(msg, "unknown", False, {**details, "code": "runtime_env"})
    if isinstance(error, exceptions.OutOfMemoryError):
        msg = f"Ray ended the task because its node was out of memory: {_cut(error)}"
        return ToolError(msg, "unknown", True, {**details, "code": "out_of_memory"})
    if isinstance(error, exceptions.RayTaskError):
        msg = f"the Ray task of the code failed: {_cut(error)}"
        return ToolError(msg, "unknown", False, details)
    msg = f"the Ray task was lost while it ran: {type(error).__name__}: {_cut(error)}"
    return ToolError(msg, "connection", True, {**details, "code": "task_lost"})


def _settle(kind: str, value: Any) -> bytes:
    """The reply, or the same exception the local pool would raise."""
    match kind:
        case "reply":
            reply: bytes = value
            return reply
        case "timeout":
            raise TimeoutError
        case "ended":
            raise ProcessEndedError(*value)
        case "memory":
            raise MemoryExceededError(value)
        case "large":
            raise ReplyTooLargeError(value)
    msg = f"the Ray task of the code said {kind!r}"
    raise ToolError(msg, "unknown")


async def _next(items: Any) -> tuple[str, Any]:
    try:
        reference = await anext(items)
    except StopAsyncIteration:
        msg = "the Ray task of the code ended without a word"
        raise ToolError(msg, "connection", True, {"code": "task_lost"}) from None
    item: tuple[str, Any] = await reference
    return item


async def _kill(making: asyncio.Future[Any]) -> None:
    """End the task and its process, also when it has not begun."""
    try:
        items = await making
        await asyncio.to_thread(ray.cancel, items, force=True)
    except Exception:
        # It never was, or is gone already.
        logger.info("a Ray task could not be cancelled", exc_info=True)


def _cut(error: object) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
