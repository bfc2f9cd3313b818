"""The grammar of the verbs about stored results: gc, repair, trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def upkeep_verbs(
    verb: Callable[[str, str, str], argparse.ArgumentParser], execution_id: Callable[[str], int]
) -> None:
    """Add the verbs; ``verb`` makes one from its name, its text and an example."""
    gc = verb("gc", "stored objects that nobody needs any more", "noetl-ray gc --delete")
    gc.add_argument("--delete", action="store_true", help="delete them")
    repair = verb(
        "repair",
        "compare stored objects with the log and rebuild missing or altered ones",
        "noetl-ray repair 123 --dry-run",
    )
    repair.add_argument(
        "id", nargs="?", type=execution_id, metavar="ID", help="only of this execution"
    )
    repair.add_argument("--dry-run", action="store_true", help="only say what would be done")
    trace = verb("trace", "what a step's result was made from", "noetl-ray trace 123 report")
    trace.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    trace.add_argument("step", metavar="STEP", help="step name")
