"""Canonical JSON: sorted keys, compact separators, UTF-8; and the digests made over it (SER-1).

Bytes made here are what is stored and what is hashed; nothing durable is ever pickled (SER-3).
"""

from __future__ import annotations

import hashlib
import math
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT_MIN = -(1 << 63)
_INT_MAX = (1 << 64) - 1
_ROWS_MIN = 64
"""From how many items on a list is looked at as rows."""
_BLOCK_ROWS = 1_024
"""So many at a time stay in the processor's cache from one look at a column to the next."""
_SCALARS = (str, int, float, bool, type(None))
_encoder = msgspec.json.Encoder(order="sorted", decimal_format="string")
_ordered_encoder = msgspec.json.Encoder(order="deterministic", decimal_format="string")


def canonical_json(value: Any) -> bytes:
    """Encode a value of JSON shape (or a msgspec struct) to its one canonical form."""
    return _encoder.encode(value)


def canonical_ordered(value: msgspec.Struct) -> bytes:
    """The canonical form of a struct whose fields are declared in the order of their names.

    As those within it must be. Mappings are sorted as always; sorting the fields of structs for
    every event is half the work of encoding it.
    """
    return _ordered_encoder.encode(value)


def sha256_hex(data: bytes) -> str:
    """Lowercase hex SHA-256."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """SHA-256 of the canonical form of a value."""
    return sha256_hex(_encoder.encode(value))


def to_jsonable(value: Any) -> Any:
    """Turn what a tool returned into plain JSON values without failing.

    Mappings get text keys, tuples and sets become lists, bytes become text, what has no JSON form
    (numbers over 64 bits too) becomes ``str(value)``; NaN and infinities become None because JSON
    cannot say them.
    """
    kind = type(value)
    if value is None or kind is bool or (kind is str and value.isascii()):
        return value
    if isinstance(value, str):
        text = value if type(value) is str else str.__str__(value)
        # A lone surrogate, as in the name of a strange file, has no UTF-8 form.
        return text if text.isascii() else text.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(value) if _INT_MIN <= value <= _INT_MAX else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {to_jsonable(str(key)): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if kind in (list, tuple) and len(value) >= _ROWS_MIN:
            return _many(value)
        return [to_jsonable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((to_jsonable(item) for item in value), key=repr)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    isoformat = getattr(value, "isoformat", None)
    if callable(isoformat):
        return isoformat()
    tolist = getattr(value, "tolist", None)
    if callable(tolist) and type(value).__module__ == "numpy":
        return to_jsonable(tolist())
    return str(value)


def _many(items: Sequence[Any]) -> list[Any]:
    """Many items, in blocks that stay in the processor's cache while their columns are looked at.

    A block that is no plain rows is taken item by item, and so is what follows it.
    """
    made: list[Any] = []
    for at in range(0, len(items), _BLOCK_ROWS):
        block = items[at : at + _BLOCK_ROWS]
        if not _plain_rows(block):
            made.extend(to_jsonable(item) for item in items[at:])
            return made
        made.extend(map(dict.copy, block))
    return made


def _plain_rows(rows: Sequence[Any]) -> bool:
    """Whether these are mappings of the same plain keys to scalars that are JSON as they stand.

    Looks column by column, without a step of the interpreter for each cell. A False only says that
    it is not known; a row may then still be plain.
    """
    first = rows[0]
    if type(first) is not dict or not all(type(cell) in _SCALARS for cell in first.values()):
        return False
    if not all(type(key) is str and key.isascii() for key in first):
        return False
    if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(first)}:
        return False
    try:
        return all(_plain_cells(list(map(itemgetter(key), rows))) for key in first)
    except KeyError:
        return False


def _plain_cells(cells: list[Any]) -> bool:
    kinds = set(map(type, cells)) - {type(None)}
    if kinds <= {bool}:
        return True
    kind = kinds.pop()
    if kinds or kind not in _SCALARS:
        return False
    # None, zero and the empty text are plain.
    held = list(filter(None, cells))
    if kind is str:
        return all(map(str.isascii, held)) or _is_utf8(held)
    if kind is float:
        return all(map(math.isfinite, held))
    return not held or (min(held) >= _INT_MIN and max(held) <= _INT_MAX)


def _is_utf8(texts: list[str]) -> bool:
    try:
        return all(map(str.encode, texts))
    except UnicodeEncodeError:
        return False
