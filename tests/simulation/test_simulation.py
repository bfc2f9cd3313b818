"""A few hundred seeds of the whole runtime with crashes, pauses and lost messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noetl_ray.testing.simloop import run_simulated
from tests.simulation.scenario import Order, Run, compare, run_orders, run_seed

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
    runs: list[Run] = [
        run_simulated(11, lambda loop: run_orders(loop, [Order(source=book)], rough=True))
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert runs[0].wrong == []


def test_a_seed_gives_the_same_bytes_in_another_process() -> None:
    """What a failing seed prints must run again exactly, whatever order sets have there."""
    code = (
        "import random; from noetl_ray.testing.simloop import run_simulated;"
        "from tests.simulation.scenario import orders_of, run_orders;"
        "orders, children = orders_of(random.Random(4));"
        "run = run_simulated(4, lambda loop: run_orders(loop, orders, children, rough=True));"
        "print(run.digest)"
    )
    root = Path(__file__).parents[2]
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()[-1]
        for hash_seed in ("1", "2")
    }
    assert len(told) == 1


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


def test_p13_calls_survive_crashes_and_happen_once() -> None:
    """Calls within calls and in a loop."""
    for seed in range(12):
        assert compare(seed, [Order(source=CALLS)], [MIDDLE, LEAF]) == [], seed
