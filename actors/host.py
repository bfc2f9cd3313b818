"""A host: one process that runs some roles and looks after the other hosts.

A plain class; :mod:`actors.cluster` makes a Ray actor of it. It starts by itself in its
constructor, because Ray repeats nothing else when it restarts an actor. Owns the life of the
roles in this process: when they fail the process ends, and the next one begins from the log.
Refuses to keep anything that a restart needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from actors.caretaker import Caretaker
from actors.options import DEFAULT_FACTORY, HostSpec, wanted_hosts
from actors.supervisor import HostDirectory, Supervisor
from noetl_ray.config.convert import from_dict
from noetl_ray.errors import InternalError, NoetlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl_ray.config.settings import Settings

logger = logging.getLogger(__name__)

SUPERVISE_S = 1.0
BEAT_S = 0.25
REPORT_S = 1.0
"""How long a failed host stays to tell why; also keeps a host that cannot start from spinning."""
STOP_S = 10.0
YOUNG_OBJECTS_MAX = 50_000
"""Objects made before the collector looks at the young ones.

A loaded host makes 700 in a moment, and what one commit of the read model holds is 20 000. Hardly
any are left in circles, so it finds little.
"""


class HostRuntime(Protocol):
    """The roles of one host, opened."""

    @property
    def gateway_url(self) -> str | None:
        """Address of the gateway when it runs here."""
        ...

    async def run(self, stopping: asyncio.Event) -> None:
        """Run all roles until told to stop; raises when one fails."""
        ...

    def summary(self) -> dict[str, Any]:
        """Small facts of every role."""
        ...

    async def tell_gone(self, host: str, incarnation: str) -> None:
        """Let all hosts know that a process is dead."""
        ...


class HostActor:
    """Runs the roles of one :class:`HostSpec` in this process."""

    def __init__(
        self,
        *,
        spec: HostSpec,
        settings: Mapping[str, Any],
        factory: str = DEFAULT_FACTORY,
        directory: HostDirectory | None = None,
        exit_process: Callable[[int], Any] = os._exit,
        report_s: float = REPORT_S,
    ) -> None:
        self._spec = spec
        self._settings: Settings = from_dict(dict(settings))
        self._factory = factory
        self._exit_process = exit_process
        self._report_s = report_s
        self._incarnation = uuid.uuid4().hex
        self._state = "starting"
        self._error = ""
        self._runtime: HostRuntime | None = None
        self._stopping = asyncio.Event()
        self._opened = asyncio.Event()
        self._beat = time.monotonic()
        self._supervisor = (
            Supervisor(
                directory,
                wanted_hosts(self._settings),
                own_name=spec.name,
                on_gone=self._tell_gone,
            )
            if directory is not None
            else None
        )
        _log_to_stderr()
        # Ray runs the constructor of an async actor on the actor's loop; the tasks are held here.
        loop = asyncio.get_running_loop()
        self._main = loop.create_task(self._live())
        self._tasks = [self._main, loop.create_task(self._keep_beat())]
        if self._supervisor is not None:
            self._tasks.append(loop.create_task(self._supervisor.run(SUPERVISE_S)))
            self._tasks.append(loop.create_task(Caretaker(Path(self._settings.data_dir)).run()))

    def __repr__(self) -> str:
        return f"Host({self._spec.name}: {' '.join(self._spec.roles)})"

    async def open(self) -> dict[str, Any]:
        """Wait until the roles are opened, or have failed; opening them needs no call.

        Returns:
            The same as :meth:`health`.
        """
        await self._opened.wait()
        return await self.health()

    async def health(self) -> dict[str, Any]:
        """State of this host from memory alone: no connection, no lock, callable from any loop."""
        return {
            "host": self._spec.name,
            "roles": list(self._spec.roles),
            "state": self._shown_state(),
            "error": self._error,
            "incarnation": self._incarnation,
            "pid": os.getpid(),
            "beat_age_s": round(time.monotonic() - self._beat, 3),
            "gateway_url": self._url(),
            "log": _log_path(),
            "hosts_remade": self._supervisor.created if self._supervisor else 0,
        }

    async def summary(self) -> dict[str, Any]:
        """Health, and what every role says of itself."""
        roles = self._runtime.summary() if self._runtime else {}
        return {**await self.health(), "runtime": roles}

    async def gateway_url(self) -> str | None:
        """Address of the gateway when it runs here."""
        return self._url()

    async def pid(self) -> int:
        """Process id of this host."""
        return os.getpid()

    async def prepare_down(self) -> None:
        """Stop looking after the others: hosts that end from now on stay away."""
        if self._supervisor is not None:
            await self._supervisor.stop()

    async def close(self, wait_s: float = STOP_S) -> bool:
        """End the roles in order.

        Returns:
            Whether they ended within ``wait_s``. The process stays until it is killed.
        """
        await self.prepare_down()
        self._stopping.set()
        done, _ = await asyncio.wait({self._main}, timeout=wait_s)
        return bool(done)

    async def _tell_gone(self, host: str, incarnation: str) -> None:
        if self._runtime is not None:
            with contextlib.suppress(NoetlError):
                await self._runtime.tell_gone(host, incarnation)

    def _url(self) -> str | None:
        try:
            return self._runtime.gateway_url if self._runtime else None
        except NoetlError:
            # A gateway that has not begun to listen has no address yet.
            return None

    def _shown_state(self) -> str:
        # Roles start after they are opened; only the gateway shows from outside that it has.
        if self._state == "running" and "gateway" in self._spec.roles and not self._url():
            return "starting"
        return self._state

    async def _live(self) -> None:
        try:
            runtime = await self._open_roles()
            self._runtime = runtime
            self._state = "running"
            self._opened.set()
            _spare_garbage_collection()
            logger.info("%r runs, incarnation %s", self, self._incarnation)
            await runtime.run(self._stopping)
            if not self._stopping.is_set():
                msg = f"the roles of {self._spec.name} ended unasked"
                raise InternalError(msg)
            self._state = "stopped"
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self._fail(error)

    async def _open_roles(self) -> HostRuntime:
        open_host = _load(self._factory)
        runtime: HostRuntime = await open_host(
            self._settings,
            self._spec.roles,
            host_name=self._spec.name,
            incarnation=self._incarnation,
        )
        return runtime

    async def _fail(self, error: BaseException) -> None:
        self._error = f"{type(error).__name__}: {error}"
        self._state = "failed"
        self._opened.set()
        logger.critical("%r failed; the process ends", self, exc_info=error)
        await asyncio.sleep(self._report_s)
        logging.shutdown()
        # Not sys.exit: that would only end a task of the loop, and Ray restarts only what died.
        self._exit_process(1)

    async def _keep_beat(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(BEAT_S)


def _spare_garbage_collection() -> None:
    """Leave what was imported and opened out of every collection from now on.

    Ray, Arrow and the web framework are hundreds of thousands of objects that never go away;
    walking them stops the host for a tenth of a second each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, 10, 100)


def _load(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return loaded


def _log_to_stderr() -> None:
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(
            stream=sys.stderr,
            level=logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )


def _log_path() -> str:
    # Ray points a worker's standard error at the worker's own log file.
    try:
        return str(Path("/proc/self/fd/2").readlink())
    except OSError:
        return ""
