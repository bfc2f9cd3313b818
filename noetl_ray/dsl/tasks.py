"""From `tool:` to tasks: its four shapes, `spec` hoisting and policy rules (sections 5 and 8)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.language import ACTIONS, BACKOFFS, CONFIG, PLAYBOOK, WORKBOOK, refused
from noetl_ray.dsl.model import Rule, Task
from noetl_ray.dsl.objects import read_business_object
from noetl_ray.dsl.resources import check_wish
from noetl_ray.dsl.shape import Shape, place
from noetl_ray.dsl.tool_schemas import OUTSIDE_KINDS, PLUGIN_GROUP, missing_needs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.dsl.source import Node

_BACK = ("previous", "prev")
_OWN_KEYS = frozenset(
    {"kind", "name", "input", "args", "spec", "set", "set_ctx", "set_iter", "output"}
    | {"eval", "side_effects", "desc", "description"}
)
_SPEC_KEYS = frozenset({"policy", "result", "business_object", *_OWN_KEYS})
_REFUSED = refused("task")


def read_tasks(shape: Shape, step: str, tool: Node | None, path: str) -> tuple[Task, ...]:
    """The tasks of a step, in order; labels are unique within the step."""
    if tool is None:
        return ()
    if tool.is_map:
        task = _single(shape, step, tool, path)
        tasks = [task] if task is not None else []
    elif tool.is_list:
        tasks = []
        for index, node in enumerate(tool.value):
            task = _listed(shape, index, node, f"{path}[{index}]")
            if task is not None:
                tasks.append(task)
    else:
        hint = f"write tool: {{kind: {tool.raw}, ...}}" if tool.raw in shape.known_kinds else ""
        shape.findings.error(tool, path, "'tool' must be a mapping or a list of tasks", hint)
        return ()
    _check_labels(shape, tasks, path)
    _check_jumps(shape, tasks, path)
    return tuple(tasks)


def read_rules(shape: Shape, node: Node | None, path: str) -> tuple[Rule, ...]:
    """The rules of a task policy; the four spellings of `else` all become a rule without `when`."""
    rules: list[Rule] = []
    nodes = shape.items(node, path)
    for index, item in enumerate(nodes):
        where = f"{path}[{index}]"
        parts = rule_parts(shape, item, where)
        if parts is None:
            continue
        when, then, then_path = parts
        if when is None and index < len(nodes) - 1:
            after = nodes[index + 1]
            message = "this rule is never looked at: the one before it always matches"
            shape.findings.warning(after, f"{path}[{index + 1}]", message)
        rule = _action(shape, when, then, then_path)
        if rule is not None:
            rules.append(rule)
    return tuple(rules)


def rule_parts(shape: Shape, item: Node, path: str) -> tuple[Any, Node, str] | None:
    """A rule as its condition and its action; None, with a finding, when it has no action."""
    if not item.is_map:
        shape.findings.error(item, path, "a rule must be a mapping with 'when' and 'then'")
        return None
    holder, where = item, path
    if "else" in item.value:
        branch = item.get("else")
        if branch is not None and not branch.is_map:
            shape.findings.error(branch, f"{path}.else", "'else' must be a mapping")
            return None
        if branch is not None:
            holder, where = branch, f"{path}.else"
    then = holder.get("then")
    if then is not None:
        action, where = shape.mapping(then, f"{where}.then"), f"{where}.then"
        if action is None:
            return None
    elif any(holder.get(key) is not None for key in ("do", "allow", "set", "set_ctx", "set_iter")):
        action = holder
    else:
        slips = (shape.findings.near(key, ("then", "else")) for key in item.value if key != "when")
        hint = next(filter(None, slips), "")
        shape.findings.error(item, path, "the rule has no 'then'", hint)
        return None
    when = None
    if "else" not in item.value:
        key = "expr" if item.get("when") is None and item.get("expr") is not None else "when"
        when = shape.condition(item.get(key), f"{path}.{key}")
    return when, action, where


def _single(shape: Shape, step: str, node: Node, path: str) -> Task | None:
    if node.get("kind") is None and len(node.value) == 1:
        label, inner = next(iter(node.value.items()))
        if inner.is_map and inner.get("kind") is not None:
            hint = f"write tool: [{{{label}: {{kind: ...}}}}] or tool: {{kind: ...}}"
            shape.findings.error(node, path, "the tool has no 'kind'", hint)
            return None
    return _task(shape, f"{step}_task", node, path)


def _listed(shape: Shape, index: int, node: Node, path: str) -> Task | None:
    if not node.is_map:
        shape.findings.error(node, path, "a task must be a mapping with a 'kind'")
        return None
    if "kind" not in node.value and "spec" not in node.value and len(node.value) == 1:
        label, inner = next(iter(node.value.items()))
        if inner.is_map:
            return _task(shape, label, inner, f"{path}.{label}")
    return _task(shape, shape.name(node.get("name")) or f"task_{index}", node, path)


def _task(shape: Shape, label: str, node: Node, path: str) -> Task:
    kind = _kind(shape, node, path)
    task = _own(shape, label, kind, node, path)
    if kind == WORKBOOK:
        task = _of_workbook(shape, task, node, path)
    for group in missing_needs(task.kind, frozenset({**task.input, **task.config})):
        # It can be registered; what fails is the run, which a policy may even expect.
        article = "an" if task.kind[0] in "aeiou" else "a"
        first, *others = group
        hint = f"or {', '.join(others)}" if others else ""
        message = f"{article} {task.kind} task needs '{first}'"
        shape.findings.warning(node, path, message, hint)
    return task


def _own(shape: Shape, label: str, kind: str, node: Node, path: str) -> Task:
    """The task as its own keys say."""
    spec = shape.mapping(node.get("spec"), f"{path}.spec")
    # The kind playbook knows an older `retry` of its own, which never did anything.
    refusing = {k: v for k, v in _REFUSED.items() if kind != PLAYBOOK or k != "retry"}
    shape.refuse(node, path, refusing)
    common = (*_OWN_KEYS, "auth", "timeout", "timeout_seconds")
    if kind in CONFIG or kind == WORKBOOK:
        shape.slips(node, path, (*common, *CONFIG.get(kind, ())), f"{kind} task")
    if kind == "python":
        check_wish(shape, node, path)
        if spec is not None:
            check_wish(shape, spec, f"{path}.spec")
    config = {key: item.data() for key, item in node.value.items() if key not in _OWN_KEYS}
    task = Task(
        label=label,
        kind=kind,
        config=config,
        input=shape.arguments(node, path),
        set=shape.assignments(node, path),
        rules=read_rules(shape, node.get("eval"), f"{path}.eval"),
        timeout=_timeout(node),
        side_effects=_side_effects(shape, node, path),
        output=shape.data(node.get("output"), f"{path}.output"),
        at=place(node),
    )
    return task if spec is None else _with_spec(shape, task, spec, f"{path}.spec")


def _of_workbook(shape: Shape, task: Task, node: Node, path: str) -> Task:
    """The named item's tool under this task's label; what the task itself says wins."""
    name = shape.name(node.get("name"))
    if name is None:
        message = "a workbook task needs 'name', the name of a workbook item"
        shape.findings.error(node, path, message, _items_hint(shape))
        return task
    if name not in shape.workbook.items:
        hint = shape.findings.near(name, shape.workbook.items) or _items_hint(shape)
        message = f"the workbook has no item '{name}'"
        shape.findings.error(node.get("name"), f"{path}.name", message, hint)
        return task
    if name not in shape.workbook.tasks:
        shape.workbook.tasks[name] = _item(shape, name)
    base = shape.workbook.tasks[name]
    if base is None:
        return task
    config = {key: value for key, value in task.config.items() if key != "kind"}
    return replace(
        base,
        label=task.label,
        config={**base.config, **config},
        input={**base.input, **task.input},
        set={**base.set, **task.set},
        rules=task.rules or base.rules,
        timeout=base.timeout if task.timeout is None else task.timeout,
        side_effects=base.side_effects if task.side_effects is None else task.side_effects,
        output={**base.output, **task.output},
        business_object=task.business_object or base.business_object,
        at=task.at,
    )


def _item(shape: Shape, name: str) -> Task | None:
    """The tool of a workbook item, read once however many steps name it; None when it is bad."""
    item = shape.workbook.items[name]
    bare = item.node.get("tool") is None and item.node.get("kind") is not None
    tool, path = (item.node, item.path) if bare else (item.node.get("tool"), f"{item.path}.tool")
    if tool is None or not tool.is_map:
        message = f"the workbook item '{name}' needs a 'tool' that is a mapping with a 'kind'"
        shape.findings.error(tool or item.node, item.path, message)
        return None
    shape.check_templates(tool, path)
    kind = _kind(shape, tool, path)
    if kind == WORKBOOK:
        message = "a workbook item cannot stand for another workbook item"
        shape.findings.error(tool.get("kind"), f"{path}.kind", message)
        return None
    return _own(shape, name, kind, tool, path)


def _items_hint(shape: Shape) -> str:
    names = list(shape.workbook.items)
    return f"items are {', '.join(names[:10])}" if names else "add it under workbook:"


def _with_spec(shape: Shape, task: Task, spec: Node, path: str) -> Task:
    """Take over what stands under `spec`: the policy, and config; the task's own keys win."""
    policy = shape.mapping(spec.get("policy"), f"{path}.policy")
    rules = read_rules(shape, spec.get("eval"), f"{path}.eval") or task.rules
    if policy is not None:
        shape.slips(policy, f"{path}.policy", ("rules",), "policy")
        rules = read_rules(shape, policy.get("rules"), f"{path}.policy.rules") or rules
    hoisted = {key: item.data() for key, item in spec.value.items() if key not in _SPEC_KEYS}
    side_effects = task.side_effects
    if side_effects is None:
        side_effects = _side_effects(shape, spec, path)
    output = {
        **shape.data(spec.get("result"), f"{path}.result"),
        **shape.data(spec.get("output"), f"{path}.output"),
    }
    return replace(
        task,
        config={**hoisted, **task.config},
        input={**shape.arguments(spec, path), **task.input},
        set={**shape.assignments(spec, path), **task.set},
        rules=rules,
        timeout=_timeout(spec) if task.timeout is None else task.timeout,
        side_effects=side_effects,
        output={**output, **task.output},
        business_object=read_business_object(
            shape, spec.get("business_object"), f"{path}.business_object"
        ),
    )


def _kind(shape: Shape, node: Node, path: str) -> str:
    """The kind; empty, with a finding, when it cannot run. The rest of the task is still read."""
    found = node.get("kind")
    kind = shape.name(found)
    if found is None or kind is None:
        at = node if found is None else found
        shape.findings.error(at, path, "the tool has no 'kind'", _kinds_hint(shape.known_kinds))
        return ""
    if kind in shape.known_kinds or kind == WORKBOOK:
        return kind
    if kind in OUTSIDE_KINDS:
        hint = f"install a package with an entry point '{kind}' in the group '{PLUGIN_GROUP}'"
        message = f"the tool kind '{kind}' is not built in"
        shape.findings.error(found, f"{path}.kind", message, hint)
        return ""
    hint = shape.findings.near(kind, (*sorted(shape.known_kinds), WORKBOOK))
    message = f"unknown tool kind '{kind}'"
    shape.findings.error(found, f"{path}.kind", message, hint or _kinds_hint(shape.known_kinds))
    return ""


def _kinds_hint(kinds: Iterable[str]) -> str:
    return f"kinds are {', '.join(sorted(kinds))}"


def _timeout(node: Node) -> Any:
    for key in ("timeout", "timeout_seconds"):
        found = node.get(key)
        if found is not None:
            return found.data()
    return None


def _side_effects(shape: Shape, node: Node, path: str) -> bool | None:
    found = node.get("side_effects")
    if found is None or isinstance(found.value, bool):
        return found.value if found is not None else None
    shape.findings.error(found, f"{path}.side_effects", "'side_effects' must be true or false")
    return None


def _action(shape: Shape, when: Any, then: Node, path: str) -> Rule | None:
    found = then.get("do")
    action = "continue" if found is None else shape.text(found).strip()
    if action not in ACTIONS:
        hint = shape.findings.near(action, ACTIONS) or f"actions are {', '.join(ACTIONS)}"
        shape.findings.error(found or then, f"{path}.do", f"unknown action '{action}'", hint)
        return None
    to = shape.name(then.get("to"))
    if action == "jump" and to is None:
        shape.findings.error(then, path, "'jump' needs 'to', the label of a task")
    attempts = then.get("attempts")
    if attempts is not None and isinstance(attempts.value, (int, float)) and attempts.value < 1:
        shape.findings.error(attempts, f"{path}.attempts", "'attempts' must be at least 1")
    backoff = then.get("backoff")
    if backoff is not None and shape.text(backoff) not in BACKOFFS:
        hint = shape.findings.near(shape.text(backoff), BACKOFFS) or f"use {', '.join(BACKOFFS)}"
        message = f"unknown backoff '{shape.text(backoff)}' waits the plain delay"
        shape.findings.warning(backoff, f"{path}.backoff", message, hint)
    delay = then.get("delay")
    return Rule(
        when=when,
        do=action,  # type: ignore[arg-type]
        attempts=attempts.data() if attempts is not None else None,
        backoff=shape.text(backoff) or None,
        delay=delay.data() if delay is not None else None,
        to=to,
        set=shape.assignments(then, path),
    )


def _check_labels(shape: Shape, tasks: list[Task], path: str) -> None:
    seen: dict[str, Task] = {}
    for task in tasks:
        if task.label in seen:
            message = f"the task label '{task.label}' is used twice"
            hint = f"first in line {seen[task.label].at.line}"
            shape.findings.error(task.at, path, message, hint)
        seen.setdefault(task.label, task)


def _check_jumps(shape: Shape, tasks: list[Task], path: str) -> None:
    labels = [task.label for task in tasks]
    for task in tasks:
        for rule in task.rules:
            if rule.do != "jump" or rule.to is None or rule.to in (*labels, *_BACK):
                continue
            hint = shape.findings.near(rule.to, labels) or f"labels are {', '.join(labels)}"
            message = f"'jump' to '{rule.to}', which is no task of this step"
            shape.findings.error(task.at, path, message, hint)
