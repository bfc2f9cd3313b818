"""``explain``: the graph of a playbook in the terminal or as Mermaid text, offline.

Draws only what can run: a playbook with errors is refused with its findings, as by ``validate``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from noetl_ray.cli.context import COMPLETED, FAILED, read_input
from noetl_ray.cli.render import problem_line
from noetl_ray.dsl.chart import OTHERWISE, ChartStep, chart, mermaid
from noetl_ray.dsl.parse import check_playbook, parse_playbook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.cli.context import Context
    from noetl_ray.dsl.chart import ChartArc
    from noetl_ray.dsl.model import Playbook

_NAMES_MAX = 28
"""Names longer than this do not push the next column further out."""


def explain(context: Context) -> int:
    """Show how the steps of a playbook hang together: 0 when it can run, 1 when it cannot."""
    source = context.args.playbook
    text = read_input(source)
    problems = [problem.to_dict() for problem in check_playbook(text)]
    bad = any(problem["severity"] == "error" for problem in problems)
    if not context.json:
        for problem in problems:
            context.say(problem_line(problem, source))
    if bad:
        if context.json:
            context.emit({"valid": False, "problems": problems})
        else:
            context.say(f"{source} cannot be drawn before its errors are mended")
        return FAILED
    playbook = parse_playbook(text, source=source)
    steps = chart(playbook)
    if context.json:
        facts = {"valid": True, "problems": problems, "path": playbook.path}
        drawn = [asdict(step) for step in steps]
        context.emit({**facts, "steps": drawn, "mermaid": mermaid(steps)})
    elif context.args.mermaid:
        context.out.print(mermaid(steps), markup=False, highlight=False, soft_wrap=True, end="")
    else:
        fits = context.out.is_terminal
        for line in drawing(playbook, steps):
            # A quoted name may hold a control sequence, which is not for the terminal to obey.
            line.plain = "".join(c if c.isprintable() else "?" for c in line.plain)
            context.out.print(line, no_wrap=fits, overflow="ellipsis", soft_wrap=not fits)
    return COMPLETED


def drawing(playbook: Playbook, steps: tuple[ChartStep, ...]) -> Iterator[Text]:
    """The lines of the drawing."""
    count = f"{len(steps)} step" if len(steps) == 1 else f"{len(steps)} steps"
    yield Text.assemble((playbook.path, "bold"), (f"  {count}", "dim"))
    if playbook.description:
        yield Text(" ".join(playbook.description.split()), style="dim")
    names = [step.name for step in steps] + [arc.step for step in steps for arc in step.arcs]
    width = min(_NAMES_MAX, max(len(name) for name in names))
    for step in steps:
        if step.reached:
            yield Text("")
            yield from _step_lines(step, width)
    lost = [step for step in steps if not step.reached]
    if lost:
        yield Text("")
        yield Text("never reached", style="yellow")
        for step in lost:
            yield Text.assemble(("○ ", "yellow"), step.name.ljust(width + 4), (step.what, "dim"))


def _step_lines(step: ChartStep, width: int) -> Iterator[Text]:
    mark = "▶" if step.entry else "◆" if step.joins else "●"
    yield Text.assemble(
        (f"{mark} ", "green" if step.entry else "cyan"),
        (step.name.ljust(width + 4), "bold"),
        (step.what or "routes only", "cyan" if step.what else "dim"),
    )
    notes = [step.desc, step.loop]
    if step.joins:
        notes.append(f"joins {', '.join(step.joins)}")
    if step.inclusive:
        notes.append("takes every arc that matches")
    rail = "│" if step.arcs else " "
    for note in notes:
        if note:
            yield Text.assemble((f"{rail} ", "dim"), " " * (width + 4), (note, "dim"))
    for arc in step.arcs:
        yield _arc_line(arc, width, last=arc is step.arcs[-1])


def _arc_line(arc: ChartArc, width: int, *, last: bool) -> Text:
    line = ("└─" if last else "├─") + ("↺ " if arc.back else "■ " if arc.ends else "▸ ")
    when = arc.label if arc.label in ("", OTHERWISE) else f"when {arc.label}"
    style = "dim" if when == OTHERWISE else "yellow"
    return Text.assemble((line, "dim"), arc.step.ljust(width), "  ", (when, style))
