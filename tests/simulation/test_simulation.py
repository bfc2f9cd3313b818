"""A few hundred seeds of the whole runtime with crashes, pauses and lost messages."""

from __future__ import annotations

import pytest

from noetl_ray.testing.simloop import run_simulated
from tests.simulation.scenario import _run, run_seed
from tests.simulation.world import ROUGH

SEEDS_PER_TEST = 20
BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.timeout(120)
def test_seeds_hold_every_invariant(block: int) -> None:
    for seed in range(block * SEEDS_PER_TEST, (block + 1) * SEEDS_PER_TEST):
        wrong = run_seed(seed)
        assert not wrong, f"seed {seed}: {wrong[:5]}"


def test_the_same_seed_gives_the_same_run() -> None:
    book = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: same}
workflow:
  - step: a
    tool: {kind: http, url: effect, value: {n: 1}, takes_ms: 400}
    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}
  - step: b
    tool: {kind: http, url: effect, value: {n: 2}, takes_ms: 20}
    next: j
  - step: c
    tool: {kind: noop}
    next: j
  - step: j
    tool: {kind: noop}
"""
    runs = [
        run_simulated(11, lambda loop: _run(loop, [book], ROUGH, crashes=True)) for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert runs[0]["wrong"] == []
