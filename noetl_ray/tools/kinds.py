"""Static facts about the built-in kinds of tasks. Imports nothing heavy, so parsers may ask freely.

It owns the names and the side-effect flags (SEB-1); how a kind works lives in its own module.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING

from noetl_ray.dsl.tool_schemas import OUTSIDE_KINDS, PLUGIN_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

SIDE_EFFECTS = MappingProxyType(
    {
        "artifact": True,
        "callback": False,
        "duckdb": True,
        "http": True,
        "nats": True,
        "noop": False,
        "playbook": True,
        "postgres": True,
        "python": True,
        "shell": True,
        "spark": True,
        "transfer": True,
        "wait": False,
    }
)
"""Kind to whether running it twice may be seen from outside."""

KNOWN_KINDS: frozenset[str] = frozenset(SIDE_EFFECTS)

PLUGIN_HELP = (
    "install a package with an entry point of that name "
    f"in the group '{PLUGIN_GROUP}', "
    "whose object makes a tool of that kind"
)


def has_side_effects(kind: str) -> bool:
    """The static flag of a kind; an unknown kind counts as side-effecting, the safe side."""
    return SIDE_EFFECTS.get(kind, True)


def unknown_kind_message(kind: str, known: Iterable[str] = KNOWN_KINDS) -> str:
    """Say that a kind is unknown, what was probably meant, and what exists."""
    names = sorted(known)
    if kind in OUTSIDE_KINDS:
        return outside_kind_message(kind)
    near = difflib.get_close_matches(kind.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown tool kind {kind!r}{hint} (known kinds: {', '.join(names)})"


def outside_kind_message(kind: str) -> str:
    """Say that a kind is not built in, and how to add it."""
    return f"the tool kind {kind!r} is not built in; to have it, {PLUGIN_HELP}"
