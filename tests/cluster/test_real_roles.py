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
from tests.support.cli import Cli

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def real_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    settings = Settings(data_dir=str(folder), ray=RaySettings(dashboard=False, num_cpus=2))
    try:
        yield up(settings)
    finally:
        down(folder)


STEADY = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: steady}
workflow:
  - step: each
    loop: {in: "{{ range(12) | list }}", iterator: n}
    tool:
      kind: python
      input: {n: "{{ n }}"}
      code: |
        import time
        time.sleep(0.15)
        result = n
"""


HELD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: held}
workload: {sign: ""}
workflow:
  - step: start
    tool:
      kind: python
      input: {sign: "{{ sign }}"}
      code: |
        import time
        open(sign, "a").write(f"{os.getpid()}\\n")
        time.sleep(120)
      spec: {resources: {num_cpus: 0.1}}
"""


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


@pytest.mark.parametrize("server", ["nats", "postgres"])
def test_a_server_that_is_killed_comes_back_and_work_goes_on(real_set, tmp_path, server):
    folder = Path(real_set.data_dir)
    cli = Cli(data_dir=folder, folder=tmp_path)
    path = cli.write("steady.yaml", STEADY)
    sent = cli("submit", path, "--json").ok().value
    before = state_file.read(folder)
    (old,) = [ref for ref in before.processes if ref.title == server]
    os.kill(old.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while state_file.read(folder).dead() or (old in state_file.read(folder).processes):
        assert time.monotonic() < deadline, (folder / "caretaker.log").read_text()
        time.sleep(0.05)
    after = state_file.read(folder)
    assert (after.nats_url, after.postgres_dsn) == (before.nats_url, before.postgres_dsn)
    assert after.set_id == before.set_id, "the set was made anew"
    deadline = time.monotonic() + 90
    while True:
        told = cli("status", sent["execution_id"], "--json")
        if told.code == 0 and told.value["status"] not in ("PENDING", "RUNNING"):
            break
        assert time.monotonic() < deadline, told
        time.sleep(0.3)
    assert told.value["status"] == "COMPLETED"
    result = cli("result", sent["execution_id"], "each", "--json").ok().value
    assert result["results"] == list(range(12))
    assert cli("run", path, "--json").ok().values[-1]["status"] == "COMPLETED"
    assert not up(Settings(data_dir=str(folder))).started
    family = {ref.pid for ref in ray_head.processes(after.set_id)}
    assert not {r.pid for r in after.processes if r.title in state_file.SERVERS} & family


def test_a_ray_task_ends_with_the_host_that_owns_it(real_set, tmp_path):
    cli = Cli(data_dir=Path(real_set.data_dir), folder=tmp_path)
    sign = tmp_path / "pids"
    path = cli.write("held.yaml", HELD)
    sent = cli("submit", path, "--set", f"sign={sign}", "--json").ok().value
    assert until(lambda: sign.exists() and sign.read_text().endswith("\n"), 60)
    pid = int(sign.read_text().split()[0])
    assert Path(f"/proc/{pid}").exists()
    for host in host_pids(real_set.data_dir):
        os.kill(host, signal.SIGKILL)
    assert until(lambda: not Path(f"/proc/{pid}").exists(), 30), "nobody ended the task"
    assert answers(real_set.gateway_url, 60)["status"] == "ok"
    assert until(lambda: cli("cancel", sent["execution_id"]).code == 0, 60)


def until(condition, wait_s):
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
