"""What is found wrong with a playbook: one shape for every finding, and what collects them.

Finds nothing itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from noetl_ray.errors import PlaybookError

if TYPE_CHECKING:
    from collections.abc import Iterable

PROBLEMS_MAX = 200
"""More findings than this help nobody; the rest are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding, with the place in the text it is about (line and column from 1)."""

    severity: Literal["error", "warning"]
    line: int
    column: int
    path: str
    """Where in the document, as in ``workflow[2].next.arcs[0].step``."""
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        return asdict(self)

    def shown(self, source: str) -> str:
        """The finding in one line, as compilers write it."""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{source}:{self.line}:{self.column}: {self.message}{hint}"


class Findings:
    """Collects findings in the order of the text."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def error(self, at: Any, path: str, message: str, hint: str = "") -> None:
        """Add something that makes the playbook unusable; ``at`` has a line and a column."""
        self._add("error", at, path, message, hint)

    def warning(self, at: Any, path: str, message: str, hint: str = "") -> None:
        """Add something that is probably not meant."""
        self._add("warning", at, path, message, hint)

    def sorted(self) -> list[Problem]:
        """All findings by line and column, the most telling ones when there are too many."""
        by_place = sorted(self._found, key=lambda found: (found.line, found.column))
        if len(by_place) <= PROBLEMS_MAX:
            return by_place
        errors_first = sorted(by_place, key=lambda found: found.severity != "error")
        return errors_first[:PROBLEMS_MAX]

    def near(self, word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
        """A hint naming the nearest known word; none once there are more findings than shown."""
        if len(self._found) > PROBLEMS_MAX:
            # Looking for near words is the slow part, and a hostile text could ask for thousands.
            return ""
        return did_you_mean(word, known, cutoff=cutoff)

    def failed(self) -> bool:
        """Whether any finding is an error."""
        return any(found.severity == "error" for found in self._found)

    def _add(
        self, severity: Literal["error", "warning"], at: Any, path: str, message: str, hint: str
    ) -> None:
        self._found.append(
            Problem(
                severity=severity,
                line=max(1, at.line),
                column=max(1, at.column),
                path=path,
                message=message,
                hint=hint,
            )
        )


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """A hint naming the known word nearest to this one, or nothing."""
    near = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"did you mean '{near[0]}'?" if near else ""


def playbook_error(problems: list[Problem], source: str) -> PlaybookError:
    """The error that tells of all findings and shows the first that matters."""
    first = next(found for found in problems if found.severity == "error")
    more = len(problems) - 1
    tail = f"; {more} more {'problem' if more == 1 else 'problems'}" if more else ""
    return PlaybookError(first.shown(source) + tail, [found.to_dict() for found in problems])
