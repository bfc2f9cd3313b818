"""The side-effect barrier: what an earlier holder has done is adopted, not done again (P19).

Owns the one question a later holder asks before its first call to the outside world: does the
result of an earlier holder lie at its coordinate, though its completion never reached the log?
Whatever the log itself knows needs no asking here: a completion there refuses the claim of a later
holder, and the record of a task is where its pipeline goes on. Doubt means execute (SEB-4), so it
never raises for a store. A first dispatch makes no barrier and therefore costs nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from prometheus_client import Counter as Metric

from noetl_ray.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.dsl.model import Task
    from noetl_ray.locator.result import ResultName
    from noetl_ray.results.store import ResultStore
    from noetl_ray.scope import Scope

_log = logging.getLogger(__name__)

Outcome = Literal["skipped", "executed", "doubt"]

_METRIC = Metric(
    "noetl_worker_side_effect_barrier",
    "Side-effecting tasks of commands dispatched again, by what the barrier found.",
    ("outcome", "tool"),
)
_TOLD_BESIDE_DATA = (".http", ".pg", ".py", ".ref", ".meta", "['", '["')
"""Parts of `output` that a stored result does not have."""


@dataclass(slots=True)
class BarrierBook:
    """What the barriers of one worker came to; whether there are any."""

    on: bool = True
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, outcome: Outcome, tool: str) -> None:
        """Count one answer."""
        self.counts[outcome] += 1
        _METRIC.labels(outcome=outcome, tool=tool).inc()


class Barrier:
    """The barrier of one command, for a holder that is not its first."""

    def __init__(
        self,
        results: ResultStore,
        book: BarrierBook,
        *,
        scope: Scope,
        earlier: Iterable[ResultName],
        single: bool,
    ) -> None:
        """Bind the barrier.

        Args:
            results: Where an earlier holder's result may lie.
            book: Where answers are counted.
            scope: Whose command it is.
            earlier: Coordinates of successful results of earlier holders, the newest first.
            single: Whether the step has one task, whose value the result then is.
        """
        self._results = results
        self._book = book
        self._scope = scope
        self._earlier = tuple(earlier)
        self._single = single

    async def adopt(self, task: Task) -> tuple[Any] | None:
        """What the task gave an earlier holder, in a tuple; None when it has to run."""
        try:
            for name in self._earlier:
                found = await self._results.find(self._scope, name)
                value = self._value_of(task, found) if found else None
                if value is not None:
                    outcome: Outcome = "doubt" if _asks_for_more(task) else "skipped"
                    self._book.note(outcome, task.kind)
                    return value if outcome == "skipped" else None
        except NoetlError as error:
            _log.warning("barrier of %s cannot tell, so it runs: %s", task.label, error)
            self._book.note("doubt", task.kind)
            return None
        self._book.note("executed", task.kind)
        return None

    def _value_of(self, task: Task, found: tuple[Any]) -> tuple[Any] | None:
        if self._single:
            return found
        results = found[0].get("results") if isinstance(found[0], dict) else None
        if not isinstance(results, dict) or task.label not in results:
            return None
        return (results[task.label],)


def _asks_for_more(task: Task) -> bool:
    """Whether the task's rules look at what only the call itself tells, such as a status code."""
    asked = [str(rule.when) for rule in task.rules] + [str(rule.set) for rule in task.rules]
    asked.append(str(task.set))
    return any(part in text for text in asked for part in _TOLD_BESIDE_DATA)
