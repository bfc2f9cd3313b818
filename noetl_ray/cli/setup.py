"""``up``, ``down``, ``validate`` and ``version``: what one does before and after running things."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from noetl_ray import __version__
from noetl_ray.cli.context import COMPLETED, FAILED, read_input
from noetl_ray.cli.render import problem_line
from noetl_ray.errors import PlaybookError

if TYPE_CHECKING:
    from noetl_ray.cli.context import Context


def up(context: Context) -> int:
    """Start the local set, or find it running."""
    from actors import local
    from actors.ray_head import token_path

    made = local.up(context.settings, progress=lambda part: context.say(f"  {part} is up"))
    facts = {
        "gateway": made.gateway_url,
        "dashboard": made.dashboard_url,
        "nats": made.nats_url,
        "ray": made.ray_address,
        "data_dir": made.data_dir,
    }
    if context.json:
        context.emit({**facts, "started": made.started})
        return COMPLETED
    context.say("up" if made.started else "was up already")
    for name, value in facts.items():
        if value:
            context.out.print(f"{name:<10} {value}", markup=False, highlight=False, soft_wrap=True)
    if made.dashboard_url and (token := token_path(context.data_dir)).exists():
        context.say(f"the dashboard asks for the token in {token}")
    context.say("stop it with: noetl-ray down")
    return COMPLETED


def down(context: Context) -> int:
    """Stop the local set."""
    from actors import local

    stopped = local.down(context.data_dir)
    if context.json:
        context.emit({"stopped": stopped, "data_dir": str(context.data_dir)})
    else:
        context.say(
            f"stopped; data stay in {context.data_dir}"
            if stopped
            else f"nothing was up in {context.data_dir}"
        )
    return COMPLETED


def validate(context: Context) -> int:
    """Check a playbook offline: 0 when it can run, 1 when it cannot; warnings do not count."""
    source = context.args.playbook
    problems = _problems(read_input(source), source)
    bad = _errors(problems)
    if context.json:
        context.emit({"valid": not bad, "problems": problems})
        return FAILED if bad else COMPLETED
    for problem in problems:
        line = problem_line(problem, source)
        context.out.print(line, markup=False, highlight=False, soft_wrap=True)
    warnings = len(problems) - len(bad)
    context.say(f"{source}: {_counted(len(bad), 'error')}, {_counted(warnings, 'warning')}")
    return FAILED if bad else COMPLETED


def version(context: Context) -> int:
    """Show the version."""
    if context.json:
        context.emit({"version": __version__, "python": platform.python_version()})
    else:
        context.out.print(f"noetl-ray {__version__}", highlight=False)
    return COMPLETED


def checked_playbook(context: Context) -> str:
    """The text of the playbook named on the command line.

    Raises:
        PlaybookError: it has problems; found before anything is started for it.
    """
    return checked_text(context, context.args.playbook)


def checked_text(context: Context, source: str) -> str:
    """The text of a playbook's file, or of stdin for ``-``, with its warnings told.

    Raises:
        PlaybookError: it has problems.
    """
    text = read_input(source)
    problems = _problems(text, source)
    bad = _errors(problems)
    if bad:
        msg = f"{source} cannot be run: {_counted(len(bad), 'error')}"
        raise PlaybookError(msg, problems)
    for problem in problems:
        context.say(problem_line(problem, source))
    return text


def _problems(text: str, source: str) -> list[dict[str, Any]]:
    from noetl_ray.dsl.parse import check_playbook

    found = check_playbook(text, source="stdin" if source == "-" else source)
    return [problem.to_dict() for problem in found]


def _errors(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [problem for problem in problems if problem["severity"] == "error"]


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
