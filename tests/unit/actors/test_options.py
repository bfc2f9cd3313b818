from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from actors.options import GATEWAY_HOST, HOSTS_MAX, actor_options, wanted_hosts
from noetl_ray.config.settings import RuntimeSettings, Settings
from noetl_ray.errors import ConfigError


def settings(**runtime):
    return Settings(runtime=RuntimeSettings(**runtime))


def test_a_laptop_has_two_hosts_with_every_role_once():
    hosts = wanted_hosts(Settings())
    assert [host.name for host in hosts] == ["hot/0", "views/0"]
    assert hosts[0].roles == ("conductor", "worker", "keeper")
    assert hosts[1].roles == ("projector", "materializer", "gateway")


def test_more_conductors_and_workers_get_hosts_of_their_own():
    hosts = wanted_hosts(settings(conductors=3, workers=2))
    assert [(host.name, host.roles, host.index) for host in hosts[2:]] == [
        ("conductor/1", ("conductor",), 1),
        ("conductor/2", ("conductor",), 2),
        ("worker/1", ("worker",), 1),
    ]


@pytest.mark.parametrize(("conductors", "workers"), [(1, 1), (4, 1), (1, 7), (5, 5)])
def test_names_are_unique_and_counts_are_met(conductors, workers):
    hosts = wanted_hosts(settings(conductors=conductors, workers=workers))
    assert len({host.actor_name for host in hosts}) == len(hosts)
    assert sum("conductor" in host.roles for host in hosts) == conductors
    assert sum("worker" in host.roles for host in hosts) == workers
    assert sorted(host.index for host in hosts if "conductor" in host.roles) == list(
        range(conductors)
    )
    assert [host.name for host in hosts if "gateway" in host.roles] == [GATEWAY_HOST]


@pytest.mark.parametrize("count", [0, -1, HOSTS_MAX + 1])
@pytest.mark.parametrize("key", ["conductors", "workers"])
def test_a_count_out_of_range_is_refused(key, count):
    with pytest.raises(ConfigError) as caught:
        wanted_hosts(settings(**{key: count}))
    assert caught.value.key == f"runtime.{key}"


def test_hosts_are_detached_and_restart_for_ever_without_retried_calls():
    spec = replace(wanted_hosts(Settings())[0], name="hot/0")
    assert actor_options(spec, namespace="elsewhere") == {
        "name": "noetl/hot/0",
        "namespace": "elsewhere",
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": 0,
        "num_cpus": 0,
    }


def test_hosts_are_confined_to_their_pool_only_where_there_is_one():
    spec = wanted_hosts(Settings())[0]
    pooled = actor_options(spec, namespace="noetl", pooled=True)
    assert pooled["label_selector"] == {"noetl.io/pool": "hosts"}
    assert "label_selector" not in actor_options(spec, namespace="noetl")


def test_the_table_can_be_read_without_ray():
    modules = "actors.options, actors.supervisor, actors.host, actors.local"
    code = f"import {modules}, sys; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
