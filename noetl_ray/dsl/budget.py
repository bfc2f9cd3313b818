"""How much one rendering may do: counted work and sizes, never a clock.

Owns the limits of templates and the counter that each rendering carries. A template that would pass
a limit is refused before the memory or time is spent, and refused the same way on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one rendering may use."""

    work: int = 1_000_000
    """Loop turns, calls and elements looked at, all together."""
    range_items: int = 10_000
    """Elements of one ``range()``."""
    text_chars: int = 1 << 20
    """Length of the rendered text, and of every text made on the way."""
    list_items: int = 1_000_000
    """Elements of a list made by ``+`` or ``*``."""
    int_bits: int = 4096
    """Size of a whole number made by ``*`` or ``**``."""


class LimitError(Exception):
    """A rendering passed one of its limits."""


class Budget:
    """What is left for one rendering."""

    __slots__ = ("left", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.left = limits.work

    def spend(self, units: int) -> None:
        """Count work done."""
        self.left -= units
        if self.left < 0:
            msg = f"the template does more than {self.limits.work} units of work"
            raise LimitError(msg)

    def weigh(self, value: Any) -> None:
        """Count one pass over a value, by its own length only."""
        if isinstance(value, (str, list, tuple, dict)):
            self.spend(1 + (len(value) >> 4))
        else:
            self.spend(1)

    def text(self, chars: int) -> None:
        """Refuse a text of this length, or count it."""
        if chars > self.limits.text_chars:
            msg = f"the template makes a text longer than {self.limits.text_chars} characters"
            raise LimitError(msg)
        self.spend(1 + (chars >> 4))

    def items(self, count: int) -> None:
        """Refuse a list of this length, or count it."""
        if count > self.limits.list_items:
            msg = f"the template makes a list longer than {self.limits.list_items} elements"
            raise LimitError(msg)
        self.spend(1 + (count >> 4))

    def bits(self, count: int) -> None:
        """Refuse a whole number of this many bits."""
        if count > self.limits.int_bits:
            msg = f"the template makes a number of more than {self.limits.int_bits} bits"
            raise LimitError(msg)

    def walk(self, value: Any) -> int:
        """Count every element inside a value; a shared part counts each time it appears."""
        before = self.left
        for _ in self._inside(value):
            pass
        return before - self.left

    def fits(self, value: Any) -> None:
        """Refuse a value that would be too long once written out as text."""
        chars = 0
        for item in self._inside(value):
            chars += len(item) if isinstance(item, str) else 1
            if chars > self.limits.text_chars:
                self.text(chars)

    def each(self, values: Iterable[Any]) -> Iterable[Any]:
        """The same values, counted: at once when their number is known, else one by one."""
        if isinstance(values, (str, list, tuple, dict)):
            self.spend(1 + len(values))
            return values
        return self._counted(values)

    def _counted(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.spend(1)
            yield value

    def _inside(self, value: Any) -> Iterator[Any]:
        stack = [value]
        while stack:
            item = stack.pop()
            self.spend(1)
            yield item
            if isinstance(item, Mapping):
                stack.extend(item)
                stack.extend(item.values())
            elif isinstance(item, (list, tuple)):
                # Iterating asks the list itself, so one that is only partly here can refuse.
                stack.extend(iter(item))
