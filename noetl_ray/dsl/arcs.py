"""From `next:` to arcs: its shapes, how arcs are chosen, and those that can never be taken.

Looks at one step at a time (section 10); what only the whole graph shows is in the checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from noetl_ray.dsl.coerce import truth_of
from noetl_ray.dsl.language import ARC_MODES, NO_MATCH, names
from noetl_ray.dsl.model import Arc
from noetl_ray.dsl.shape import Shape, place
from noetl_ray.errors import TemplateError

if TYPE_CHECKING:
    from noetl_ray.dsl.source import Node
    from noetl_ray.dsl.template import Templates

Mode = Literal["exclusive", "inclusive"]

END = "end"
"""An arc to this name ends its branch when no step has it."""

_ARC_KEYS = names("arc")
_NEXT_KEYS = names("next")
_ABOUT_FAILURE = frozenset({"event", "outcome", "output"})
"""What a condition reads that is meant for a step that failed."""


def read_next(shape: Shape, step: Node, path: str) -> tuple[tuple[Arc, ...], Mode]:
    """The arcs of a step and how they are chosen."""
    arcs, mode, places = _next(shape, step.get("next"), f"{path}.next")
    known = [constant(shape.templates, arc.when) for arc in arcs]
    if mode == "exclusive":
        _check_order(shape, arcs, places, known, can_fail=step.get("tool") is not None)
    else:
        _check_twice(shape, arcs, places)
    for arc, (item, where), always in zip(arcs, places, known, strict=True):
        if always is False:
            message = f"the arc to '{arc.step}' is never taken: its condition is always false"
            shape.findings.warning(item, where, message)
    return arcs, mode


def constant(templates: Templates, when: Any) -> bool | None:
    """What a condition always is, when nothing it reads could change it; True without one."""
    if when is None:
        return True
    if not isinstance(when, str):
        return truth_of(when)
    if templates.reads(when) or templates.flaw(when) is not None:
        return None
    try:
        return templates.truth(when, {})
    except TemplateError:
        # An arc whose condition cannot be rendered does not match.
        return False


_Places = list[tuple["Node", str]]


def _next(shape: Shape, node: Node | None, path: str) -> tuple[tuple[Arc, ...], Mode, _Places]:
    """The arcs, how they are chosen and where each stands, from any of the accepted shapes."""
    if node is None:
        return (), "exclusive", []
    if node.is_list:
        names_only = bool(node.value) and not any(item.is_map for item in node.value)
        mode: Mode = "inclusive" if names_only else "exclusive"
        places = [(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
    elif not node.is_map or (node.get("arcs") is None and node.get("step") is not None):
        mode, places = "exclusive", [(node, path)]
    else:
        shape.slips(node, path, _NEXT_KEYS, "next")
        mode = _mode(shape, node, path)
        items = shape.items(node.get("arcs"), f"{path}.arcs")
        places = [(item, f"{path}.arcs[{index}]") for index, item in enumerate(items)]
    read = [(_arc(shape, item, where), (item, where)) for item, where in places]
    sound = [(arc, at) for arc, at in read if arc is not None]
    return tuple(arc for arc, _ in sound), mode, [at for _, at in sound]


def _mode(shape: Shape, node: Node, path: str) -> Mode:
    spec = shape.mapping(node.get("spec"), f"{path}.spec")
    holder, where = (spec, f"{path}.spec") if spec is not None else (node, path)
    quiet = holder.get("on_no_match")
    if quiet is not None and shape.text(quiet) not in NO_MATCH:
        hint = shape.findings.near(shape.text(quiet), NO_MATCH) or "use complete or quiet"
        message = f"unknown on_no_match '{shape.text(quiet)}'"
        shape.findings.warning(quiet, f"{where}.on_no_match", message, hint)
    found = holder.get("mode") or node.get("mode")
    if found is None or shape.text(found) == "exclusive":
        return "exclusive"
    if shape.text(found) != "inclusive":
        hint = shape.findings.near(shape.text(found), ARC_MODES) or "use exclusive or inclusive"
        message = f"unknown mode '{shape.text(found)}'"
        shape.findings.error(found, f"{where}.mode", message, hint)
    return "inclusive"


def _check_order(
    shape: Shape,
    arcs: tuple[Arc, ...],
    places: _Places,
    known: list[bool | None],
    *,
    can_fail: bool,
) -> None:
    """Warn about arcs that an earlier one never lets have a turn.

    An arc without a condition takes every success, but a failure only looks at arcs that have one
    (section 11); an arc whose condition is always true takes both.
    """
    success = failure = False
    seen: set[str] = set()
    for arc, (item, where), always in zip(arcs, places, known, strict=True):
        if always is False:
            continue
        never = f"the arc to '{arc.step}' is never taken: "
        hint = "put the arc without 'when' last"
        if failure or (success and (arc.when is None or not can_fail)):
            shape.findings.warning(item, where, never + "one before it always matches", hint)
        elif success and not _about_failure(shape, arc.when):
            message = (
                f"the arc to '{arc.step}' is only taken when the step fails: "
                "one before it takes every success"
            )
            shape.findings.warning(item, where, message, hint)
        elif isinstance(arc.when, str) and arc.when.strip() in seen:
            shape.findings.warning(item, where, never + "one before it has the same condition")
        if isinstance(arc.when, str):
            seen.add(arc.when.strip())
        if always:
            success, failure = True, failure or arc.when is not None


def _check_twice(shape: Shape, arcs: tuple[Arc, ...], places: _Places) -> None:
    """Warn about a step that two arcs of an inclusive choice lead to: it starts only once."""
    seen: set[str] = set()
    for arc, (item, where) in zip(arcs, places, strict=True):
        if arc.step in seen and arc.step != END:
            message = f"an arc before this one leads to '{arc.step}' too; it starts only once"
            hint = "write one arc and join the conditions with 'or'"
            shape.findings.warning(item, where, message, hint)
        seen.add(arc.step)


def _about_failure(shape: Shape, when: Any) -> bool:
    return any(path[0] in _ABOUT_FAILURE for path in shape.templates.reads(when))


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
