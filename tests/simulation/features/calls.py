"""Playbooks that call playbooks: alone, in a pipeline, or once per item of a loop."""

from __future__ import annotations

import random
from typing import Any

CHILDREN = ("child0", "child1")
"""Paths of playbooks that others call; the second may call the first."""


def add_calls(rng: random.Random, steps: list[dict[str, Any]], paths: tuple[str, ...]) -> None:
    """Make some tasks call playbooks; they fail now and then, and so do those they call."""
    for step in steps:
        mode = step.get("loop", {}).get("spec", {}).get("mode")
        if "tool" not in step or mode in ("cursor", "fanout") or rng.random() > 0.2:
            continue
        if isinstance(step["tool"], list):
            index = rng.randrange(len(step["tool"]))
            step["tool"][index] = {"name": step["tool"][index]["name"], **_call(rng, paths)}
        else:
            step["tool"] = _call(rng, paths)


def _call(rng: random.Random, paths: tuple[str, ...]) -> dict[str, Any]:
    tool: dict[str, Any] = {"kind": "playbook", "path": rng.choice(paths)}
    chance = rng.random()
    if chance < 0.3:
        tool["return_step"] = rng.choice(["s0", "s1", "end"])
    if chance < 0.15:
        tool["return_result"] = True
    if 0.3 < chance < 0.45:
        tool["wait"] = False
    if rng.random() < 0.4:
        tool["input"] = {"limit": rng.randint(1, 2), "pad": "p" * rng.choice([1, 70_000])}
    if rng.random() < 0.3:
        when = "{{ output.status == 'error' }}"
        then = rng.choice([{"do": "continue"}, {"do": "retry", "attempts": 2, "delay": 0.5}])
        tool["spec"] = {"policy": {"rules": [{"when": when, "then": then}]}}
    return tool
