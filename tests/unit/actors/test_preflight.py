"""Given addresses are tried before anything starts, and the setting at fault is named."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from actors import preflight
from noetl_ray.config.settings import (
    EventStoreSettings,
    GatewaySettings,
    ProjectionSettings,
    Settings,
)
from noetl_ray.errors import ConfigError, LogUnavailableError, StoreUnavailableError


@pytest.fixture
def taken():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def closed():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_defaults_name_nothing_to_try():
    preflight.check(Settings())


def test_a_taken_port_is_named(taken):
    settings = Settings(gateway=GatewaySettings(port=taken))
    with pytest.raises(ConfigError, match=rf"gateway\.port = {taken}.*in use"):
        preflight.check(settings)


def test_a_free_port_passes(closed):
    preflight.check_port(GatewaySettings(port=closed))


def test_a_host_that_is_not_ours_is_refused(closed):
    gateway = replace(GatewaySettings(port=closed), host="192.0.2.1")
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        preflight.check_port(gateway)


def test_a_log_that_does_not_answer_is_named(closed, monkeypatch):
    monkeypatch.setattr("actors.preflight.NATS_S", 0.2)
    settings = Settings(event_store=EventStoreSettings(url=f"nats://127.0.0.1:{closed}"))
    with pytest.raises(LogUnavailableError, match=r"event_store\.url"):
        preflight.check(settings)


def test_a_database_that_does_not_answer_is_named_without_its_password(closed):
    dsn = f"postgresql://ada:sesame@127.0.0.1:{closed}/books"
    settings = Settings(projection_stores=ProjectionSettings(dsn=dsn))
    with pytest.raises(StoreUnavailableError, match=r"projection_stores\.dsn") as caught:
        preflight.check(settings)
    assert f"127.0.0.1:{closed}/books" in caught.value.message
    assert "sesame" not in caught.value.message
