"""A whole node is lost: its raylet is killed, and with it every process Ray ran there.

The set has a second node beside its own, joined as any machine would join, on which one worker
lives. Whatever it held is taken over, its host comes back where Ray still has a node, and an effect
happens once per key.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import state_file
from actors.ray_head import HOST, MARK_NAME, client_environment, import_path, processes
from noetl_ray.embedded.ports import free_port
from tests.chaos.conftest import Arena, payment_key
from tests.chaos.test_kill_each_role import check_exactly_once, released
from tests.support.patient import check_execution, ended, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

WORKER = "noetl/worker/1"
WAIT_S = 6.0
"""How long a payment waits before it counts; all must wait when the node is lost."""
NODE = """
import sys
from ray._private.node import Node
from ray._private.parameter import RayParams

address, host, agent = sys.argv[1:]
Node(
    RayParams(
        gcs_address=address,
        node_ip_address=host,
        num_cpus=1,
        object_store_memory=100 << 20,
        dashboard_agent_listen_port=int(agent),
        include_log_monitor=False,
    ),
    head=False,
    shutdown_at_exit=False,
    spawn_reaper=False,
)
"""
"""As ``ray.cluster_utils`` adds a node: ``ray start`` would not have two of them on loopback."""
NODE_START_S = 45.0
MOVES = 12
"""Ray puts an actor without CPUs of its own on any node, so it is moved until it lies right."""


def parent_of(pid: int) -> int:
    """Who started a process; 0 when it is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def raylets(arena: Arena) -> set[int]:
    """The raylets of a set: one per node."""
    found = set()
    for ref in processes(set_id(arena)):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{ref.pid}/comm").read_text().strip() == "raylet":
                found.add(ref.pid)
    return found


def set_id(arena: Arena) -> str:
    record = state_file.read(Path(arena.running.data_dir))
    assert record is not None
    return record.set_id


@pytest.fixture
def raylet(arena: Arena, tmp_path: Path) -> Iterator[int]:
    """A second node of the set's Ray cluster; the process id of its raylet."""
    before = raylets(arena)
    environment = {
        **os.environ,
        **client_environment(Path(arena.running.data_dir)),
        MARK_NAME: set_id(arena),
        "PYTHONPATH": import_path(),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    told = tmp_path / "node"
    # A file: a pipe would stay open as long as the node lives.
    with told.open("wb") as output:
        subprocess.run(
            [sys.executable, "-c", NODE, arena.running.ray_address, HOST, str(free_port())],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=NODE_START_S,
            check=False,
        )
    new = raylets(arena) - before
    assert len(new) == 1, told.read_text()
    (added,) = new
    yield added
    if added in raylets(arena):
        os.kill(added, signal.SIGKILL)


def moved_to(arena: Arena, raylet: int) -> str:
    """Bring the worker's host to a node; its incarnation there."""
    health = arena.ray.running(WORKER)
    for _ in range(MOVES):
        if parent_of(health["pid"]) == raylet:
            return str(health["incarnation"])
        os.kill(health["pid"], signal.SIGKILL)
        health = arena.ray.running(WORKER, other_than=health["incarnation"])
    return pytest.fail(f"{WORKER} never came to the second node")


def test_the_loss_of_a_node_loses_and_repeats_nothing(arena: Arena, raylet: int) -> None:
    steps = ("pay_a", "pay_b")
    incarnation = moved_to(arena, raylet)
    pid = arena.ray.running(WORKER)["pid"]
    ids = arena.submit(6, delay_s=WAIT_S)
    keys = {payment_key(each, step) for each in ids for step in steps}
    until(lambda: keys <= arena.effects()["begun"].keys(), "all payments begun", wait_s=60)
    os.kill(raylet, signal.SIGKILL)
    began = time.monotonic()
    in_time = not keys & arena.effects()["counts"].keys()
    for execution_id in ids:
        assert ended(arena.running, execution_id).status == "COMPLETED"
    print(f"runs went on to their end {time.monotonic() - began:.1f} s after the loss of a node")
    after = arena.ray.running(WORKER, other_than=incarnation)
    assert after["roles"] == ["worker"]
    assert raylets(arena) == {parent_of(after["pid"])}, "it lives on the node that is left"
    assert parent_of(pid) == 0, "what ran on the lost node is gone"
    assert in_time, "the payments were over before the node was lost"
    assert released(arena, ids, incarnation), "the lost worker held nothing"
    for execution_id in ids:
        check_exactly_once(arena, execution_id)
        check_execution(arena.running, execution_id)
