"""Writing variables: deep keys into nested mappings, without changing what older states hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def assign_variable(bag: dict[str, Any], seed: Mapping[str, Any], key: str, value: Any) -> None:
    """Write a variable; a deep key keeps the rest of what the workload seeds the variables with."""
    head, _, rest = key.partition(".")
    if rest and head not in bag and isinstance(seed.get(head), dict):
        bag[head] = seed[head]
    assign(bag, key, value)


def assign(bag: dict[str, Any], key: str, value: Any) -> None:
    """Write ``a.b.c`` into nested mappings, copying each level so that older states keep theirs."""
    head, _, rest = key.partition(".")
    if not rest:
        bag[head] = value
        return
    inner = bag.get(head)
    copy = dict(inner) if isinstance(inner, dict) else {}
    assign(copy, rest, value)
    bag[head] = copy
