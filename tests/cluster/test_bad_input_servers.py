"""A set that cannot be started says at once which setting is at fault and leaves nothing behind."""

from __future__ import annotations

import socket
import time

import pytest

from tests.support.cli import Cli, processes_naming

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def fresh(tmp_path) -> Cli:
    return Cli(data_dir=tmp_path / "data", folder=tmp_path)


@pytest.fixture
def closed() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def refused(fresh: Cli, config: str, *wanted: str) -> None:
    fresh.write("settings.yaml", config)
    began = time.monotonic()
    done = fresh("up", "--config", "settings.yaml")
    took_s = time.monotonic() - began
    assert done.code == 2, done.err
    for text in wanted:
        assert text in done.err
    assert "Traceback" not in done.err
    assert "bug" not in done.err
    # Starting a set takes longer than that: nothing was started before the check.
    assert "is up" not in done.err
    assert took_s < 60
    assert not (fresh.data_dir / "state.json").exists()
    assert processes_naming(fresh.data_dir) == []


def test_nats_out_of_reach(fresh, closed):
    url = f"nats://127.0.0.1:{closed}"
    refused(fresh, f"event_store: {{url: '{url}'}}\n", url, "event_store.url", "noetl-ray doctor")
    said = fresh("doctor", "--config", "settings.yaml", "--json")
    (nats,) = [each for each in said.values if each["name"] == "nats"]
    assert nats["state"] == "fail"
    assert "event_store.url" in nats["advice"]


def test_postgres_out_of_reach(fresh, closed):
    place = f"127.0.0.1:{closed}/books"
    dsn = f"postgresql://ada:open-sesame@{place}"
    refused(
        fresh,
        f"projection_stores: {{dsn: '{dsn}'}}\n",
        place,
        "projection_stores.dsn",
        "noetl-ray doctor",
    )
    shown = fresh("doctor", "--config", "settings.yaml", "--json")
    (postgres,) = [each for each in shown.values if each["name"] == "postgres"]
    assert postgres["state"] == "fail"
    assert "open-sesame" not in shown.out + shown.err


def test_a_taken_port(fresh):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        refused(fresh, f"gateway: {{port: {port}}}\n", f"gateway.port = {port}", "in use")


def test_a_bad_setting(fresh):
    refused(fresh, "runtime: {worker_slots: 0}\n", "runtime.worker_slots = 0", "between 1 and")


def test_run_says_the_same_as_up(fresh, closed, repository):
    fresh.write("settings.yaml", f"event_store: {{url: 'nats://127.0.0.1:{closed}'}}\n")
    hello = repository / "examples" / "hello" / "playbook.yaml"
    done = fresh("run", hello, "--config", "settings.yaml")
    assert done.code == 2
    assert "event_store.url" in done.err
    assert processes_naming(fresh.data_dir) == []


def test_a_second_up_finds_the_first(cli, shared_set):
    again = cli("up", "--json").ok().value
    assert again["started"] is False
    assert again["gateway"] == shared_set.gateway_url
    assert again["data_dir"] == shared_set.data_dir
