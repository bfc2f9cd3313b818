"""Loops: over few items, over many that do not fit the log, over rows claimed in frames."""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.features.tools import effect


def add_loop(rng: random.Random, step: dict[str, Any]) -> None:
    """A loop over a few items, or over many that do not fit the log."""
    if "tool" not in step:
        return
    items: Any = list(range(rng.choice([0, 1, 3, 6])))
    if rng.random() < 0.2:
        items = [{"i": i, "pad": "z" * 9_000} for i in range(8)]
    elif rng.random() < 0.2:
        items = list(range(rng.choice([11, 16])))
    spec: dict[str, Any] = {"mode": rng.choice(["sequential", "parallel"])}
    if spec["mode"] == "parallel":
        spec["max_in_flight"] = rng.choice([1, 2, "{{ 1 + workload.limit }}"])
    if rng.random() < 0.4:
        spec["frame"] = frame(rng)
    step["loop"] = {"in": items, "iterator": "row", "spec": spec}


def add_cursor(rng: random.Random, step: dict[str, Any]) -> None:
    """A loop over rows that workers claim in frames."""
    if "tool" not in step or "loop" in step:
        return
    policy = frame(rng) | {"process": rng.choice(["row", "row", "frame"])}
    policy["row_barrier"] &= policy["process"] == "row"
    if policy["process"] == "frame":
        # How rows fall into frames depends on timing, and so does how often the body speaks.
        for task in step["tool"] if isinstance(step["tool"], list) else [step["tool"]]:
            task.get("spec", {}).pop("business_object", None)
    step["loop"] = {
        "cursor": {
            "kind": "postgres",
            "rows": rng.choice([0, 2, 7, 20]),
            "claim": "claim {{ __frame_max_rows }}",
        },
        "iterator": "row",
        "spec": {"mode": "cursor", "max_in_flight": rng.choice([1, 2, 3]), "frame": policy},
    }


def add_fanout(rng: random.Random, step: dict[str, Any]) -> None:
    """Partitions of a few numbers and their sum, which must not depend on timing or on the cut."""
    if "tool" not in step or "loop" in step:
        return
    spec: dict[str, Any] = {"mode": "fanout", "max_in_flight": rng.choice([1, 3])}
    if rng.random() < 0.5:
        spec["partitions"] = rng.choice([1, 3, 5])
    else:
        cut = {"process": rng.choice(["row", "frame"]), "max_rows": rng.choice([1, 2])}
        spec["frame"] = frame(rng) | cut | {"row_barrier": False}
    stream = rng.random() < 0.7
    if stream and rng.random() < 0.5:
        spec["max_outstanding"] = rng.choice([1, 2])
    flat = spec.get("frame", {}).get("process") == "row"
    items = list(range(rng.choice([0, 1, 4, 9])))
    reduce = _reduce(rng, stream=stream, flat=flat)
    step["loop"] = {"in": items, "iterator": "row", "spec": spec, "reduce": reduce}
    step["tool"] = effect(rng)
    # Frames that take long are cut smaller, and then a sum over partitions is another one.
    if "partitions" in spec or (flat and stream):
        step["set"] = {f"ctx.{step['step']}_sum": f"{{{{ {step['step']}.n }}}}"}
    else:
        step["tool"].get("spec", {}).pop("business_object", None)


def _reduce(rng: random.Random, *, stream: bool, flat: bool) -> dict[str, Any]:
    one = "{{ (acc.n | default(0)) + (part if part is not mapping else part.n) | default(0) }}"
    if flat:
        one = "{{ (acc.n | default(0)) + (part | length) }}"
    return {
        "stream": stream,
        "frame": {"lease_seconds": rng.choice([2, 10]), "heartbeat_seconds": 1, "max_rows": 2},
        "tool": {
            "kind": "http",
            "url": "effect",
            "value": {"n": one if stream else "{{ part | length }}"},
            "takes_ms": rng.choice([0, 20, 400]),
        },
    }


def frame(rng: random.Random) -> dict[str, Any]:
    """A frame policy; attempts do not run out, so that crashes alone fail nothing."""
    return {
        "max_rows": rng.choice([1, 3, 10]),
        "row_concurrency": rng.choice([1, 2]),
        "max_seconds": rng.choice([2, 30]),
        "lease_seconds": rng.choice([2, 10]),
        "heartbeat_seconds": 1,
        "max_attempts": 500,
        "row_barrier": rng.random() < 0.4,
    }
