"""The cursor port: claiming rows in a transaction that a frame can ask about later (P21).

A driver claims, calls ``keep`` before it commits, and commits only when ``keep`` returned. ``keep``
makes the rows durable under the transaction's token and is where a frame that was taken away is
refused. After a crash the next holder of the frame asks for the fate of that token: committed means
these rows are the frame's, aborted means nobody has them. So no row is stranded or taken twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from noetl_ray.errors import ToolError

if TYPE_CHECKING:
    from noetl_ray.tools.port import ToolContext
    from noetl_ray.tools.registry import ToolRegistry

Row = dict[str, Any]
Fate = Literal["committed", "aborted", "running"]
Keep = Callable[[list[Row], str], Awaitable[None]]
"""``keep(rows, token)``: make them durable; whatever it raises rolls the claim back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorClaim:
    """One claim. ``statement`` renders it for a number of rows."""

    config: dict[str, Any]
    statement: Callable[[int], str]
    max_rows: int
    max_bytes: int
    tag: str
    """Names the session while it claims, so that a later holder of the frame can end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The rows of a claim and about how large they are."""

    rows: list[Row] = field(default_factory=list)
    size_bytes: int = 0
    again: bool = False
    """Whether an earlier holder of the frame had claimed these very rows."""


class CursorDriver(Protocol):
    """What a tool kind offers to cursor loops."""

    async def claim(self, wanted: CursorClaim, keep: Keep, context: ToolContext) -> Claimed:
        """Claim up to ``max_rows`` rows in one transaction; without rows ``keep`` is not called.

        Raises ToolError; then nothing is claimed.
        """
        ...

    async def evict(self, config: dict[str, Any], tag: str, context: ToolContext) -> None:
        """End every session that claims under a tag; their claims are rolled back."""
        ...

    async def fate(self, config: dict[str, Any], token: str, context: ToolContext) -> Fate:
        """What became of the transaction a token names."""
        ...


def cursor_driver(registry: ToolRegistry, kind: str) -> CursorDriver:
    """The driver of a kind. Raises ToolError of kind ``schema`` when it has none."""
    driver: CursorDriver | None = getattr(registry.get(kind), "cursor", None)
    if driver is None:
        msg = f"the kind {kind!r} has no cursor; `loop.cursor.kind: postgres` has one"
        raise ToolError(msg, "schema")
    return driver
