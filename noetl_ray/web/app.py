"""The app factory: routers, error answers, the guard, and what lives as long as the app."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from noetl_ray import __version__
from noetl_ray.errors import ConfigError
from noetl_ray.web import (
    callbacks,
    catalog,
    commands,
    credentials,
    events,
    executions,
    frames,
    lineage,
    objects,
    problems,
    replay,
    storage,
    submitting,
    system,
    upkeep,
)
from noetl_ray.web.guard import Guard, is_loopback
from noetl_ray.web.metrics import Metrics
from noetl_ray.web.waiting import Waiters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl_ray.web.deps import GatewayDeps


def create_app(deps: GatewayDeps) -> FastAPI:
    """Assemble the HTTP API over its dependencies.

    Raises:
        ConfigError: the address is open to others and there is no token.
    """
    gateway = deps.settings.gateway
    if not gateway.token and not is_loopback(gateway.host):
        key, reason = "gateway.token", f"is needed to serve on {gateway.host}"
        raise ConfigError(key, "", reason)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await app.state.waiters.close()

    app = FastAPI(
        title="noetl-ray", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.deps = deps
    app.state.metrics = Metrics()
    app.state.metrics.registry.register(deps.tiers)
    app.state.metrics.registry.register(deps.frames)
    app.state.metrics.registry.register(deps.journals)
    if deps.shards is not None:
        app.state.metrics.registry.register(deps.shards)
    app.state.waiters = Waiters(deps.queries, deps.clock)
    app.state.metrics.waiting.set_function(lambda: app.state.waiters.count)
    for module in (
        catalog,
        submitting,
        callbacks,
        executions,
        events,
        commands,
        frames,
        lineage,
        objects,
        replay,
        credentials,
        storage,
        system,
        upkeep,
    ):
        app.include_router(module.routes)
    problems.install(app)
    app.add_middleware(Guard, host=gateway.host, token=gateway.token, metrics=app.state.metrics)
    return app
