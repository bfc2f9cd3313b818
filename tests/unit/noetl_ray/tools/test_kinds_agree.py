"""What the language accepts is what workers can run, key by key."""

from __future__ import annotations

import importlib

import pytest

from noetl_ray.dsl.language import CONFIG, KINDS
from noetl_ray.tools.kinds import KNOWN_KINDS
from noetl_ray.tools.registry import default_registry

MODULES = {"nats": "nats_tool"}


def test_the_language_knows_exactly_the_kinds_workers_have():
    assert KINDS == KNOWN_KINDS
    assert set(default_registry(python_processes=1).kinds()) >= KINDS


@pytest.mark.parametrize("kind", sorted(KINDS - {"noop"}))
def test_every_key_of_the_language_is_read_by_its_tool(kind):
    module = importlib.import_module(f"noetl_ray.tools.{MODULES.get(kind, kind)}")
    # `output_select` and `pool` are accepted and mean nothing here (language page, sections 7, 13).
    inert = {"output_select", "pool", "params", "poll_interval", "retry"}
    assert set(CONFIG[kind]) - module.CONFIG_KEYS - inert == set()
