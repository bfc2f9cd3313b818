from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from actors import state_file
from actors.local import down, find, up
from actors.processes import exclusive, identify, is_alive
from actors.state_file import SetRecord, state_path
from noetl_ray.config.settings import EventStoreSettings, Settings
from noetl_ray.errors import ConfigError, ConflictError


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield identify(process.pid, "nats")
    process.kill()
    process.wait(10)


def record(tmp_path, *refs, **facts):
    kept = SetRecord(set_id="unit", data_dir=str(tmp_path), processes=refs, **facts)
    state_file.save(kept)
    return kept


def test_where_nothing_was_started_nothing_is_found_or_ended(tmp_path):
    assert find(tmp_path) is None
    assert not down(tmp_path)
    assert not down(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_a_running_set_is_found(tmp_path, sleeper):
    record(tmp_path, sleeper, ready=True, gateway_url="http://127.0.0.1:1", nats_token="t")
    found = find(tmp_path)
    assert found.gateway_url == "http://127.0.0.1:1"
    assert found.nats_token == "t"
    assert found.pids == {"nats": sleeper.pid}
    assert not found.started
    assert "'t'" not in repr(found)


def test_up_finds_it_too(tmp_path, sleeper):
    record(tmp_path, sleeper, ready=True)
    assert up(Settings(data_dir=str(tmp_path))) == find(tmp_path)


def test_a_set_that_never_became_ready_is_not_found_but_ended(tmp_path, sleeper):
    record(tmp_path, sleeper)
    assert find(tmp_path) is None
    assert down(tmp_path)
    assert not is_alive(sleeper)
    assert not state_path(tmp_path).exists()


def test_down_leaves_a_stranger_with_a_recorded_id_alone(tmp_path, sleeper):
    record(tmp_path, replace(sleeper, started="earlier"), ready=True)
    assert find(tmp_path) is None
    assert not down(tmp_path)
    assert is_alive(sleeper)
    assert not state_path(tmp_path).exists()


def test_an_unreadable_record_is_put_away(tmp_path):
    state_path(tmp_path).write_text("not ours")
    assert find(tmp_path) is None
    assert not down(tmp_path)
    assert not state_path(tmp_path).exists()


def test_only_one_at_a_time(tmp_path, sleeper):
    record(tmp_path, sleeper, ready=True)
    with exclusive(tmp_path / "up.lock", purpose="another"):
        with pytest.raises(ConflictError):
            up(Settings(data_dir=str(tmp_path)))
        with pytest.raises(ConflictError):
            down(tmp_path)
    assert is_alive(sleeper)


def test_replication_needs_a_cluster_of_servers(tmp_path):
    settings = Settings(
        data_dir=str(tmp_path), event_store=EventStoreSettings(durability="replicated")
    )
    with pytest.raises(ConfigError, match="replicate"):
        up(settings)
