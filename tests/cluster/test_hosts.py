"""Hosts on Ray: named, detached, and back again whatever ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

HOSTS = ("noetl/hot/0", "noetl/views/0")


def health(name, wait_s=30.0, other_than=None):
    """Health of a host once it runs, in another process than the given one."""
    import ray

    deadline = time.monotonic() + wait_s
    last = None
    while time.monotonic() < deadline:
        try:
            actor = ray.get_actor(name, namespace="noetl")
            call = actor.health.options(concurrency_group="health").remote()
            last = ray.get(call, timeout=2)
            if last["state"] == "running" and last["pid"] != other_than:
                return last
        except (ValueError, ray.exceptions.RayError, TimeoutError) as error:
            last = repr(error)
        time.sleep(0.05)
    pytest.fail(f"{name} does not run: {last}")


def test_hosts_are_named_in_the_namespace(joined):
    from ray.util import list_named_actors

    listed = list_named_actors(all_namespaces=True)
    assert {(entry["namespace"], entry["name"]) for entry in listed} == {
        ("noetl", name) for name in HOSTS
    }


def test_hosts_are_detached_and_say_who_they_are(joined):
    from ray._private.state import actors

    for name in HOSTS:
        health(name)
    alive = {entry["Name"]: entry for entry in actors().values() if entry["State"] == "ALIVE"}
    assert set(alive) == set(HOSTS)
    assert all(entry["IsDetached"] for entry in alive.values())
    assert health("noetl/hot/0")["roles"] == ["conductor", "worker", "keeper"]
    assert health("noetl/views/0")["roles"] == ["projector", "materializer", "gateway"]


def test_a_host_tells_where_its_log_is_and_what_its_roles_do(joined):
    import ray

    name = "noetl/hot/0"
    assert Path(health(name)["log"]).is_file()
    summary = ray.get(ray.get_actor(name, namespace="noetl").summary.remote(), timeout=5)
    assert summary["runtime"]["turns"] > 0
    assert summary["beat_age_s"] < 5


def test_a_killed_process_comes_back_as_a_new_incarnation(joined):
    before = health("noetl/views/0")
    os.kill(before["pid"], signal.SIGKILL)
    after = health("noetl/views/0", other_than=before["pid"])
    assert after["incarnation"] != before["incarnation"]


def test_a_host_removed_for_good_is_remade_by_its_peer(joined):
    import ray

    for name, peer in (HOSTS, HOSTS[::-1]):
        before = health(name)
        remade = health(peer)["hosts_remade"]
        ray.kill(ray.get_actor(name, namespace="noetl"), no_restart=True)
        after = health(name, other_than=before["pid"])
        assert after["incarnation"] != before["incarnation"]
        assert health(peer)["hosts_remade"] == remade + 1


def test_health_answers_while_the_loop_of_the_roles_is_blocked(joined):
    import ray

    name = "noetl/hot/0"
    health(name)
    actor = ray.get_actor(name, namespace="noetl")

    def block(host):
        host._main.get_loop().call_soon_threadsafe(time.sleep, 3)

    ray.get(actor.__ray_call__.remote(block), timeout=5)
    time.sleep(0.7)
    answer = ray.get(actor.health.options(concurrency_group="health").remote(), timeout=1)
    assert answer["beat_age_s"] > 0.3


def test_a_failed_role_ends_the_process_and_a_new_one_starts(joined):
    import ray

    before = health("noetl/hot/0")
    actor = ray.get_actor("noetl/hot/0", namespace="noetl")

    def break_roles(host):
        host._runtime.turns = "not a number"

    ray.get(actor.__ray_call__.remote(break_roles), timeout=5)
    after = health("noetl/hot/0", other_than=before["pid"])
    assert after["incarnation"] != before["incarnation"]
    assert "TypeError" in Path(before["log"]).read_text()


def test_the_state_api_of_the_log_is_reachable_with_its_token(joined):
    import nats

    async def ask():
        client = await nats.connect(joined.nats_url, token=joined.nats_token)
        info = await client.jetstream().account_info()
        await client.close()
        return info

    assert asyncio.run(ask()).streams >= 0
