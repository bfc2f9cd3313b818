"""How much one rendering may do: counted work and sizes, never a clock.

Owns the limits of templates and the counter that each rendering carries. A template that would pass
a limit is refused before the memory or time is spent, and refused the same way on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from jinja2 import Undefined

_DATA = (str, int, float, bytes, type(None), Mapping, list, tuple, Undefined)
_WRITTEN = (date, time, timedelta, Decimal, range)


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
        self.chars(value)

    def chars(self, value: Any) -> int:
        """About how long a value is as text.

        Raises:
            LimitError: It is longer than a text may be.
            TypeError: It holds something that is no data, whose text would tell of this process.
        """
        chars = 0
        for item in self._inside(value):
            if isinstance(item, str):
                chars += len(item)
            elif isinstance(item, int):
                chars += 1 + (item.bit_length() >> 2)
            elif not isinstance(item, _DATA):
                _check_written(item)
                chars += 1
            else:
                chars += 1
            if chars > self.limits.text_chars:
                self.text(chars)
        return chars

    def each(self, values: Iterable[Any], weight: int = 1) -> Iterable[Any]:
        """The same values, counted: at once when their number is known, else one by one.

        Args:
            values: What is gone through.
            weight: What is done with each, in units of work.
        """
        if isinstance(values, (str, list, tuple, dict)):
            self.spend(1 + len(values) * weight)
            return values
        return self._counted(values, weight)

    def _counted(self, values: Iterable[Any], weight: int) -> Iterator[Any]:
        for value in values:
            self.spend(weight)
            yield value

    def _inside(self, value: Any) -> Iterator[Any]:
        stack = [value]
        while stack:
            item = stack.pop()
            # Comparing or folding the case of a long text takes as long as the text is.
            self.spend(1 + (len(item) >> 8) if isinstance(item, str) else 1)
            yield item
            if isinstance(item, Mapping):
                stack.extend(item)
                stack.extend(item.values())
            elif isinstance(item, (list, tuple)):
                # Iterating asks the list itself, so one that is only partly here can refuse.
                stack.extend(iter(item))


def _check_written(item: Any) -> None:
    # Ids are known by name: this package imports nothing that could make one.
    if not isinstance(item, _WRITTEN) and type(item).__name__ != "UUID":
        msg = f"a {type(item).__name__} is no data and cannot be written as text"
        raise TypeError(msg)
