"""Tools of a step: effects that count themselves, pipelines of them, and variables set after."""

from __future__ import annotations

import random
from typing import Any


def add_tool(rng: random.Random, step: dict[str, Any]) -> None:
    """One task that does nothing, one effect, or a pipeline."""
    chance = rng.random()
    if chance < 0.2:
        step["tool"] = {"kind": "noop", "result": {"n": rng.randint(0, 9)}}
    elif chance < 0.6:
        step["tool"] = effect(rng)
    else:
        step["tool"] = pipeline(rng)


def set_variable(rng: random.Random, step: dict[str, Any]) -> None:
    """Keep a number of the step's result."""
    if "tool" in step and "loop" not in step:
        name = step["step"]
        step["set"] = {f"ctx.{name}_n": f"{{{{ {name}.n | default(0) }}}}"}


def pipeline(rng: random.Random) -> list[dict[str, Any]]:
    """Two to four tasks: effects that build on each other, a turn back, one that is harmless."""
    tasks: list[dict[str, Any]] = []
    for index in range(rng.randint(2, 4)):
        chance = rng.random()
        if chance < 0.25:
            task: dict[str, Any] = {"kind": "noop", "result": {"n": rng.randint(0, 9)}}
        else:
            task = effect(rng)
            if chance > 0.85:
                task["side_effects"] = False
        if index and rng.random() < 0.5:
            task["set"] = {f"ctx.sum{index}": "{{ (output.n | default(0)) + (t0.n | default(0)) }}"}
        tasks.append({"name": f"t{index}", **task})
    if rng.random() < 0.4:
        tasks.append(_turn_back(rng, len(tasks)))
    if rng.random() < 0.3:
        tasks[0].setdefault("spec", {}).setdefault("policy", {}).setdefault("rules", []).append(
            {"when": "{{ output.status == 'error' }}", "then": {"do": "continue"}}
        )
    return tasks


def _turn_back(rng: random.Random, count: int) -> dict[str, Any]:
    again = {
        "when": "{{ iter.turns | default(0) < 2 }}",
        "then": {
            "do": "jump",
            "to": f"t{rng.randrange(count)}",
            "set": {"iter.turns": "{{ (iter.turns | default(0)) + 1 }}"},
        },
    }
    return {
        "name": "turn",
        "kind": rng.choice(["noop", "http"]),
        "url": "effect",
        "value": {"n": 1},
        "result": {"n": 1},
        "spec": {"policy": {"rules": [again]}},
    }


def effect(rng: random.Random) -> dict[str, Any]:
    """Something that happens outside: quick or slow, sound, failing at first, or failing always."""
    tool: dict[str, Any] = {
        "kind": "http",
        "url": "effect",
        "value": {"n": rng.randint(0, 9)},
        "takes_ms": rng.choice([0, 1, 20, 400, 3000]),
    }
    chance = rng.random()
    if chance < 0.2:
        tool["fail_first"] = rng.randint(1, 2)
        then = {"do": "retry", "attempts": 4, "delay": rng.choice([0.5, 0.5, 2])}
        rule = {"when": "{{ output.status == 'error' }}", "then": then}
        tool["spec"] = {"policy": {"rules": [rule]}}
    elif chance < 0.27:
        tool["fail_first"] = 10**9
    if rng.random() < 0.1:
        tool["value"] = {"n": 1, "rows": [{"i": i, "t": "y" * 40} for i in range(60)]}
    if tool["value"]["n"] % 2:
        about = {"type": "thing", "id": "{{ output.n }}", "status": "{{ _task }}"}
        tool.setdefault("spec", {})["business_object"] = about
    return tool
