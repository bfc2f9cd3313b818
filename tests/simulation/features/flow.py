"""Arcs between steps: branches, joins, failures that are handled, and a way back."""

from __future__ import annotations

import random
from typing import Any


def arcs_of(rng: random.Random, name: str, later: list[str]) -> dict[str, Any]:
    """Where a step leads: to one of some later steps, or to several."""
    mode = rng.choice(["exclusive", "inclusive"])
    targets = rng.sample(later[:4], k=min(len(later[:4]), rng.randint(1, 3)))
    arcs: list[dict[str, Any]] = []
    for target in targets:
        arc: dict[str, Any] = {"step": target}
        chance = rng.random()
        if chance < 0.25:
            arc["when"] = f"{{{{ {name}.n | default(0) > {rng.randint(0, 9)} }}}}"
        elif chance < 0.4:
            arc["when"] = "{{ event.name == 'call.error' }}"
        elif chance < 0.5:
            arc["set"] = {f"ctx.via_{name}_{target}": "{{ workload.label }}"}
        arcs.append(arc)
    return {"spec": {"mode": mode}, "arcs": arcs}


def add_cycle(rng: random.Random, book: dict[str, Any]) -> None:
    """Make the last step go back until a counter reaches the limit."""
    steps = book["workflow"]
    last = steps[-1]
    back = rng.choice([step["step"] for step in steps[:-1]])
    last.pop("loop", None)
    last["tool"] = {"kind": "noop", "result": {"n": 1}}
    last["set"] = {"ctx.turn": "{{ (ctx.turn | default(0)) + 1 }}"}
    last["next"] = {"arcs": [{"step": back, "when": "{{ ctx.turn < workload.limit }}"}]}
