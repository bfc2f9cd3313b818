"""The arcs of a playbook as a graph: what can follow what. Pure; every answer is kept.

Arcs to names that are no step (`end`) lead nowhere and are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Playbook

_NOTHING: frozenset[str] = frozenset()


class StepGraph:
    """Answers about the arcs of one playbook, computed once each."""

    __slots__ = ("_next", "_reach", "_sources", "_upstreams")

    def __init__(self, playbook: Playbook) -> None:
        steps = playbook.steps
        self._next: dict[str, tuple[str, ...]] = {
            name: tuple(dict.fromkeys(arc.step for arc in step.arcs if arc.step in steps))
            for name, step in steps.items()
        }
        sources: dict[str, set[str]] = {name: set() for name in steps}
        for name, targets in self._next.items():
            for target in targets:
                sources[target].add(name)
        self._sources = {name: frozenset(found) for name, found in sources.items()}
        self._reach: dict[str, frozenset[str]] = {}
        self._upstreams: dict[str, frozenset[str]] = {}

    def targets(self, step: str) -> tuple[str, ...]:
        """The steps that arcs of this one lead to, in order, once each."""
        return self._next.get(step, ())

    def reachable(self, start: str) -> frozenset[str]:
        """The steps that one or more arcs lead to; ``start`` itself only when it is on a cycle."""
        found = self._reach.get(start)
        if found is None:
            found = self._reach[start] = self._walk(start)
        return found

    def upstreams(self, target: str) -> frozenset[str]:
        """The steps with an arc to ``target``, without those ``target`` can reach: back edges."""
        found = self._upstreams.get(target)
        if found is None:
            found = self._sources.get(target, _NOTHING) - self.reachable(target)
            self._upstreams[target] = found
        return found

    def is_loop_branch(self, step: str) -> bool:
        """Whether an arc of this step leads into a cycle through it."""
        return step in self.reachable(step)

    def _walk(self, start: str) -> frozenset[str]:
        seen: set[str] = set()
        stack = list(self._next.get(start, ()))
        while stack:
            step = stack.pop()
            if step not in seen:
                seen.add(step)
                stack.extend(self._next[step])
        return frozenset(seen)
