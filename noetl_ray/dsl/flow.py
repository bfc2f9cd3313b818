"""What only the whole graph of a playbook shows: missing targets, orphans, cycles with no exit.

Takes time in step with the number of arcs, because the text may be hostile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.dsl.arcs import END, constant
from noetl_ray.dsl.graph import StepGraph, components

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.dsl.model import Playbook, Step
    from noetl_ray.dsl.shape import Shape
    from noetl_ray.dsl.template import Templates

_SHOWN_MAX = 6


def check_graph(shape: Shape, playbook: Playbook) -> None:
    """Report what is wrong with how the steps hang together."""
    _check_targets(shape, playbook)
    reached = StepGraph(playbook).reachable(playbook.entry) | {playbook.entry}
    for step in playbook.steps.values():
        if step.name not in reached:
            message = f"the step '{step.name}' is never reached from '{playbook.entry}'"
            shape.findings.warning(step.at, _path(shape, step), message)
    for cycle in endless_cycles(playbook, shape.templates):
        if cycle[0] in reached:
            step = playbook.steps[cycle[0]]
            message = f"the cycle {_shown(cycle)} has no exit"
            hint = "give an arc of it a 'when', or put an arc that leaves before the one that stays"
            shape.findings.warning(step.at, _path(shape, step), message, hint)


def endless_cycles(playbook: Playbook, templates: Templates) -> list[list[str]]:
    """Cycles that nothing but a failure can end, each as its steps from the first in the text.

    A step goes round for ever when every arc it may take after a success leads to such a step;
    when no arc matches, its branch ends, and that is an exit.
    """
    ways = {name: _ways(step, templates) for name, step in playbook.steps.items()}
    endless = _endless(playbook, ways)
    inner = {
        name: [target for target in ways[name] if target in endless]
        for name in playbook.steps
        if name in endless
    }
    order = {name: index for index, name in enumerate(playbook.steps)}
    cycles = []
    for group in components(inner):
        first = min(group, key=order.__getitem__)
        if len(group) > 1 or first in inner[first]:
            cycles.append(_round(first, inner, frozenset(group)))
    return sorted(cycles, key=lambda cycle: order[cycle[0]])


def _check_targets(shape: Shape, playbook: Playbook) -> None:
    for step in playbook.steps.values():
        for arc in step.arcs:
            if arc.step in playbook.steps or arc.step == END:
                continue
            message = f"the arc from '{step.name}' leads to '{arc.step}', which does not exist"
            hint = shape.findings.near(arc.step, playbook.steps) or "the arc is left out"
            shape.findings.warning(arc.at, shape.paths[arc.at.line, arc.at.column], message, hint)


def _ways(step: Step, templates: Templates) -> list[str]:
    """Where a step that succeeded surely goes on; empty when it may end its branch.

    Exclusive: everything it may choose, provided that it always chooses. Inclusive: what it
    always takes, any of which keeps it going.
    """
    if step.admit:
        return []
    ways: dict[str, None] = {}
    failed: set[str] = set()
    for arc in step.arcs:
        always = constant(templates, arc.when)
        if step.mode == "inclusive":
            if always:
                ways[arc.step] = None
            continue
        if always is not False and str(arc.when).strip() not in failed:
            ways[arc.step] = None
        if always:
            return list(ways)
        failed.add(str(arc.when).strip())
    return list(ways) if step.mode == "inclusive" else []


def _endless(playbook: Playbook, ways: Mapping[str, list[str]]) -> set[str]:
    """The largest set of steps that never leave it."""
    sources: dict[str, list[str]] = {}
    for name, targets in ways.items():
        for target in targets:
            sources.setdefault(target, []).append(name)
    losses = {
        name: len(ways[name]) if step.mode == "inclusive" else min(1, len(ways[name]))
        for name, step in playbook.steps.items()
    }
    left = set(playbook.steps)
    gone = [target for target in sources if target not in left]
    gone += [name for name, count in losses.items() if count == 0]
    while gone:
        lost = gone.pop()
        left.discard(lost)
        for name in sources.get(lost, ()):
            losses[name] -= 1
            if losses[name] == 0:
                gone.append(name)
    return left


def _round(first: str, inner: Mapping[str, list[str]], group: frozenset[str]) -> list[str]:
    """A shortest way from a step of a strongly connected group back to itself."""
    came: dict[str, str] = {}
    queue = [first]
    for name in queue:
        for target in inner[name]:
            if target == first:
                way = [name]
                while way[-1] != first:
                    way.append(came[way[-1]])
                return way[::-1]
            if target in group and target not in came:
                came[target] = name
                queue.append(target)
    return [first]


def _shown(cycle: list[str]) -> str:
    names = [f"'{name}'" for name in cycle]
    if len(names) > _SHOWN_MAX:
        names = [*names[: _SHOWN_MAX - 1], "…", names[-1]]
    return " → ".join([*names, names[0]])


def _path(shape: Shape, step: Step) -> str:
    return shape.paths[step.at.line, step.at.column]
