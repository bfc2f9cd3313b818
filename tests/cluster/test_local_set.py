"""The life of a local set: up twice, found, broken, cleaned up, down without a trace."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from actors import ray_head, state_file
from actors.local import down, find, up
from actors.processes import exclusive, identify, is_alive
from noetl_ray.config.settings import (
    EventStoreSettings,
    ProjectionSettings,
    RaySettings,
    Settings,
)
from noetl_ray.errors import ConfigError, ConflictError, InternalError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

HERE = str(Path(__file__).parent)


def processes_of(data_dir):
    record = state_file.read(Path(data_dir))
    return record, [*record.processes, *ray_head.processes(record.set_id)]


def test_a_second_up_finds_the_first(local_set, cluster_settings):
    again = up(cluster_settings)
    assert not again.started
    assert local_set.started
    assert again.pids == local_set.pids
    assert set(again.pids) == {"nats", "postgres", "gcs_server", "raylet"}
    assert find(local_set.data_dir) == again


def test_the_state_file_is_private_and_complete(local_set):
    path = state_file.state_path(Path(local_set.data_dir))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    data = json.loads(path.read_text())
    assert data["ready"]
    assert data["nats_token"]
    assert all(item["started"] for item in data["processes"])
    assert stat.S_IMODE(Path(local_set.data_dir, "ray.token").stat().st_mode) == 0o600


def test_the_demo_database_is_there_and_registered_as_a_credential(local_set):
    first = Path(local_set.data_dir, "posted.jsonl").read_text().splitlines()[0]
    credential = json.loads(first)
    assert (credential["name"], credential["type"]) == ("pg_local", "postgres")

    async def ask():
        connection = await asyncpg.connect(credential["data"]["dsn"])
        try:
            return await connection.fetchval("SELECT current_database()")
        finally:
            await connection.close()

    assert asyncio.run(ask()) == "demo_noetl"


def test_ray_listens_on_loopback_only(local_set):
    record, _ = processes_of(local_set.data_dir)
    ours = {ref.pid for ref in ray_head.processes(record.set_id)}
    assert listening(ours)
    assert {address for address in listening(ours) if not is_loopback(address)} == set()


def test_rays_files_can_be_entered_by_nobody_else(local_set):
    private = ray_head.temp_dir_of(Path(local_set.data_dir)).parent
    assert private.is_dir()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_up_and_down_at_once_are_refused(local_set, cluster_settings):
    lock = Path(local_set.data_dir) / "up.lock"
    with exclusive(lock, purpose="a test"):
        with pytest.raises(ConflictError, match=str(os.getpid())):
            up(cluster_settings)
        with pytest.raises(ConflictError):
            down(local_set.data_dir)
    assert find(local_set.data_dir) is not None


def test_a_whole_life_leaves_no_process(set_dir):
    """Up beside another set; a server dies; up again replaces the ruin; down; data stay."""
    settings = Settings(data_dir=str(set_dir), ray=RaySettings(dashboard=False, num_cpus=1))
    try:
        first = up(settings, factory="stand_in:open_idle", python_path=[HERE])
        _, first_processes = processes_of(set_dir)
        os.kill(first.pids["nats"], signal.SIGKILL)
        os.kill(first.pids["raylet"], signal.SIGKILL)
        assert wait_gone(first.pids["nats"])
        assert wait_gone(first.pids["raylet"])
        assert find(set_dir) is None

        second = up(settings, factory="stand_in:open_idle", python_path=[HERE])
        assert second.started
        assert not [ref for ref in first_processes if is_alive(ref)]
        record, second_processes = processes_of(set_dir)
        assert len(second_processes) > 6
    finally:
        ended = down(set_dir)
    assert ended
    assert not [ref for ref in second_processes if is_alive(ref)]
    assert ray_head.processes(record.set_id) == []
    assert find(set_dir) is None
    assert not down(set_dir)
    assert (set_dir / "nats").is_dir()
    kept = ray_head.temp_dir_of(set_dir)
    assert kept.is_relative_to(set_dir) or not kept.parent.exists()


def test_a_failing_up_names_the_host_and_stops_everything(set_dir, monkeypatch):
    monkeypatch.setattr("actors.local.HOSTS_START_S", 10.0)
    started = []
    original = state_file.save

    def remember(record):
        started.append(record)
        original(record)

    monkeypatch.setattr("actors.state_file.save", remember)
    settings = Settings(data_dir=str(set_dir), ray=RaySettings(dashboard=False, num_cpus=1))
    with pytest.raises(InternalError, match=r"views/0: RuntimeError: the moon.*log is /") as caught:
        up(settings, factory="stand_in:open_broken", python_path=[HERE])
    assert "hot/0" not in str(caught.value)
    assert not state_file.state_path(set_dir).exists()
    assert len(started[-1].processes) == 2
    assert not [ref for ref in started[-1].processes if is_alive(ref)]
    assert ray_head.processes(started[-1].set_id) == []


def test_one_embedded_server_cannot_promise_replication(tmp_path):
    settings = Settings(data_dir=str(tmp_path))
    settings = replace(settings, event_store=replace(settings.event_store, durability="replicated"))
    with pytest.raises(ConfigError, match="replicate"):
        up(settings)
    assert not state_file.state_path(tmp_path).exists()


def test_parts_with_an_address_are_used_and_left_alone(joined, tmp_path):
    settings = Settings(
        data_dir=str(tmp_path),
        event_store=EventStoreSettings(url=joined.nats_url, token=joined.nats_token),
        projection_stores=ProjectionSettings(dsn=joined.postgres_dsn),
        ray=RaySettings(address=joined.ray_address, namespace="guest"),
    )
    guest = up(settings, factory="stand_in:open_idle", python_path=[HERE])
    try:
        assert guest.pids == {}
        assert guest.gateway_url != joined.gateway_url
        assert guest.ray_address == joined.ray_address
        assert namespaces() == {"noetl", "guest"}
    finally:
        down(tmp_path)
    assert namespaces() == {"noetl"}
    assert find(joined.data_dir) is not None


def namespaces():
    from ray.util import list_named_actors

    return {entry["namespace"] for entry in list_named_actors(all_namespaces=True)}


def wait_gone(pid):
    for _ in range(100):
        if identify(pid, "") is None:
            return True
        signal.sigtimedwait([], 0.02)
    return False


def is_loopback(address):
    return address in {"0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000"}


def listening(pids):
    """Addresses, as the kernel writes them, on which these processes listen."""
    inodes = set()
    for pid in pids:
        try:
            links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                addresses.add(fields[1].split(":")[0])
    return addresses
