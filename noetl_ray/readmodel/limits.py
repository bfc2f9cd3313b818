"""The bounds of an answer, the same for every adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.errors import UsageError
from noetl_ray.readmodel.port import LIMIT_MAX

if TYPE_CHECKING:
    from noetl_ray.readmodel.records import EventRow


def check_limit(limit: int) -> None:
    """Refuse a limit no answer may have."""
    if not 0 < limit <= LIMIT_MAX:
        msg = f"limit {limit} is not in 1..{LIMIT_MAX}"
        raise UsageError(msg)


def whole_records(rows: list[EventRow], limit: int) -> list[EventRow]:
    """The first ``limit`` rows and the rest of the record the last of them belongs to."""
    if len(rows) <= limit:
        return rows
    last = rows[limit - 1].position
    end = limit
    while end < len(rows) and rows[end].position == last:
        end += 1
    return rows[:end]
