"""``cluster.yaml`` is checked as ``ray up`` would check it, without a cloud."""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from actors.options import HOSTS_POOL, POOL_LABEL, HostSpec, actor_options
from noetl_ray import __version__
from noetl_ray.cli.main import VERBS
from noetl_ray.config.environ import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
ZONE_LABEL = "noetl.io/zone"
WORKER_PORTS = range(10_002, 20_000)
"""Ray gives these to workers when nobody says otherwise."""
SYSTEM = {"chmod", "echo", "grep", "sudo", "test", "ulimit", "."}
"""Programs of a Debian image, and words of its shell."""
OURS = {"~/noetl/bin/pip", "~/noetl/bin/python", "~/noetl/bin/ray", "python3"}
"""What the setup commands themselves put there, and the interpreter they begin with."""


@pytest.fixture(scope="module")
def text():
    return (ROOT / "cluster.yaml").read_text(encoding="utf-8")


@pytest.fixture
def config(text):
    return yaml.safe_load(text)


def test_ray_accepts_it(config):
    # Private to Ray, and the only check that needs no cloud; this test alone touches it.
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(copy.deepcopy(config)))


def test_ray_would_refuse_a_misspelt_key(config):
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    config["max_wrokers"] = 1
    with pytest.raises(ValidationError):
        validate_config(prepare_config(copy.deepcopy(config)))


def test_the_head_does_no_work(config):
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"]["CPU"] == 0
    assert "--num-cpus=0" in " ".join(config["head_start_ray_commands"])


def test_every_node_type_says_its_pool_and_a_zone_of_the_provider(config):
    zones = set(config["provider"]["availability_zone"].split(","))
    for name, node_type in config["available_node_types"].items():
        labels = node_type["labels"]
        assert POOL_LABEL in labels, name
        assert labels[ZONE_LABEL] in zones, name
        assert not any(key.startswith("ray.io/") for key in labels), name
        placed = node_type["node_config"].get("Placement", {}).get("AvailabilityZone")
        assert placed in {None, labels[ZONE_LABEL]}, name


def test_hosts_find_a_pool_that_is_always_there_in_more_than_one_zone(config):
    pool = [
        node_type
        for node_type in config["available_node_types"].values()
        if node_type["labels"][POOL_LABEL] == HOSTS_POOL
    ]
    assert all(node_type["min_workers"] >= 1 for node_type in pool)
    assert len({node_type["labels"][ZONE_LABEL] for node_type in pool}) > 1
    assert not any("InstanceMarketOptions" in node_type["node_config"] for node_type in pool)


def test_the_workers_fit_under_the_limit(config):
    types = config["available_node_types"].values()
    assert sum(node_type.get("min_workers", 0) for node_type in types) <= config["max_workers"]


def test_the_wheel_is_the_one_of_this_version(text):
    assert f"noetl_ray-{__version__}-py3-none-any.whl" in text


def test_the_variables_it_speaks_of_exist(text):
    words = {word.partition("=")[0] for word in text.split() if word.startswith("NOETL_")}
    assert words
    assert words <= set(VARIABLES)


def test_nodes_share_one_token(config):
    assert "~/.ray/auth_token" in config["file_mounts"]


def commands(config):
    kinds = ("initialization_commands", "setup_commands", "head_setup_commands")
    starts = ("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    return [line for key in (*kinds, *starts) for line in config[key]]


def ray_calls(config):
    """Every call of Ray in the commands: its verb and its options."""
    calls = []
    for line in commands(config):
        for part in re.split(r"[;&|]+", line):
            words = part.split()
            if words and words[0].endswith("/ray"):
                calls.append((words[1], dict(w.partition("=")[::2] for w in words[2:])))
    return calls


def test_every_command_is_shell_and_calls_what_is_there(config):
    for line in commands(config):
        checked = subprocess.run(
            ["bash", "-n", "-c", line], capture_output=True, text=True, timeout=10, check=False
        )
        assert checked.returncode == 0, f"{line}: {checked.stderr}"
        for part in re.split(r"&&|\|\||[;|]", line):
            assert part.split()[0] in SYSTEM | OURS, part


def test_what_is_called_is_installed_by_then(config):
    setup = " ".join(config["setup_commands"])
    assert setup.index("-m venv ~/noetl") < setup.index("~/noetl/bin/pip")
    assert "python3-venv" in " ".join(config["initialization_commands"])
    assert all("~/noetl/bin" not in line for line in config["initialization_commands"])


def test_ray_knows_every_verb_and_option_it_is_called_with(config):
    from ray.scripts.scripts import cli

    calls = ray_calls(config)
    assert {verb for verb, _ in calls} == {"start", "stop"}
    for verb, options in calls:
        known = {name for option in cli.commands[verb].params for name in option.opts}
        assert set(options) <= known, verb


def test_what_the_comments_tell_people_to_type_exists(text):
    from ray.scripts.scripts import cli

    assert "generate" in {option.name for option in cli.commands["get-auth-token"].params}
    assert {"up", "exec"} <= set(cli.commands)
    verbs = re.findall(r"bin/noetl-ray (\w+)", text)
    assert verbs
    assert set(verbs) <= set(VERBS)


def test_ports_agree_and_stay_out_of_the_workers_way(config):
    head, worker = (options for verb, options in ray_calls(config) if verb == "start")
    assert "--head" in head
    assert worker["--address"] == f"$RAY_HEAD_IP:{head['--port']}"
    assert head["--object-manager-port"] == worker["--object-manager-port"]
    fixed = [int(value) for key, value in head.items() if key.endswith("port")]
    assert len(set(fixed)) == len(fixed)
    assert not any(port in WORKER_PORTS for port in fixed)


def test_the_dashboard_is_not_offered_to_the_network(config):
    (head,) = [options for _, options in ray_calls(config) if "--head" in options]
    assert head["--dashboard-host"] == "127.0.0.1"


def test_hosts_ask_for_a_label_that_nodes_have(config):
    selector = actor_options(
        HostSpec(name="hot/0", roles=("worker",), index=0), namespace="noetl", pooled=True
    )["label_selector"]
    assert selector
    nodes = [node_type["labels"] for node_type in config["available_node_types"].values()]
    assert any(selector.items() <= labels.items() for labels in nodes)


def test_the_files_it_mounts_come_from_here_or_are_explained(config, text):
    for source in config["file_mounts"].values():
        made_before = source in text.partition("cluster_name:")[0] or source.startswith("dist/")
        assert made_before or (ROOT / source).is_file(), source


def test_tasks_that_ask_for_resources_find_nodes_that_are_not_kept_for_hosts(config):
    others = [
        node_type
        for name, node_type in config["available_node_types"].items()
        if name != config["head_node_type"] and node_type["labels"][POOL_LABEL] != HOSTS_POOL
    ]
    assert sum(node_type["max_workers"] for node_type in others) > 0
