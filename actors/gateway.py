"""The gateway role: the HTTP API served in the event loop of whoever hosts the role.

Owns the listening socket and uvicorn's life; everything it answers comes from the app. It installs
no signal handlers: the host decides when the process ends.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from noetl_ray.errors import ConfigError, InternalError
from noetl_ray.web import GatewayDeps, create_app

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_S = 1.0
START_S_MAX = 10.0
STOP_S_MAX = 5
BACKLOG = 2048


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
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens; known once it has started."""
        host = self._deps.settings.gateway.host
        if self._port == 0:
            msg = "the gateway has not been started"
            raise InternalError(msg)
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
        if ":" in shown and not shown.startswith("["):
            shown = f"[{shown}]"
        return f"http://{shown}:{self._port}"

    async def start(self) -> None:
        """Listen, then serve.

        Raises:
            ConfigError: the address cannot be listened on, or it is open and there is no token.
        """
        app = create_app(self._deps)
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
        if server is None or serving is None:
            return
        server.should_exit = True
        await asyncio.wait({serving}, timeout=STOP_S_MAX + 2)
        if not serving.done():
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    def summary(self) -> dict[str, Any]:
        """Where it listens and how many requests it has answered."""
        server = self._server
        answered = server.server_state.total_requests if server else 0
        return {"url": self.url if self._port else None, "requests": answered}

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
