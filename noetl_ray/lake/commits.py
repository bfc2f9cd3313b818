"""The lake's own log: numbered commits, each made by whoever is first, each whole or not there.

A commit names the files it adds and removes and, for a build, the positions of the log it covers.
What the lake holds is the sum of its commits and nothing else: a file that no commit names is
invisible, whoever wrote it. Two builds at once therefore cannot both add the same positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.errors import ConflictError, ObjectMissingError
from noetl_ray.events.canonical import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.lake.files import Files

COMMITS = "commits"
WHOLE_EVERY = 16
"""Each so many commits one lists everything, so that a reader need not begin at the first."""
KEPT_S = 3_600.0
"""How long a file that is no longer named stays, for those who still read it."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file of one partition."""

    key: str
    table: str
    tenant: str
    day: str
    kind: str = ""
    """The partition's type; empty where a table has none."""
    rows: int
    bytes: int
    executions: tuple[int, int] | None = None
    """The least and the largest execution id of its rows; None where nobody looked."""

    @property
    def partition(self) -> tuple[str, str, str, str]:
        """What it lies together with."""
        return (self.table, self.tenant, self.day, self.kind)


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of the lake."""

    number: int
    what: str
    """``build`` or ``compact``."""
    position: int
    """The last position of the log that the lake holds after it."""
    added: tuple[Part, ...] = ()
    removed: tuple[str, ...] = ()
    whole: tuple[Part, ...] | None = None
    """Everything there is after it, now and then."""
    made_at: str = ""
    counts: dict[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The lake after its last commit."""

    number: int = 0
    position: int = 0
    parts: dict[str, Part] = field(default_factory=dict)

    def of(self, table: str) -> list[Part]:
        """The files of one table, in order of their keys."""
        return sorted((p for p in self.parts.values() if p.table == table), key=lambda p: p.key)

    def after(self, commit: Commit) -> Snapshot:
        """What it is with one more commit."""
        if commit.whole is not None:
            parts = {part.key: part for part in commit.whole}
        else:
            gone = set(commit.removed)
            parts = {key: part for key, part in self.parts.items() if key not in gone}
            parts |= {part.key: part for part in commit.added}
        return Snapshot(number=commit.number, position=commit.position, parts=parts)


_decoder = msgspec.json.Decoder(Commit)


def commit_key(number: int) -> str:
    """Where a commit lies."""
    return f"{COMMITS}/{number:012d}.json"


def read_snapshot(files: Files) -> Snapshot:
    """What the lake holds now; a lake that was never built is empty."""
    numbers = sorted(
        int(name)
        for key, _ in files.list(COMMITS)
        if (name := key.removeprefix(f"{COMMITS}/").removesuffix(".json")).isdecimal()
    )
    start = max((n for n in numbers if n % WHOLE_EVERY == 0), default=0)
    snapshot = Snapshot()
    for number in numbers:
        if number >= start:
            snapshot = snapshot.after(_decoder.decode(files.get(commit_key(number))))
    return snapshot


def read_commit(files: Files, number: int) -> Commit | None:
    """One commit, or None."""
    try:
        return _decoder.decode(files.get(commit_key(number)))
    except ObjectMissingError:
        return None


def make_commit(
    files: Files,
    before: Snapshot,
    *,
    what: str,
    position: int,
    added: Iterable[Part],
    removed: Iterable[str] = (),
    made_at: str,
    counts: dict[str, int] | None = None,
) -> Snapshot:
    """Make the next commit.

    Raises:
        ConflictError: somebody else made it; nothing has changed.
    """
    commit = Commit(
        number=before.number + 1,
        what=what,
        position=position,
        added=tuple(sorted(added, key=lambda part: part.key)),
        removed=tuple(sorted(removed)),
        made_at=made_at,
        counts=counts or {},
    )
    snapshot = before.after(commit)
    if commit.number % WHOLE_EVERY == 0:
        whole = tuple(sorted(snapshot.parts.values(), key=lambda part: part.key))
        commit = msgspec.structs.replace(commit, whole=whole)
    if not files.create(commit_key(commit.number), canonical_json(commit)):
        msg = f"commit {commit.number} of the lake was made by somebody else meanwhile"
        raise ConflictError(msg)
    return snapshot


def vacuum(files: Files, *, kept_s: float = KEPT_S) -> dict[str, Any]:
    """Remove files that no commit names any more and that nobody can still be writing or reading.

    Returns:
        ``removed`` and ``bytes``.
    """
    snapshot = read_snapshot(files)
    removed = size = 0
    for key, held in files.list("tables"):
        if key not in snapshot.parts and files.age_s(key) >= kept_s:
            files.delete(key)
            removed += 1
            size += held
    return {"removed": removed, "bytes": size}
