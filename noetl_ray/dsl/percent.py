"""``pattern % values`` with a bounded result: what a pattern asks for is read before it is made.

Reads conversions as Python does, so that none can ask for more than was counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from noetl_ray.dsl.budget import Budget, LimitError

_CONVERSION = re.compile(r"[#0\- +]*(\*|[0-9]+)?(?:\.(\*|[0-9]+))?")
_KEY_EDGE = re.compile(r"[()]")
_FORMAT_WIDTH_MAX = 1000


def format_text(budget: Budget, pattern: str, values: Any) -> str:
    """``pattern % values`` with bounded widths."""
    budget.text(len(pattern))
    named = values if isinstance(values, Mapping) else {}
    sizes: dict[str, int] = {}
    chars = len(pattern)
    budget.fits(values)
    for key, width in _conversions(pattern):
        if key is not None and key not in sizes:
            sizes[key] = budget.chars(named.get(key))
        # A named value may be asked for any number of times.
        chars += width + sizes.get(key or "", 0)
        if chars > budget.limits.text_chars:
            budget.text(chars)
    made: str = pattern % values
    budget.text(len(made))
    return made


def _conversions(pattern: str) -> Iterator[tuple[str | None, int]]:
    """The key and the width of each conversion, read as Python reads them: keys may nest."""
    at = pattern.find("%")
    while at >= 0:
        at += 1
        key = None
        if pattern[at : at + 1] == "(":
            end = _key_end(pattern, at)
            key, at = pattern[at + 1 : end - 1], end
        found = _CONVERSION.match(pattern, at)
        assert found is not None, "every part of a conversion may be missing"
        width = 0
        for number in found.groups(""):
            if number == "*" or len(number) > 4 or int(number or 0) > _FORMAT_WIDTH_MAX:
                msg = f"a format width may be at most {_FORMAT_WIDTH_MAX}"
                raise LimitError(msg)
            width += int(number or 0)
        yield key, width
        # One more for the letter, which may be another percent sign.
        at = pattern.find("%", found.end() + 1)


def _key_end(pattern: str, at: int) -> int:
    depth = 0
    for edge in _KEY_EDGE.finditer(pattern, at):
        depth += 1 if edge.group() == "(" else -1
        if not depth:
            return edge.end()
    msg = "incomplete format key"
    raise ValueError(msg)
