"""The description of the language agrees with itself."""

from __future__ import annotations

import pytest

from noetl_ray.dsl import loops
from noetl_ray.dsl.language import (
    CONFIG,
    CONSTRUCTS,
    KINDS,
    LOOP_MODES,
    REFUSED,
    names,
    refused,
)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_keys_are_said_once(construct: str) -> None:
    assert len(set(names(construct))) == len(names(construct))


def test_every_kind_has_its_keys() -> None:
    assert set(CONFIG) == KINDS


def test_refused_keys_say_what_to_use() -> None:
    for construct, keys in CONSTRUCTS.items():
        assert all(refused(construct).values())
        assert set(refused(construct)) == {key.name for key in keys if key.type == REFUSED}
    assert set(refused("step")) == {"case", "sink", "retry", "pagination"}


def test_the_readers_mean_the_same_modes() -> None:
    assert loops.LOOP_MODES == LOOP_MODES
    assert set(LOOP_MODES) >= loops.RUNNABLE_LOOP_MODES
