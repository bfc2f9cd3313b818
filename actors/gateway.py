"""The gateway role: the HTTP API served in the event loop of whoever hosts the role.

Owns the listening socket and uvicorn's life; everything it answers comes from the app. It installs
no signal handlers: the host decides when the process ends.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn

from actors.messages import decode_ended
from noetl_ray.errors import ConfigError, InternalError
from noetl_ray.hints.port import ENDED, FRAME_BACKLOG, JOURNALS, SHARDS, TIER_COUNTS
from noetl_ray.scope import scope_of
from noetl_ray.submit import SubmitPorts
from noetl_ray.web import GatewayDeps, create_app
from noetl_ray.web.shard_board import ShardBoard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from fastapi import FastAPI

    from actors.callbacks import Callbacks
    from noetl_ray.clock import Clock
    from noetl_ray.config.settings import Settings
    from noetl_ray.credentials.port import CredentialStore
    from noetl_ray.hints.port import Hints
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.locator.keys import Placement
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.readmodel.port import Queries
    from noetl_ray.results.store import ResultStore
    from noetl_ray.wal.port import Log
    from noetl_ray.web.deps import States

STEP_S = 1.0
START_S_MAX = 10.0
STOP_S_MAX = 5
BACKLOG = 2048


class HostPorts(Protocol):
    """What a host shares with its roles, as far as a gateway needs it."""

    @property
    def log(self) -> Log:
        """The log."""
        ...

    @property
    def hints(self) -> Hints:
        """Hints."""
        ...

    @property
    def objects(self) -> ObjectStore:
        """The object store."""
        ...

    @property
    def placement(self) -> Placement:
        """What keys need beside names."""
        ...

    @property
    def results(self) -> ResultStore:
        """The result store."""
        ...

    @property
    def credentials(self) -> CredentialStore:
        """The credential store."""
        ...

    @property
    def callbacks(self) -> Callbacks:
        """Tokens of callbacks."""
        ...

    @property
    def ids(self) -> SnowflakeIds:
        """The id source of this process."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...


def submit_ports(ports: HostPorts, producer: str) -> SubmitPorts:
    """What appending requests needs, in the name of one role."""
    return SubmitPorts(
        log=ports.log,
        objects=ports.objects,
        placement=ports.placement,
        mint=ports.ids.mint,
        clock=ports.clock,
        producer=producer,
    )


def open_gateway(
    settings: Settings,
    ports: HostPorts,
    queries: Queries,
    producer: str,
    states: States | None = None,
) -> Gateway:
    """A gateway over what its host has opened; ``states`` adds variables to statuses."""
    deps = GatewayDeps(
        settings=settings,
        submit=submit_ports(ports, producer),
        queries=queries,
        results=ports.results,
        credentials=ports.credentials,
        callbacks=ports.callbacks.tokens,
        clock=ports.clock,
        hints=ports.hints,
        states=states,
        shards=ShardBoard(ports.clock),
    )
    return Gateway(deps)


class _Server(uvicorn.Server):
    """Uvicorn without its hands on the process's signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the host."""
        yield


class Gateway:
    """Serves the HTTP API."""

    name = "gateway"

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._app: FastAPI | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0
        self._stop_listening: list[Callable[[], Awaitable[None]]] = []

    @property
    def url(self) -> str | None:
        """Where it listens; None until it has started."""
        if self._port == 0:
            return None
        host = self._deps.settings.gateway.host
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{shown}]:{self._port}" if ":" in shown else f"http://{shown}:{self._port}"

    async def start(self) -> None:
        """Listen, then serve.

        Raises:
            ConfigError: the address cannot be listened on, or it is open and there is no token.
        """
        app = create_app(self._deps)
        self._app = app
        listener = self._listen()
        self._port = int(listener.getsockname()[1])
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=STOP_S_MAX,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        async with asyncio.timeout(START_S_MAX):
            while not self._server.started:
                if self._serving.done():
                    listener.close()
                    self._serving.result()
                    msg = "the HTTP server ended while it was starting"
                    raise InternalError(msg)
                await asyncio.sleep(0.01)
        hints = self._deps.hints
        if hints is not None:
            self._stop_listening = [
                await hints.listen(ENDED, self._on_ended),
                await hints.listen(TIER_COUNTS, self._on_tier_counts),
                await hints.listen(FRAME_BACKLOG, self._on_frame_backlog),
                await hints.listen(JOURNALS, self._on_journal),
                await hints.listen(SHARDS, self._on_shards),
            ]

    async def step(self) -> None:
        """Wait; a server that ended by itself ends the role."""
        if self._serving is None:
            msg = "the gateway has not been started"
            raise InternalError(msg)
        done, _ = await asyncio.wait({self._serving}, timeout=STEP_S)
        if done:
            self._serving.result()
            msg = "the HTTP server ended by itself"
            raise InternalError(msg)

    async def stop(self) -> None:
        """Finish what is being answered, then close."""
        server, serving = self._server, self._serving
        self._server, self._serving = None, None
        for stop_listening in self._stop_listening:
            await stop_listening()
        if server is None or serving is None:
            return
        server.should_exit = True
        if self._app is not None:
            # Long polls would hold the shutdown up; whoever waits asks again elsewhere.
            await self._app.state.waiters.close()
        await asyncio.wait({serving}, timeout=STOP_S_MAX + 2)
        if not serving.done():
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    def summary(self) -> dict[str, Any]:
        """Where it listens and how many requests it has answered."""
        server = self._server
        answered = server.server_state.total_requests if server else 0
        return {"url": self.url, "requests": answered}

    def _on_ended(self, _subject: str, data: bytes) -> None:
        if self._app is not None:
            told = decode_ended(data).executions
            self._app.state.waiters.nudge({(scope_of(one, two), each) for one, two, each in told})

    def _on_tier_counts(self, _subject: str, data: bytes) -> None:
        self._deps.tiers.hear(data)

    def _on_frame_backlog(self, _subject: str, data: bytes) -> None:
        self._deps.frames.hear(data)

    def _on_journal(self, _subject: str, data: bytes) -> None:
        self._deps.journals.hear(data)

    def _on_shards(self, _subject: str, data: bytes) -> None:
        if self._deps.shards is not None:
            self._deps.shards.hear(data)

    def _listen(self) -> socket.socket:
        gateway = self._deps.settings.gateway
        family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
        try:
            return socket.create_server(
                (gateway.host, gateway.port), family=family, backlog=BACKLOG
            )
        except OSError as error:
            key, value = "gateway.port", f"{gateway.host}:{gateway.port}"
            raise ConfigError(key, value, f"cannot listen: {error.strerror or error}") from None
