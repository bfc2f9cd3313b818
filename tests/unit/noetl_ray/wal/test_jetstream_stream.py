"""The set-up of the streams, and what counts as contradicting it."""

from __future__ import annotations

import pytest

from noetl_ray.errors import ConfigError
from noetl_ray.wal.jetstream_stream import _check, events_config, logs_config


def test_p7_the_event_stream_discards_nothing() -> None:
    config = events_config("s", "process", 120)
    assert config["discard"] == "new"
    assert (config["max_age"], config["max_bytes"], config["max_msgs"]) == (0, -1, -1)
    assert config["num_replicas"] == 1
    assert config["duplicate_window"] == 120_000_000_000
    assert events_config("s", "replicated", 120)["num_replicas"] == 3


def test_more_than_wanted_is_fine() -> None:
    wanted = events_config("s", "process", 120)
    found = {**wanted, "num_replicas": 3, "subjects": [*wanted["subjects"], "more.>"]}
    _check("s", found, wanted)


def test_every_contradiction_is_named() -> None:
    wanted = events_config("s", "replicated", 120)
    found = {**logs_config("s"), "storage": "memory"}
    with pytest.raises(ConfigError) as caught:
        _check("s", found, wanted)
    for word in ("storage", "discard", "max_bytes", "max_age", "noetl.events", "num_replicas"):
        assert word in caught.value.reason
