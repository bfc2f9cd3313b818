"""The arcs of a playbook as a graph: what can follow what. Pure; every answer is kept.

Arcs to names that are no step (`end`) lead nowhere and are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def components(targets: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The strongly connected groups of a graph, each node in exactly one; without recursion.

    Every target must be a node itself.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []
    is_open: set[str] = set()
    groups: list[list[str]] = []
    for root in targets:
        if root in number:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(targets[root]))]
        number[root] = lowest[root] = len(number)
        open_nodes.append(root)
        is_open.add(root)
        while work:
            node, rest = work[-1]
            child = next(rest, None)
            if child is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == number[node]:
                    group = [open_nodes.pop()]
                    while group[-1] != node:
                        group.append(open_nodes.pop())
                    is_open.difference_update(group)
                    groups.append(group)
            elif child not in number:
                number[child] = lowest[child] = len(number)
                open_nodes.append(child)
                is_open.add(child)
                work.append((child, iter(targets[child])))
            elif child in is_open:
                lowest[node] = min(lowest[node], number[child])
    return groups
