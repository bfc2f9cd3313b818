"""Ranges of a collection: what is left to hand out, and what frames have given. Pure.

A stage over a collection remembers finished parts as runs of equal ones, ``(first, count, attempt,
times)``, so that a loop over a hundred thousand items leaves a few numbers in state (P26). Where
the results of a part lie follows from its first index and the attempt that gave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""First index and how many."""
Run = tuple[int, int, int, int]
"""``times`` parts of ``count`` items each, one after the other, all from the same attempt."""
Part = tuple[int, int, int]
"""First index, how many, and the attempt whose results count."""

COLLECTION_THRESHOLD = 200
"""Items above which a loop becomes frames, where the settings do not say."""
COLLECTION_ROWS = 500
"""Items of one frame at most, where neither loop nor settings say."""
FRAMES_PER_SLOT = 4
"""A collection is cut so that each slot gets about this many frames, for an even end."""


def add_part(runs: tuple[Run, ...], first: int, count: int, attempt: int) -> tuple[Run, ...]:
    """Runs with one more finished part, in the order of the collection."""
    made: list[Run] = []
    for run in sorted((*runs, (first, count, attempt, 1))):
        if made:
            start, size, tried, times = made[-1]
            if (size, tried) == run[1:3] and start + size * times == run[0]:
                made[-1] = (start, size, tried, times + run[3])
                continue
        made.append(run)
    return tuple(made)


def parts_of(runs: Iterable[Iterable[int]]) -> Iterator[Part]:
    """The parts that runs stand for, in the order of the collection."""
    for first, count, attempt, times in runs:
        for turn in range(times):
            yield first + turn * count, count, attempt


def available(runs: tuple[Run, ...], start: int, parts_max: int) -> tuple[Run, ...]:
    """The finished parts that follow each other from ``start`` on; 0 means any number of them."""
    found: list[Run] = []
    left = parts_max or sum(run[3] for run in runs)
    for first, count, attempt, times in runs:
        if first + count * times <= start:
            continue
        if first > start or not left:
            break
        skipped = (start - first) // count
        take = min(times - skipped, left)
        found.append((start, count, attempt, take))
        start += count * take
        left -= take
    return tuple(found)


def next_range(issued: int, total: int, gaps: tuple[Range, ...], size: int) -> Range | None:
    """What the next frame takes: first what an earlier one gave back, then new items."""
    if gaps:
        first, count = gaps[0]
        return first, min(count, size)
    if issued < total:
        return issued, min(size, total - issued)
    return None


def without(gaps: tuple[Range, ...], taken: Range) -> tuple[Range, ...]:
    """What is left of the gaps once a range of the first one was handed out."""
    first, count = gaps[0]
    rest = count - taken[1]
    return ((first + taken[1], rest), *gaps[1:]) if rest else gaps[1:]


def frame_rows(total: int, slots: int, rows_max: int) -> int:
    """How many items a frame begins with."""
    return max(1, min(rows_max, -(-total // (slots * FRAMES_PER_SLOT))))


def halved_to(rows_max: int, fit: float) -> int:
    """The largest of ``rows_max``, its half, its quarter, … that fits; equal sizes, few runs."""
    size = rows_max
    while size > 1 and size > fit:
        size //= 2
    return size


def mixed(digest: str, sha256: str) -> str:
    """A digest of a set of parts that does not depend on the order they come in."""
    return f"{int(digest or '0', 16) ^ int(sha256, 16):064x}"
