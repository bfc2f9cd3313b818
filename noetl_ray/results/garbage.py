"""Which stored objects nobody needs any more: a pure verdict, one per object (GC-2, GC-4, TN-20).

Doubt keeps. A result may go when its execution has no event left and its archive, if it has one, is
past its time, or when the result's own task said how long it is wanted. A payload may go when it is
old and nothing that is left names it. Nothing young is touched, so whoever is just writing need not
be known. No clock, no store: everything is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from noetl_ray.errors import UsageError
from noetl_ray.ids import mint_time_ms
from noetl_ray.locator.keys import parse_key, payload_sha256

if TYPE_CHECKING:
    from noetl_ray.locator.keys import ResultKey
    from noetl_ray.payloads.port import ObjectInfo

KEEP_EXT = "keep"
"""A small object beside a result that says how long it is wanted; most results have none."""
ResultScope = Literal["step", "execution", "workflow", "permanent"]

Outcome = Literal[
    "unparsed", "live", "archived", "young", "pinned", "referenced", "orphan", "expired"
]
TRIMMED_RECORDS = 2
"""Trimming leaves the last record of each subject (P7): here those of request and control."""
RECLAIMABLE: frozenset[Outcome] = frozenset({"orphan", "expired"})


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asked for its result: the content of a ``keep`` object."""

    scope: ResultScope = "execution"
    expires_ms: int | None = None
    v: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a verdict rests on."""

    now_ms: int
    grace_ms: int
    """From an execution's birth, and from a payload's last write."""
    payload_ttl_ms: int
    events: Mapping[int, int]
    """Executions that have records in the log, and how many on their own subjects."""
    ended: Set[int] = frozenset()
    """Those of them that are known to have ended."""
    archived: Mapping[int, int] = field(default_factory=dict)
    """Executions with a verified archive, and until when that is kept."""
    keeps: Mapping[str, Keep] = field(default_factory=dict)
    """By the key of the result without its extension."""
    referenced: Set[str] | None = None
    """Digests of payloads that something names; None when nobody looked, and then all stay."""


def verdict(info: ObjectInfo, facts: Facts) -> Outcome:
    """Whether one object may go, and why."""
    digest = payload_sha256(info.key)
    if digest is not None:
        return _payload(info, digest, facts)
    try:
        key = parse_key(info.key)
        born_ms = mint_time_ms(key.name.execution_id)
    except UsageError:
        return "unparsed"
    return _result(info, key, born_ms, facts)


def stem(key: str) -> str:
    """A result's key without its extension: what it shares with its ``keep`` object."""
    return key.rpartition(".")[0]


def _result(info: ObjectInfo, key: ResultKey, born_ms: int, facts: Facts) -> Outcome:
    execution = key.name.execution_id
    if facts.now_ms - born_ms < facts.grace_ms:
        return "young"
    keep = facts.keeps.get(stem(info.key))
    if keep is not None:
        if keep.expires_ms is not None and keep.expires_ms <= facts.now_ms:
            return "expired"
        if keep.scope == "permanent":
            return "pinned"
        if keep.scope == "step" and execution in facts.ended:
            return "expired"
    records = facts.events.get(execution, 0)
    until_ms = facts.archived.get(execution)
    if until_ms is None:
        return "live" if records else "orphan"
    if records > TRIMMED_RECORDS:
        return "live"
    return "archived" if until_ms > facts.now_ms else "orphan"


def _payload(info: ObjectInfo, digest: str, facts: Facts) -> Outcome:
    if info.changed_ms is None:
        return "young"
    age_ms = facts.now_ms - info.changed_ms
    if age_ms < max(facts.payload_ttl_ms, facts.grace_ms):
        return "young"
    if facts.referenced is None or digest in facts.referenced:
        return "referenced"
    return "orphan"
