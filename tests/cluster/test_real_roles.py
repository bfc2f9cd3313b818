"""The real roles in a set of their own: they come up, answer, and keep their address."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from actors import ray_head, state_file
from actors.local import down, up
from noetl_ray.config.settings import RaySettings, Settings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def real_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    settings = Settings(data_dir=str(folder), ray=RaySettings(dashboard=False, num_cpus=2))
    try:
        yield up(settings)
    finally:
        down(folder)


def host_pids(data_dir):
    record = state_file.read(Path(data_dir))
    refs = ray_head.processes(record.set_id)
    return {ref.pid for ref in refs if ref.title.startswith("ray::HostActor")}


def answers(url, wait_s):
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        try:
            return httpx.get(f"{url}/api/health", timeout=2).json()
        except httpx.HTTPError:
            time.sleep(0.1)
    pytest.fail(f"no answer at {url} in {wait_s} s")


def test_the_gateway_answers_and_knows_the_demo_database(real_set):
    assert answers(real_set.gateway_url, 10)["status"] == "ok"
    listed = httpx.get(f"{real_set.gateway_url}/api/credentials", timeout=5).json()
    assert "pg_local" in {entry["name"] for entry in listed["credentials"]}


def test_after_all_hosts_are_killed_the_gateway_has_the_same_address(real_set):
    before = host_pids(real_set.data_dir)
    assert len(before) == 2
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert answers(real_set.gateway_url, 60)["status"] == "ok"
    assert not before & host_pids(real_set.data_dir)
