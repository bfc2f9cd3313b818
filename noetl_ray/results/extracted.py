"""The extracted block: the small part of a result that travels in its event (TIER-5, P27).

A value that fits is carried whole. Otherwise object keys survive, arrays keep element 0, long
strings become a length marker, and the whole stays within a byte budget whatever the value looks
like. What was cut is marked, so a reader knows when it must not guess: :func:`path_is_cut`.

Marks map a dotted path to the original length. Elements are numbered (``rows.0.text``), dots and
percent signs in keys are escaped, ``$`` is the value itself, and ``*`` says that too much was cut
to list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.events.canonical import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXTRACTED_MAX_BYTES = 4_096
EXTRACTED_MIN_BYTES = 64
MASKED = -1
"""The length given for what was hidden rather than cut."""
ROOT = "$"
EVERYTHING = "*"

_KEY_CHARS_MAX = 128
_MARKS_MAX = 64
_INT_BITS_MAX = 256
# From generous to bare: characters kept in a string, keys kept in an object, levels kept.
_LADDER = (
    (256, 256, 16),
    (64, 128, 8),
    (64, 48, 4),
    (48, 16, 3),
    (32, 8, 2),
    (32, 4, 1),
    (32, 0, 0),
)


def extract(
    value: Any, max_bytes: int = EXTRACTED_MAX_BYTES, *, size_bytes: int | None = None
) -> tuple[Any, dict[str, int]]:
    """The extracted block of a JSON value and the marks of what it lacks.

    Args:
        value: Plain JSON data.
        max_bytes: The most canonical JSON bytes the block may take; the marks take half of that at
            most.
        size_bytes: The canonical size of the value where the caller knows it already.
    """
    if max_bytes < EXTRACTED_MIN_BYTES:
        msg = f"an extracted block needs at least {EXTRACTED_MIN_BYTES} bytes, not {max_bytes}"
        raise ValueError(msg)
    if size_bytes is None:
        size_bytes = len(canonical_json(value))
    if size_bytes <= max_bytes:
        return value, {}
    for string_max, keys_max, depth_max in _LADDER:
        cut = _Cut(
            string_max=string_max, keys_max=keys_max, depth_max=depth_max, nodes_left=max_bytes
        )
        block = cut.shrink(value, (), 0)
        # Each node takes a byte at least, so a walk that ran out of nodes cannot fit.
        if cut.nodes_left >= 0 and len(canonical_json(block)) <= max_bytes:
            return block, bounded_marks(cut.marks, max_bytes // 2)
    return None, {EVERYTHING: size_bytes}


def bounded_marks(marks: dict[str, int], max_bytes: int) -> dict[str, int]:
    """The marks, or the one mark that doubts everything when there are too many."""
    if len(marks) <= _MARKS_MAX and len(canonical_json(marks)) <= max_bytes:
        return marks
    return {EVERYTHING: len(marks)}


def dotted(path: Sequence[str | int]) -> str:
    """The text of a path as used in marks."""
    if not path:
        return ROOT
    return ".".join(str(part).replace("%", "%25").replace(".", "%2E") for part in path)


def path_is_cut(extracted: Any, truncated: Mapping[str, int], path: Sequence[str | int]) -> bool:
    """Whether reading a path needs more than the extracted block holds (P27).

    True as well for a path above something cut: reading ``rows`` whole is not answered by its
    element 0.
    """
    if not truncated:
        return False
    if EVERYTHING in truncated:
        return True
    node = extracted
    for depth in range(len(path) + 1):
        marked = dotted(path[:depth]) in truncated
        if depth == len(path):
            break
        part = path[depth]
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and part == 0 and node:
            node = node[0]
        else:
            return marked
    if marked or not path:
        return True
    below = dotted(path) + "."
    return any(mark.startswith(below) for mark in truncated)


@dataclass(slots=True, kw_only=True)
class _Cut:
    """One walk with fixed limits, collecting marks as it goes."""

    string_max: int
    keys_max: int
    depth_max: int
    nodes_left: int
    marks: dict[str, int] = field(default_factory=dict)

    def shrink(self, value: Any, path: tuple[str | int, ...], depth: int) -> Any:
        self.nodes_left -= 1
        if self.nodes_left < 0:
            return None
        if isinstance(value, str):
            if len(value) <= self.string_max:
                return value
            self._mark(path, len(value))
            return f"<cut: {len(value)} characters>"
        if isinstance(value, dict):
            return self._shrink_object(value, path, depth)
        if isinstance(value, list):
            return self._shrink_array(value, path, depth)
        if isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
            self._mark(path, value.bit_length())
            return None
        return value

    def _shrink_object(
        self, value: dict[str, Any], path: tuple[str | int, ...], depth: int
    ) -> dict[str, Any]:
        room = self.keys_max if depth < self.depth_max else 0
        # Sorted, so that equal values give equal blocks whatever order their keys came in.
        kept = [key for key in sorted(value) if len(key) <= _KEY_CHARS_MAX][:room]
        if len(kept) < len(value):
            self._mark(path, len(value))
        block: dict[str, Any] = {}
        for key in kept:
            if self.nodes_left < 0:
                break
            block[key] = self.shrink(value[key], (*path, key), depth + 1)
        return block

    def _shrink_array(self, value: list[Any], path: tuple[str | int, ...], depth: int) -> list[Any]:
        room = 1 if depth < self.depth_max else 0
        if len(value) > room:
            self._mark(path, len(value))
        return [self.shrink(item, (*path, 0), depth + 1) for item in value[:room]]

    def _mark(self, path: tuple[str | int, ...], length: int) -> None:
        self.marks[dotted(path)] = length
