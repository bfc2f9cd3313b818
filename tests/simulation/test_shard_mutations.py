"""The simulator notices a checkpoint that promises more than it holds (P25).

As in ``test_mutations``: the product is patched, and seeds are tried until an invariant breaks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from actors.checkpointer import Checkpointer
from noetl_ray.errors import NoetlError
from noetl_ray.shards.checkpoint import Save
from tests.simulation.scenario import run_seed

SEEDS_MAX = 20


def caught(seed: int) -> bool:
    """Whether something is found wrong under a seed, or not even the checks get through it."""
    try:
        return bool(run_seed(seed))
    except NoetlError:
        return True


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_p25_a_checkpoint_ahead_of_its_states_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by seed 0."""
    real = Checkpointer._made

    async def made(self: Checkpointer, *given: Any) -> Save:
        save = await real(self, *given)
        save.position += 2
        return save

    monkeypatch.setattr(Checkpointer, "_made", made)
    assert any(caught(seed) for seed in range(SEEDS_MAX))


def test_p25_a_checkpoint_that_forgets_what_ended_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is never said to have ended stays open for ever."""
    real = Checkpointer.touch

    def touch(self: Checkpointer, state: Any) -> None:
        if not state.terminal:
            real(self, state)

    monkeypatch.setattr(Checkpointer, "touch", touch)
    assert any(caught(seed) for seed in range(SEEDS_MAX))
