"""A playbook as something to look at: steps in reading order with short labels; and as Mermaid.

Owns what a drawing says, not how a terminal shows it. Takes time in step with the number of arcs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.graph import components

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Loop, Playbook, Step

LABEL_MAX = 60
DESC_MAX = 120
OTHERWISE = "otherwise"
_KINDS_MAX = 4
_ENTITIES = {
    "#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "|": "#124;",
    "\\": "#92;",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartArc:
    """One way out; ``label`` is empty when nothing needs to be said."""

    step: str
    label: str = ""
    back: bool = False
    """Whether it leads to a step that was drawn before, round a cycle."""
    ends: bool = False
    """Whether it leads to no step, which ends the branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartStep:
    """One step as drawn."""

    name: str
    what: str
    desc: str = ""
    loop: str = ""
    entry: bool = False
    inclusive: bool = False
    joins: tuple[str, ...] = ()
    """The steps it waits for, when there are several."""
    arcs: tuple[ChartArc, ...] = ()
    reached: bool = True


def chart(playbook: Playbook) -> tuple[ChartStep, ...]:
    """The steps from the entry on, each after those it waits for; the unreached ones last."""
    steps = playbook.steps
    targets = {
        name: tuple(dict.fromkeys(arc.step for arc in step.arcs if arc.step in steps))
        for name, step in steps.items()
    }
    home = {name: index for index, group in enumerate(components(targets)) for name in group}
    reached = _reached(playbook.entry, targets)
    before: dict[str, list[str]] = {name: [] for name in steps}
    for name in steps:
        if name in reached:
            for target in targets[name]:
                if home[name] != home[target]:
                    before[target].append(name)
    order = _order(playbook.entry, targets, before)
    order += [name for name in steps if name not in reached]
    at = {name: index for index, name in enumerate(order)}
    return tuple(
        ChartStep(
            name=name,
            what=_what(steps[name]),
            desc=short(steps[name].desc, DESC_MAX),
            loop=_loop(steps[name].loop),
            entry=name == playbook.entry,
            inclusive=steps[name].mode == "inclusive" and len(steps[name].arcs) > 1,
            joins=tuple(before[name]) if len(before[name]) > 1 else (),
            arcs=_arcs(steps[name], at, home),
            reached=name in reached,
        )
        for name in order
    )


def mermaid(steps: tuple[ChartStep, ...]) -> str:
    """The drawing as the text of a Mermaid flowchart."""
    ids = {step.name: f"s{index}" for index, step in enumerate(steps)}
    lines = ["flowchart TD"]
    for step in steps:
        says = [step.name, step.what, step.loop]
        label = "<br/>".join(_escaped(part) for part in says if part)
        opening, closing = '["', '"]'
        if step.entry:
            opening, closing = '(["', '"])'
        elif step.joins:
            opening, closing = '{{"', '"}}'
        lines.append(f"  {ids[step.name]}{opening}{label}{closing}")
    if any(arc.ends for step in steps for arc in step.arcs):
        lines.append('  done(("end"))')
    for step in steps:
        for arc in step.arcs:
            line = "-.->" if arc.back else "-->"
            label = f'|"{_escaped(arc.label)}"|' if arc.label else ""
            target = "done" if arc.ends else ids[arc.step]
            lines.append(f"  {ids[step.name]} {line}{label} {target}")
    lost = [ids[step.name] for step in steps if not step.reached]
    if lost:
        lines.append("  classDef unreached stroke-dasharray: 4 4,opacity:0.6")
        lines.append(f"  class {','.join(lost)} unreached")
    return "\n".join(lines) + "\n"


def short(value: Any, limit: int = LABEL_MAX) -> str:
    """A value or template in one line, without the braces of a template that is nothing else."""
    text = " ".join(str(value).split())
    inner = text[2:-2]
    if text.startswith("{{") and text.endswith("}}") and "{{" not in inner and "}}" not in inner:
        text = inner.strip("-+ ")
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _reached(entry: str, targets: dict[str, tuple[str, ...]]) -> set[str]:
    seen = {entry}
    stack = [entry]
    while stack:
        for target in targets[stack.pop()]:
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def _order(
    entry: str, targets: dict[str, tuple[str, ...]], before: dict[str, list[str]]
) -> list[str]:
    """Reading order: a branch is followed to where it joins, a join comes after all it joins."""
    waits = {name: len(sources) for name, sources in before.items()}
    # Of several steps that wait for none, the entry is drawn first whatever leads back to it.
    waits[entry] = 0
    counted: dict[str, set[str]] = {name: set(sources) for name, sources in before.items()}
    drawn: dict[str, None] = {}
    stack = [entry]
    while stack:
        name = stack.pop()
        if name in drawn or waits[name] > 0:
            continue
        drawn[name] = None
        for target in targets[name]:
            if name in counted[target]:
                waits[target] -= 1
        stack.extend(reversed(targets[name]))
    return list(drawn)


def _arcs(step: Step, at: dict[str, int], home: dict[str, int]) -> tuple[ChartArc, ...]:
    made = []
    several = len(step.arcs) > 1
    for index, arc in enumerate(step.arcs):
        label = "" if arc.when is None else short(arc.when)
        if arc.when is None and index and several and step.mode == "exclusive":
            label = OTHERWISE
        there = at.get(arc.step)
        back = there is not None and home[arc.step] == home[step.name] and there <= at[step.name]
        made.append(ChartArc(step=arc.step, label=label, back=back, ends=there is None))
    return tuple(made)


def _what(step: Step) -> str:
    kinds = [task.kind for task in step.tasks]
    if len(kinds) > _KINDS_MAX:
        return f"{' + '.join(kinds[: _KINDS_MAX - 1])} + {len(kinds) - _KINDS_MAX + 1} more"
    return " + ".join(kinds)


def _loop(loop: Loop | None) -> str:
    if loop is None:
        return ""
    source = "cursor" if loop.cursor is not None else short(loop.items, 40)
    text = f"for each {loop.iterator} in {source}"
    if loop.mode == "fanout":
        text = f"partitions of {source} as {loop.iterator}, then reduced"
    elif loop.mode != "sequential":
        text += f", {short(loop.max_in_flight, 20) if loop.max_in_flight else 1} at once"
    return text


def _escaped(text: str) -> str:
    # What cannot be printed, a line end above all, would break the diagram's own lines.
    plain = (letter if letter.isprintable() else " " for letter in text)
    return "".join(_ENTITIES.get(letter, letter) for letter in plain)
