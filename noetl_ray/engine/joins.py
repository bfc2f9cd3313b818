"""When a step that an arc has reached may start: the join barrier, as a pure function of the graph.

A step with several ways in waits while any of the steps leading into it can still run before it:
that is, while one of them is reachable from something alive by a path that does not pass through
the waiting step itself. So a reducer runs once after all that can still arrive, an if/else merge
never waits for the branch not taken, and the back edge of a cycle never blocks its own head.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.dsl.model import Playbook


class JoinGraph:
    """The arcs of one playbook, prepared for the barrier."""

    def __init__(self, playbook: Playbook) -> None:
        self._next: dict[str, tuple[str, ...]] = {
            name: tuple(dict.fromkeys(a.step for a in step.arcs if a.step in playbook.steps))
            for name, step in playbook.steps.items()
        }
        sources: dict[str, set[str]] = {name: set() for name in playbook.steps}
        for name, targets in self._next.items():
            for target in targets:
                if target != name:
                    sources[target].add(name)
        self._sources = {name: frozenset(found) for name, found in sources.items()}
        self._rank = self._ranks(playbook.entry)
        self._reach = lru_cache(maxsize=4096)(self._reach_avoiding)

    def must_wait(self, target: str, alive: Iterable[str]) -> bool:
        """Whether a step leading into ``target`` can still run before it.

        Args:
            target: The step an arc has reached.
            alive: Steps that run now and other steps that arcs have reached.
        """
        sources = self._sources.get(target, frozenset())
        if len(sources) < 2:
            return False
        return any(
            not sources.isdisjoint(self._reach(step, target)) for step in alive if step != target
        )

    def rank(self, step: str) -> int:
        """A step's place in the flow from the entry, back edges left aside."""
        return self._rank.get(step, len(self._rank))

    def _ranks(self, entry: str) -> dict[str, int]:
        # Reverse postorder of a depth-first walk: every arc that is no back edge goes up.
        finished: list[str] = []
        seen = {entry}
        stack = [(entry, iter(self._next.get(entry, ())))]
        while stack:
            name, targets = stack[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    stack.append((target, iter(self._next.get(target, ()))))
                    break
            else:
                finished.append(name)
                stack.pop()
        return {name: place for place, name in enumerate(reversed(finished))}

    def _reach_avoiding(self, start: str, avoided: str) -> frozenset[str]:
        seen = {start}
        stack = [start]
        while stack:
            for step in self._next.get(stack.pop(), ()):
                if step != avoided and step not in seen:
                    seen.add(step)
                    stack.append(step)
        return frozenset(seen)


def startable(graph: JoinGraph, held: Iterable[str], running: Iterable[str]) -> str | None:
    """The next held step that may start, oldest first; None when all must wait.

    When nothing runs and every held step waits for another, they stand on a cycle: the one that
    comes first in the flow goes, whatever the order in which they were reached.
    """
    waiting = list(held)
    active = list(running)
    for step in waiting:
        if step in active:
            continue
        if not graph.must_wait(step, [*active, *waiting]):
            return step
    if waiting and not active:
        return min(waiting, key=graph.rank)
    return None
