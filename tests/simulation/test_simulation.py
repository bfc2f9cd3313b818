"""A few hundred seeds of the whole runtime with crashes, pauses and lost messages."""

from __future__ import annotations

import pytest

from noetl_ray.testing.simloop import run_simulated
from tests.simulation.scenario import _run, run_seed
from tests.simulation.world import CALM, ROUGH

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
    runs = [run_simulated(11, lambda loop: _run(loop, [book], ROUGH, True)) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0]["wrong"] == []


CALLS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: calls}
workflow:
  - step: one
    tool: {kind: playbook, path: middle, input: {n: 1}, return_result: true}
    next: many
  - step: many
    loop: {in: [1, 2, 3, 4], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool:
      - {name: before, kind: http, url: effect, value: {n: 2}, takes_ms: 20}
      - {name: call, kind: playbook, path: leaf, input: {n: "{{ n }}"}}
      - {name: after, kind: http, url: effect, value: {n: 4}, takes_ms: 20}
"""
MIDDLE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: middle}
workflow:
  - step: a
    tool: {kind: playbook, path: leaf}
    next: b
  - step: b
    tool: {kind: playbook, path: leaf, wait: false}
"""
LEAF = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: leaf}
workflow:
  - step: a
    tool: {kind: http, url: effect, value: {n: 1}, takes_ms: 400}
"""


def calls_went_wrong(seed: int) -> list[str]:
    """Calls within calls and in a loop, with crashes; everything that went wrong."""
    books, called = [CALLS], [MIDDLE, LEAF]
    calm = run_simulated(seed, lambda loop: _run(loop, books, CALM, False, called))
    rough = run_simulated(seed, lambda loop: _run(loop, books, ROUGH, True, called))
    wrong = [*calm["wrong"], *rough["wrong"]]
    return wrong if calm["traces"] == rough["traces"] else [*wrong, "traces differ"]


def test_p13_calls_survive_crashes_and_happen_once() -> None:
    for seed in range(12):
        assert calls_went_wrong(seed) == [], seed
