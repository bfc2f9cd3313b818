from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors import ray_head
from actors.ray_head import client_environment, ensure_token, import_path, temp_dir_of, trim
from noetl_ray.config.settings import RaySettings
from noetl_ray.errors import InternalError


def command(tmp_path, **settings):
    return ray_head._command(RaySettings(**settings), tmp_path, 20_001, 20_002)


def test_the_token_is_private_and_made_once(tmp_path):
    path = ensure_token(tmp_path)
    token = path.read_text()
    assert len(token) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_token(tmp_path).read_text() == token
    environment = client_environment(tmp_path)
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(path)


def test_socket_paths_stay_within_the_systems_limit():
    short, long = Path("/home/someone/.noetl-ray"), Path("/home/someone") / ("deep/" * 12)
    assert temp_dir_of(short) == short / "ray" / "s"
    session = "/session_2026-11-18_07-42-35_178057_1234567/sockets/plasma_store"
    for data_dir in (short, long):
        assert len(str(temp_dir_of(data_dir)) + session) <= 103
    assert temp_dir_of(long) != temp_dir_of(long / "deeper")


def test_everything_is_bound_to_loopback_and_no_port_is_left_to_chance(tmp_path):
    line = command(tmp_path)
    assert "--node-ip-address=127.0.0.1" in line
    assert "--dashboard-host=127.0.0.1" in line
    assert "--port=20001" in line
    assert "--dashboard-port=20002" in line
    assert any(part.startswith("--dashboard-agent-listen-port=") for part in line)


def test_settings_reach_the_command_line(tmp_path):
    line = command(tmp_path, dashboard=False, num_cpus=3, object_store_mb=100)
    assert "--include-dashboard=false" in line
    assert "--num-cpus=3" in line
    assert "--object-store-memory=104857600" in line
    assert not any(part.startswith("--num-cpus") for part in command(tmp_path))


def test_the_head_runs_no_client_server():
    parameters = SimpleNamespace(ray_client_server_port=10_001)
    trim(parameters, head=False)
    assert parameters.ray_client_server_port == 10_001
    trim(parameters, head=True)
    assert parameters.ray_client_server_port is None


def test_workers_can_import_these_packages_and_what_is_asked_for():
    folders = import_path(["/some/where"]).split(":")
    assert Path(folders[0], "actors", "ray_head.py").is_file()
    assert folders[1] == "/some/where"


def test_only_the_logs_of_the_last_session_stay(tmp_path):
    for name in ("session_2026-01-01_a", "session_2026-01-02_b", "session_2026-01-03_c"):
        (tmp_path / name / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to(tmp_path / "session_2026-01-03_c")
    ray_head._drop_old_sessions(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "session_2026-01-03_c",
        "session_latest",
    ]


def test_the_folder_of_ray_is_entered_by_nobody_else(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir(mode=0o755)
    ray_head._make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_a_stranger_laid_out_is_refused(tmp_path, monkeypatch):
    (tmp_path / "target").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    with pytest.raises(InternalError, match="belongs to somebody else"):
        ray_head._make_private(link)
    monkeypatch.setattr(os, "geteuid", lambda: 4_242)
    with pytest.raises(InternalError, match="belongs to somebody else"):
        ray_head._make_private(tmp_path / "target")


def test_what_lies_outside_is_forgotten_and_what_lies_inside_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    long = tmp_path / ("deep/" * 12)
    outside = temp_dir_of(long)
    outside.mkdir(parents=True)
    (long / "ray").mkdir(parents=True)
    ray_head.forget(long)
    assert not outside.parent.exists()
    assert (long / "ray").is_dir()
    ray_head.forget(long)
