"""Random playbooks whose outcome does not depend on timing.

So that a faulty run can be held against a calm one.
"""

from __future__ import annotations

import random
from typing import Any

import yaml

CHILDREN = ("child0", "child1")
"""Paths of playbooks that others call; the second may call the first."""


def random_playbook(
    rng: random.Random, *, name: str | None = None, calls: tuple[str, ...] = (), steps_max: int = 9
) -> str:
    """A playbook of 3 to 9 steps: branches, joins, a cycle, failures retried, handled or fatal.

    With ``calls`` some of its tasks run the playbooks of these paths.
    """
    count = rng.randint(min(3, steps_max), steps_max)
    names = [f"s{i}" for i in range(count)]
    steps = [_step(rng, names, index) for index in range(count)]
    if calls:
        _add_calls(rng, steps, calls)
    if rng.random() < 0.4:
        _add_cycle(rng, steps, names)
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": name or f"random{rng.randint(0, 10**9)}"},
        "workload": {"limit": rng.randint(1, 3), "label": "x"},
        "workflow": steps,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _step(rng: random.Random, names: list[str], index: int) -> dict[str, Any]:
    name = names[index]
    step: dict[str, Any] = {"step": name}
    fate = rng.random()
    if fate < 0.12:
        pass  # no tool: it only routes
    elif fate < 0.3:
        step["tool"] = {"kind": "noop", "result": {"n": rng.randint(0, 9)}}
    elif fate < 0.65:
        step["tool"] = _effect(rng)
    else:
        step["tool"] = _pipeline(rng)
    if "tool" in step and rng.random() < 0.25:
        step["loop"] = _loop(rng)
    elif "tool" in step and rng.random() < 0.15:
        step["loop"] = _cursor(rng)
    elif "tool" in step and rng.random() < 0.15:
        step |= _fanout(rng, name)
    elif "tool" in step and rng.random() < 0.4:
        step["set"] = {f"ctx.{name}_n": f"{{{{ {name}.n | default(0) }}}}"}
    later = names[index + 1 :]
    if later:
        step["next"] = _next(rng, name, later)
    return step


def _loop(rng: random.Random) -> dict[str, Any]:
    """A loop over a few items, or over many that do not fit the log."""
    size = rng.choice([0, 1, 3, 6])
    items: Any = list(range(size))
    if rng.random() < 0.2:
        items = [{"i": i, "pad": "z" * 9_000} for i in range(8)]
    elif rng.random() < 0.2:
        items = list(range(rng.choice([11, 16])))
    spec: dict[str, Any] = {"mode": rng.choice(["sequential", "parallel"])}
    if spec["mode"] == "parallel":
        spec["max_in_flight"] = rng.choice([1, 2, "{{ 1 + workload.limit }}"])
    if rng.random() < 0.4:
        spec["frame"] = _frame(rng)
    return {"in": items, "iterator": "row", "spec": spec}


def _pipeline(rng: random.Random) -> list[dict[str, Any]]:
    """Two to four tasks: effects that build on each other, a turn back, one that is harmless."""
    tasks: list[dict[str, Any]] = []
    for index in range(rng.randint(2, 4)):
        chance = rng.random()
        if chance < 0.25:
            task: dict[str, Any] = {"kind": "noop", "result": {"n": rng.randint(0, 9)}}
        else:
            task = _effect(rng)
            if chance > 0.85:
                task["side_effects"] = False
        if index and rng.random() < 0.5:
            task["set"] = {f"ctx.sum{index}": "{{ (output.n | default(0)) + (t0.n | default(0)) }}"}
        tasks.append({"name": f"t{index}", **task})
    if rng.random() < 0.4:
        again = {
            "when": "{{ iter.turns | default(0) < 2 }}",
            "then": {
                "do": "jump",
                "to": f"t{rng.randrange(len(tasks))}",
                "set": {"iter.turns": "{{ (iter.turns | default(0)) + 1 }}"},
            },
        }
        tasks.append(
            {
                "name": "turn",
                "kind": rng.choice(["noop", "http"]),
                "url": "effect",
                "value": {"n": 1},
                "result": {"n": 1},
                "spec": {"policy": {"rules": [again]}},
            }
        )
    if rng.random() < 0.3:
        tasks[0].setdefault("spec", {}).setdefault("policy", {}).setdefault("rules", []).append(
            {"when": "{{ output.status == 'error' }}", "then": {"do": "continue"}}
        )
    return tasks


def _cursor(rng: random.Random) -> dict[str, Any]:
    """A loop over rows that workers claim in frames."""
    frame = _frame(rng) | {"process": rng.choice(["row", "row", "frame"])}
    frame["row_barrier"] &= frame["process"] == "row"
    return {
        "cursor": {
            "kind": "postgres",
            "rows": rng.choice([0, 2, 7, 20]),
            "claim": "claim {{ __frame_max_rows }}",
        },
        "iterator": "row",
        "spec": {"mode": "cursor", "max_in_flight": rng.choice([1, 2, 3]), "frame": frame},
    }


def _frame(rng: random.Random) -> dict[str, Any]:
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


def _fanout(rng: random.Random, name: str) -> dict[str, Any]:
    """Partitions of a few numbers and their sum, which must not depend on timing or on the cut."""
    spec: dict[str, Any] = {"mode": "fanout", "max_in_flight": rng.choice([1, 3])}
    if rng.random() < 0.5:
        spec["partitions"] = rng.choice([1, 3, 5])
    else:
        frame = {"process": rng.choice(["row", "frame"]), "max_rows": rng.choice([1, 2])}
        spec["frame"] = _frame(rng) | frame | {"row_barrier": False}
    stream = rng.random() < 0.7
    if stream and rng.random() < 0.5:
        spec["max_outstanding"] = rng.choice([1, 2])
    one = "{{ (acc.n | default(0)) + (part if part is not mapping else part.n) | default(0) }}"
    whole = "{{ part | length }}"
    flat = spec.get("frame", {}).get("process") == "row"
    if flat:
        one = "{{ (acc.n | default(0)) + (part | length) }}"
    reduce: dict[str, Any] = {
        "stream": stream,
        "frame": {"lease_seconds": rng.choice([2, 10]), "heartbeat_seconds": 1, "max_rows": 2},
        "tool": {
            "kind": "http",
            "url": "effect",
            "value": {"n": one if stream else whole},
            "takes_ms": rng.choice([0, 20, 400]),
        },
    }
    loop = {"in": list(range(rng.choice([0, 1, 4, 9]))), "iterator": "row", "spec": spec}
    # Frames that take long are cut smaller, and then a sum over partitions is another one.
    same = "partitions" in spec or (flat and stream)
    total = {f"ctx.{name}_sum": f"{{{{ {name}.n }}}}"} if same else {}
    body = _effect(rng)
    if not same:
        body.get("spec", {}).pop("business_object", None)
    return {"loop": loop | {"reduce": reduce}, "set": total, "tool": body}


def _effect(rng: random.Random) -> dict[str, Any]:
    tool: dict[str, Any] = {
        "kind": "http",
        "url": "effect",
        "value": {"n": rng.randint(0, 9)},
        "takes_ms": rng.choice([0, 1, 20, 400, 3000]),
    }
    chance = rng.random()
    if chance < 0.2:
        tool["fail_first"] = rng.randint(1, 2)
        tool["spec"] = {
            "policy": {
                "rules": [
                    {
                        "when": "{{ output.status == 'error' }}",
                        "then": {"do": "retry", "attempts": 4, "delay": 0.5},
                    }
                ]
            }
        }
    elif chance < 0.27:
        tool["fail_first"] = 10**9
    if rng.random() < 0.1:
        tool["value"] = {"n": 1, "rows": [{"i": i, "t": "y" * 40} for i in range(60)]}
    if tool["value"]["n"] % 2:
        about = {"type": "thing", "id": "{{ output.n }}", "status": "{{ _task }}"}
        tool.setdefault("spec", {})["business_object"] = about
    return tool


def _next(rng: random.Random, name: str, later: list[str]) -> dict[str, Any]:
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


def random_children(rng: random.Random) -> list[str]:
    """Playbooks to be called; they fail now and then, and so do the tasks that call them."""
    first, second = CHILDREN
    return [
        random_playbook(rng, name=first, steps_max=3),
        random_playbook(rng, name=second, calls=(first,), steps_max=3),
    ]


def _add_calls(rng: random.Random, steps: list[dict[str, Any]], paths: tuple[str, ...]) -> None:
    """Make some tasks call playbooks: alone, in a pipeline, or once per item of a loop."""
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


def _add_cycle(rng: random.Random, steps: list[dict[str, Any]], names: list[str]) -> None:
    """Make the last step go back until a counter reaches the limit."""
    last = steps[-1]
    back = rng.choice(names[:-1])
    last["tool"] = {"kind": "noop", "result": {"n": 1}}
    last["set"] = {"ctx.turn": "{{ (ctx.turn | default(0)) + 1 }}"}
    last["next"] = {"arcs": [{"step": back, "when": "{{ ctx.turn < workload.limit }}"}]}
