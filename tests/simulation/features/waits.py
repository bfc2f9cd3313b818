"""Waits: for a time, for an answer somebody was asked for, for one that nobody gives."""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.features.tools import effect


def add_wait(rng: random.Random, step: dict[str, Any]) -> None:
    """Put a wait behind what a step does, and often something behind the wait."""
    mode = step.get("loop", {}).get("spec", {}).get("mode")
    if not isinstance(step.get("tool"), list) or mode in ("cursor", "fanout"):
        return
    step["tool"] += _wait(rng)
    if rng.random() < 0.6:
        step["tool"].append({"name": "then", **effect(rng)})


def _wait(rng: random.Random) -> list[dict[str, Any]]:
    fate = rng.random()
    if fate < 0.4:
        return [{"name": "w", "kind": "wait", "for": rng.choice([0.2, 2, 4])}]
    if fate < 0.8:
        ask = {"name": "ask", "kind": "http", "url": "effect", "value": {"n": rng.randint(0, 9)}}
        ask |= {"asks": "{{ callback.token }}", "answer": {"n": rng.randint(0, 9)}}
        ask |= {"takes_ms": rng.choice([0, 400, 3000])}
        return [ask, {"name": "answer", "kind": "callback", "timeout": 400}]
    anyway = {"when": "{{ output.status == 'error' }}", "then": {"do": "continue"}}
    silence = {"name": "silence", "kind": "callback", "timeout": rng.choice([0, 2, 5])}
    return [silence | {"spec": {"policy": {"rules": [anyway]}}}]
