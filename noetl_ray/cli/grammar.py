"""The parts every verb's grammar is made of: a verb with its example, common options, numbers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def common(parser: argparse.ArgumentParser, *, suppress: bool) -> None:
    """Options of every verb; below a verb they only count when they are written."""

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    group = parser.add_argument_group("common options")
    group.add_argument(
        "--config", type=Path, metavar="FILE", default=default(None), help="settings file (YAML)"
    )
    group.add_argument(
        "--data-dir", metavar="DIR", default=default(None), help="where a local set keeps its data"
    )
    group.add_argument("--address", metavar="URL", default=default(None), help="gateway to talk to")
    group.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        default=default(None),
        help="file with the gateway's token",
    )
    group.add_argument(
        "--json",
        action="store_true",
        default=default(False),
        help="machine output on stdout, one JSON value per line",
    )
    group.add_argument(
        "--debug", action="store_true", default=default(False), help="show tracebacks"
    )


def verb(verbs: Verbs, name: str, text: str, example: str) -> argparse.ArgumentParser:
    """One verb, with its help and an example."""
    parser = verbs.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    common(parser, suppress=True)
    return parser


def count(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")  # noqa: EM101
    return number


def execution_id(text: str) -> int:
    """The id of an execution."""
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 63:
        msg = f"{text!r} is not an execution id: it is a whole number, see `noetl-ray list`"
        raise argparse.ArgumentTypeError(msg)
    return int(text)
