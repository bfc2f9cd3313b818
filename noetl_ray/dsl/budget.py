"""How much one rendering may do: counted work and sizes, never a clock.

Owns the limits of templates and the counter that each rendering carries. A template that would pass
a limit is refused before the memory or time is spent, and refused the same way on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from jinja2 import Undefined

_DATA = (str, int, float, bytes, type(None), Mapping, list, tuple, Undefined)
_SHORT = 256
_WRITTEN = (date, time, timedelta, Decimal, range)
_UNITS_AT_ONCE = 1_000
"""Work that is counted together; a limit is then overrun by no more than that."""


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
        chars = units = 0
        longest = self.limits.text_chars
        stack = [value]
        while stack:
            item = stack.pop()
            kind = type(item)
            units += 1
            # Plain data, which most is, without the questions that anything else is asked.
            if kind is str:
                chars += len(item)
                units += len(item) >> 8
            elif kind is dict:
                chars += 1
                for key, inner in item.items():
                    # Short texts are most of all data: counted here, they need no turn each.
                    if type(key) is str and len(key) < _SHORT:
                        chars += len(key)
                        units += 1
                    else:
                        stack.append(key)
                    if type(inner) is str and len(inner) < _SHORT:
                        chars += len(inner)
                        units += 1
                    else:
                        stack.append(inner)
            elif kind is list:
                chars += 1
                stack.extend(item)
            else:
                chars += _chars_of(item)
                units += len(item) >> 8 if isinstance(item, str) else 0
                stack.extend(_parts_of(item))
            if chars > longest:
                self.text(chars)
            if units > _UNITS_AT_ONCE:
                self.spend(units)
                units = 0
        self.spend(units)
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
            stack.extend(_parts_of(item))


def _parts_of(item: Any) -> Iterable[Any]:
    if isinstance(item, (str, int, float, type(None))):
        return ()
    if isinstance(item, Mapping):
        return itertools.chain(item, item.values())
    if isinstance(item, (list, tuple)):
        # Iterating asks the list itself, so one that is only partly here can refuse.
        return iter(item)
    return ()


def _chars_of(item: Any) -> int:
    if isinstance(item, str):
        return len(item)
    if isinstance(item, int):
        return 1 + (item.bit_length() >> 2)
    if not isinstance(item, _DATA):
        _check_written(item)
    return 1


def _check_written(item: Any) -> None:
    # Ids are known by name: this package imports nothing that could make one.
    if not isinstance(item, _WRITTEN) and type(item).__name__ != "UUID":
        msg = f"a {type(item).__name__} is no data and cannot be written as text"
        raise TypeError(msg)
