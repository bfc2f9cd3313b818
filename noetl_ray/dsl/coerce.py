"""From text to data: when mixed template text becomes a value, and what counts as true.

Applied only to text a template made (language page, section 3); text as written in YAML stays text.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

_FALSE_WORDS = frozenset({"", "false", "0", "no", "none", "null"})
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(\.[0-9]{1,32})?")
_INT_MAX = 2**63 - 1
_LITERAL_CHARS_MAX = 65_536
"""Python literals are only tried below this length: their parser is slow and hungry."""


def coerce_text(text: str) -> Any:
    """The value a rendered text stands for, or the text itself.

    Numbers as JSON writes them, true/false/none/null in any case, JSON and Python containers. A
    number with leading zeros is an identifier and stays text, as does one past 64 bits.
    """
    stripped = text.strip()
    if not stripped:
        return text
    if len(stripped) <= 5 and stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    number = _NUMBER.fullmatch(stripped)
    if number is not None:
        if number[1]:
            return float(stripped)
        whole = int(stripped)
        return whole if -_INT_MAX - 1 <= whole <= _INT_MAX else text
    if (stripped[0], stripped[-1]) in (("{", "}"), ("[", "]"), ("(", ")")):
        return _container(stripped, text)
    return text


def truth_of(value: Any) -> bool:
    """Whether a rendered `when` holds."""
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE_WORDS
    return bool(value)


def _container(stripped: str, text: str) -> Any:
    if stripped[0] != "(":
        try:
            return json.loads(stripped, parse_constant=_not_a_number)
        except (ValueError, RecursionError):
            pass
    if len(stripped) > _LITERAL_CHARS_MAX or "\\" in stripped:
        # Python warns about doubtful escapes; such text is code or a path, not a printed value.
        return text
    try:
        return _data(ast.literal_eval(stripped))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _not_a_number(name: str) -> Any:
    raise ValueError(name)


def _data(value: Any) -> Any:
    """A literal as JSON-like data; raises ValueError when it is something else."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_data(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _data(item) for key, item in value.items()}
    msg = "not plain data"
    raise ValueError(msg)
