"""``cluster.yaml`` is checked as ``ray up`` would check it, without a cloud."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from actors.options import HOSTS_POOL, POOL_LABEL
from noetl_ray import __version__
from noetl_ray.config.environ import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
ZONE_LABEL = "noetl.io/zone"


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
