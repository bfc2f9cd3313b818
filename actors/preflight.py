"""What must hold before anything is started: addresses that were given answer, the port is free.

A set that waits for a server nobody runs looks like a slow start for a minute and then like a bug.
Looking first costs milliseconds and names the setting. Starts and changes nothing; a server that
goes away later is waited for by the roles.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg

from noetl_ray.errors import ConfigError, StoreUnavailableError
from noetl_ray.wal.connection import connect

if TYPE_CHECKING:
    from noetl_ray.config.settings import GatewaySettings, Settings

NATS_S = 5.0
POSTGRES_S = 10.0


def check(settings: Settings) -> None:
    """Look at everything the settings name from outside.

    Raises:
        LogUnavailableError: NATS at ``event_store.url`` does not answer.
        StoreUnavailableError: Postgres at ``projection_stores.dsn`` does not answer.
        ConfigError: ``gateway.port`` is taken, or its host is no address of this machine.
    """
    check_port(settings.gateway)
    asyncio.run(_check_servers(settings))


def check_port(gateway: GatewaySettings) -> None:
    """See that the gateway can listen where it was told to; 0 means any port and is always free.

    Raises:
        ConfigError: it cannot.
    """
    if gateway.port == 0:
        return
    family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the gateway itself does: connections that linger from a former one are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((gateway.host, gateway.port))
        except OSError as error:
            key = "gateway.port"
            reason = f"cannot listen on {gateway.host} there ({error.strerror}); set another or 0"
            raise ConfigError(key, gateway.port, reason) from None


async def _check_servers(settings: Settings) -> None:
    store = settings.event_store
    if store.url:
        connection = await connect(store.url, store.token or None, timeout_s=NATS_S)
        await connection.close()
    if settings.projection_stores.dsn:
        await _check_postgres(settings.projection_stores.dsn)


async def _check_postgres(dsn: str) -> None:
    try:
        connection = await asyncpg.connect(dsn, timeout=POSTGRES_S)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as e:
        # The address may hold a password, so only the place is shown.
        msg = (
            f"Postgres at {_place(dsn)} cannot be used ({e or type(e).__name__}); check "
            "projection_stores.dsn, that the server runs, and that it lets this machine in"
        )
        raise StoreUnavailableError(msg) from None
    await connection.close(timeout=POSTGRES_S)


def _place(dsn: str) -> str:
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2] or "its socket"
    return f"{host}{parts.path}"
