"""From `workflow:` items to steps: what runs, when it may, where it goes (sections 4 and 10)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from noetl_ray.dsl.loops import read_loop
from noetl_ray.dsl.model import Arc, Rule, Step
from noetl_ray.dsl.shape import Shape, place
from noetl_ray.dsl.tasks import read_tasks, rule_parts

if TYPE_CHECKING:
    from noetl_ray.dsl.source import Node

Mode = Literal["exclusive", "inclusive"]

_MODES = ("exclusive", "inclusive")
_NO_MATCH = ("complete", "quiet")
_STEP_KEYS = (
    "step", "desc", "description", "input", "args", "loop", "tool", "set", "set_ctx", "set_iter",
    "next", "spec", "output", "when", "timeout", "vars", "case", "sink", "retry", "pagination",
)  # fmt: skip
_TEMPLATED = (
    "tool", "next", "set", "set_ctx", "set_iter", "input", "args", "when", "spec", "loop",
)  # fmt: skip
_ARC_KEYS = ("step", "when", "cond", "set", "set_ctx", "set_iter", "args", "desc")
_NEXT_KEYS = ("spec", "arcs", "mode", "step", "when", "cond", "set", "args", "desc")
_REFUSED = {
    "case": "use next.arcs, or spec.policy.rules of the tool",
    "sink": "add a task that saves the result",
    "retry": "use spec.policy.rules of the tool with do: retry",
    "pagination": "use arcs back to the step, or do: jump",
}


def read_step(shape: Shape, node: Node, path: str) -> Step | None:
    """One step; None, with a finding, when it cannot even be named."""
    if not node.is_map:
        shape.findings.error(node, path, "a step must be a mapping")
        return None
    shape.paths[node.line, node.column] = path
    name = _name(shape, node, path)
    shape.not_yet(node, path, ("vars",))
    shape.refuse(node, path, _REFUSED)
    shape.slips(node, path, _STEP_KEYS, "step")
    for key in _TEMPLATED:
        shape.check_templates(node.get(key), f"{path}.{key}")
    spec = shape.mapping(node.get("spec"), f"{path}.spec")
    tasks = read_tasks(shape, name or "step", node.get("tool"), f"{path}.tool")
    output = shape.data(node.get("output"), f"{path}.output")
    if output:
        tasks = tuple(task if task.output else replace(task, output=output) for task in tasks)
    arcs, mode = _next(shape, node.get("next"), f"{path}.next")
    step = Step(
        name=name or "",
        tasks=tasks,
        input=shape.arguments(node, path),
        set=shape.assignments(node, path),
        arcs=arcs,
        mode=mode,
        when=shape.condition(node.get("when"), f"{path}.when"),
        admit=_admit(shape, spec, f"{path}.spec"),
        timeout=_timeout(node, spec),
        desc=shape.text(node.get("desc") or node.get("description")),
        loop=read_loop(shape, node, path),
        at=place(node),
    )
    return step if name is not None else None


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


def _next(shape: Shape, node: Node | None, path: str) -> tuple[tuple[Arc, ...], Mode]:
    """The arcs and how they are chosen, from any of the shapes of section 10."""
    if node is None:
        return (), "exclusive"
    if node.is_list:
        names_only = bool(node.value) and not any(item.is_map for item in node.value)
        mode: Mode = "inclusive" if names_only else "exclusive"
        return _arcs(shape, node.value, path, mode), mode
    if not node.is_map:
        return _arcs(shape, [node], path, "exclusive", alone=True), "exclusive"
    if node.get("arcs") is None and node.get("step") is not None:
        return _arcs(shape, [node], path, "exclusive", alone=True), "exclusive"
    shape.slips(node, path, _NEXT_KEYS, "next")
    mode = _mode(shape, node, path)
    items = shape.items(node.get("arcs"), f"{path}.arcs")
    return _arcs(shape, items, f"{path}.arcs", mode), mode


def _mode(shape: Shape, node: Node, path: str) -> Mode:
    spec = shape.mapping(node.get("spec"), f"{path}.spec")
    holder, where = (spec, f"{path}.spec") if spec is not None else (node, path)
    quiet = holder.get("on_no_match")
    if quiet is not None and shape.text(quiet) not in _NO_MATCH:
        hint = shape.findings.near(shape.text(quiet), _NO_MATCH) or "use complete or quiet"
        message = f"unknown on_no_match '{shape.text(quiet)}'"
        shape.findings.warning(quiet, f"{where}.on_no_match", message, hint)
    found = holder.get("mode") or node.get("mode")
    if found is None or shape.text(found) == "exclusive":
        return "exclusive"
    if shape.text(found) != "inclusive":
        hint = shape.findings.near(shape.text(found), _MODES) or "use exclusive or inclusive"
        message = f"unknown mode '{shape.text(found)}'"
        shape.findings.error(found, f"{where}.mode", message, hint)
    return "inclusive"


def _arcs(
    shape: Shape, items: list[Node], path: str, mode: Mode, *, alone: bool = False
) -> tuple[Arc, ...]:
    arcs: list[Arc] = []
    closed = False
    for index, item in enumerate(items):
        where = path if alone else f"{path}[{index}]"
        arc = _arc(shape, item, where)
        if arc is None:
            continue
        if closed:
            message = f"the arc to '{arc.step}' is never taken: one before it always matches"
            shape.findings.warning(item, where, message, "put the arc without 'when' last")
        closed = closed or (mode == "exclusive" and arc.when is None)
        arcs.append(arc)
    return tuple(arcs)


def _arc(shape: Shape, item: Node, path: str) -> Arc | None:
    if not item.is_map:
        name = shape.name(item)
        if name is None:
            shape.findings.error(item, path, "an arc must name a step")
            return None
        shape.paths[item.line, item.column] = path
        return Arc(step=name, at=place(item))
    shape.slips(item, path, _ARC_KEYS, "arc")
    target = item.get("step")
    name = shape.name(target)
    if target is None or name is None:
        hint = next((h for h in (shape.findings.near(k, ("step",)) for k in item.value) if h), "")
        shape.findings.error(item, path, "the arc has no 'step'", hint)
        return None
    shape.paths[target.line, target.column] = f"{path}.step"
    key = "when" if item.get("when") is not None else "cond"
    args = shape.data(item.get("args"), f"{path}.args")
    return Arc(
        step=name,
        when=shape.condition(item.get(key), f"{path}.{key}"),
        set={**args, **shape.assignments(item, path)},
        args=args,
        at=place(target),
    )
