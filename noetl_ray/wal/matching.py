"""Subject filters: ``*`` stands for one token, ``>`` for one or more at the end.

Owns matching in this process; the server does its own for what it delivers. Refuses nothing:
whether a subject may be written is the business of :mod:`noetl_ray.wal.settle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_exact(subject_filter: str) -> bool:
    """Whether a filter names one subject."""
    return not any(token in ("*", ">") for token in subject_filter.split("."))


def matches(subject_filter: str, subject: str) -> bool:
    """Whether a subject, or every subject of a narrower filter, falls under a filter."""
    if subject_filter == subject:
        return True
    wanted = subject_filter.split(".")
    given = subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return index == len(wanted) - 1 and len(given) > index
        if index >= len(given) or given[index] == ">":
            return False
        if token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


def reduce_filters(filters: Iterable[str]) -> list[str]:
    """Drop filters that another one covers: the server refuses overlapping ones."""
    kept: list[str] = []
    for candidate in sorted(set(filters)):
        if any(matches(other, candidate) for other in kept):
            continue
        kept = [other for other in kept if not matches(candidate, other)]
        kept.append(candidate)
    return kept
