"""The way in: parse, load settings, call the verb, turn whatever happens into an exit code.

Owns which error gives which exit code, and how errors look. A traceback is shown only with
``--debug``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

from noetl_ray.cli.args import parse
from noetl_ray.cli.context import BAD_USE, COMPLETED, FAILED, INTERRUPTED, open_context
from noetl_ray.errors import (
    ConfigError,
    InternalError,
    LogUnavailableError,
    NoetlError,
    NotFoundError,
    PlaybookError,
    StoreUnavailableError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl_ray.cli.context import Context

# By name, so that `noetl-ray --help` and quick verbs load only what they use.
VERBS = {
    "up": "setup:up",
    "down": "setup:down",
    "validate": "setup:validate",
    "explain": "explain:explain",
    "version": "setup:version",
    "credential": "secrets:credential",
    "register": "catalog:register",
    "catalog": "catalog:catalog",
    "objects": "objects:objects",
    "lake": "lake:lake",
    "frames": "frames:frames",
    "shards": "shards:shards",
    "gc": "upkeep:gc",
    "repair": "upkeep:repair",
    "trace": "upkeep:trace",
    "backup": "backup:backup",
    "restore": "backup:restore",
    "replay": "replay:replay",
    "doctor": "doctor:doctor",
    "demo": "demo:run_demo",
    "run": "run:run",
    "submit": "run:submit",
    "list": "inspect:list_executions",
    "status": "inspect:status",
    "events": "inspect:events",
    "logs": "inspect:logs",
    "result": "inspect:result",
    "cancel": "acting:cancel",
    "pause": "acting:pause",
    "resume": "acting:resume",
    "answer": "acting:answer",
    "rerun": "acting:rerun",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = parse(argv)
    try:
        return _verb(args.verb)(open_context(args))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left, as `| head` does: not a failure of ours.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COMPLETED
    except NoetlError as error:
        if args.debug:
            traceback.print_exc()
        _show(error)
        return exit_code(error)
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        _show(InternalError(f"{type(error).__name__}: {error}"))
        return FAILED


def exit_code(error: NoetlError) -> int:
    """2 when the caller can mend it, 1 otherwise."""
    mendable = (UsageError, LogUnavailableError, StoreUnavailableError)
    return BAD_USE if isinstance(error, mendable) else FAILED


def hint(error: NoetlError) -> str:
    """What to do next; empty when the message already says it."""
    if isinstance(error, ConfigError):
        return "settings come from --config, $NOETL_CONFIG or ./noetl-ray.yaml; see the README"
    if isinstance(error, PlaybookError):
        return "check it with: noetl-ray validate PLAYBOOK"
    if isinstance(error, NotFoundError) and "noetl-ray" not in error.message:
        return "list what there is with: noetl-ray list"
    if isinstance(error, LogUnavailableError | StoreUnavailableError):
        return "see what is reachable with: noetl-ray doctor"
    if isinstance(error, InternalError):
        return "this looks like a bug; run again with --debug and report the traceback"
    return ""


def _show(error: NoetlError) -> None:
    lines = [f"error: {' '.join(error.message.split())}"]
    if isinstance(error, PlaybookError):
        from noetl_ray.cli.render import problem_line

        lines += [f"  {problem_line(problem)}" for problem in error.problems]
    advice = hint(error)
    if advice:
        lines.append(f"hint: {advice}")
    sys.stderr.write("\n".join(lines) + "\n")


def _verb(name: str) -> Callable[[Context], int]:
    module, _, function = VERBS[name].partition(":")
    handler: Callable[[Context], int] = getattr(
        importlib.import_module(f"noetl_ray.cli.{module}"), function
    )
    return handler


if __name__ == "__main__":
    sys.exit(main())
