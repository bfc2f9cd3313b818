"""From `workflow:` items to steps: what runs and when it may (section 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.arcs import read_next
from noetl_ray.dsl.language import CALLBACK, PLAYBOOK, names, refused
from noetl_ray.dsl.loops import read_loop
from noetl_ray.dsl.model import Rule, Step, Task
from noetl_ray.dsl.shape import Shape, place
from noetl_ray.dsl.tasks import read_tasks, rule_parts

if TYPE_CHECKING:
    from noetl_ray.dsl.source import Node

_STEP_KEYS = names("step")
_TEMPLATED = (
    "tool", "next", "set", "set_ctx", "set_iter", "input", "args", "when", "spec", "loop",
    "vars",
)  # fmt: skip
_REFUSED = refused("step")
_FRAMED = ("cursor", "fanout")
"""Loops whose tasks always run in frames."""


def read_step(shape: Shape, node: Node, path: str) -> Step | None:
    """One step; None, with a finding, when it cannot even be named."""
    if not node.is_map:
        shape.findings.error(node, path, "a step must be a mapping")
        return None
    shape.paths[node.line, node.column] = path
    name = _name(shape, node, path)
    shape.refuse(node, path, _REFUSED)
    shape.slips(node, path, _STEP_KEYS, "step")
    for key in _TEMPLATED:
        shape.check_templates(node.get(key), f"{path}.{key}")
    spec = shape.mapping(node.get("spec"), f"{path}.spec")
    tasks = read_tasks(shape, name or "step", node.get("tool"), f"{path}.tool")
    output = shape.data(node.get("output"), f"{path}.output")
    if output:
        tasks = tuple(task if task.output else replace(task, output=output) for task in tasks)
    arcs, mode = read_next(shape, node, path)
    loop = read_loop(shape, node, path)
    if loop is not None and loop.mode in _FRAMED:
        inside = tasks if loop.reduce is None else (*tasks, *loop.reduce.tasks)
        _check_no_calls(shape, inside, loop.mode, path)
    step = Step(
        name=name or "",
        tasks=tasks,
        input=shape.arguments(node, path),
        set=shape.assignments(node, path),
        vars=shape.data(node.get("vars"), f"{path}.vars"),
        arcs=arcs,
        mode=mode,
        when=shape.condition(node.get("when"), f"{path}.when"),
        admit=_admit(shape, spec, f"{path}.spec"),
        timeout=_timeout(node, spec),
        desc=shape.text(node.get("desc") or node.get("description")),
        loop=loop,
        at=place(node),
    )
    return step if name is not None else None


def _check_no_calls(shape: Shape, tasks: tuple[Task, ...], mode: str, path: str) -> None:
    """A frame holds its worker to the end, which nobody may do while others work."""
    hint = "get the items in one step and loop over them with `in` in the next"
    for task in tasks:
        if task.kind == CALLBACK:
            message = f"the task '{task.label}' waits for an answer, which a {mode} loop cannot do"
        elif task.kind == PLAYBOOK:
            message = f"the task '{task.label}' calls a playbook, which a {mode} loop cannot do"
        else:
            continue
        shape.findings.error(task.at, f"{path}.tool", message, hint)


def _name(shape: Shape, node: Node, path: str) -> str | None:
    found = node.get("step")
    name = shape.name(found)
    if name is None:
        hint = "write step: instead of name:" if node.get("name") is not None else ""
        shape.findings.error(found or node, path, "the step has no name", hint)
    return name


def _timeout(node: Node, spec: Node | None) -> Any:
    for holder in (node, spec):
        found = holder.get("timeout") if holder is not None else None
        if found is not None:
            return found.data()
    return None


def _admit(shape: Shape, spec: Node | None, path: str) -> tuple[Rule, ...]:
    if spec is None:
        return ()
    policy = shape.mapping(spec.get("policy"), f"{path}.policy")
    admit = policy.get("admit") if policy is not None else None
    if admit is None:
        return ()
    path = f"{path}.policy.admit"
    if not admit.is_list:
        found = shape.mapping(admit, path)
        admit = found.get("rules") if found is not None else None
        path = f"{path}.rules"
    rules = []
    for index, item in enumerate(shape.items(admit, path)):
        parts = rule_parts(shape, item, f"{path}[{index}]")
        if parts is None:
            continue
        when, then, where = parts
        allow = then.get("allow")
        if allow is None or not isinstance(allow.value, bool):
            shape.findings.error(allow or then, where, "an admit rule needs 'allow: true' or false")
            continue
        rules.append(Rule(when=when, do="continue" if allow.value else "fail"))
    return tuple(rules)
