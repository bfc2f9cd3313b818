"""Upcasters: events of old schema versions lifted to the newest one when they are read (UPC-1).

The log is never rewritten, so an event keeps the version it was written with. Every reader takes
records through ``decode_record``, which asks the registry here; nothing above it ever sees an old
version. An upcaster is a pure function over the plain mapping of one event: the type of an event
may have been renamed meanwhile, so nothing is assumed about it but schema name and version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from noetl_ray.errors import EnvelopeError
from noetl_ray.events.canonical import canonical_json, digest, sha256_hex

SCHEMA_NAME = "noetl.event"
SCHEMA_VERSION = 1

RawEvent = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcaster:
    """One step up: events of ``schema_name`` at ``from_version`` become ``to_version``."""

    schema_name: str
    from_version: int
    to_version: int
    lift: Callable[[RawEvent], RawEvent]
    """Gives the lifted event; must be pure. The version is stamped by the registry."""
    revision: str = "1"
    """Changed whenever ``lift`` gives something else than before: it is part of the digest."""


class UpcasterRegistry:
    """A fixed set of upcasters; the newest version it knows is the only one that leaves it."""

    def __init__(self, upcasters: Iterable[Upcaster] = ()) -> None:
        """Bind the set.

        Raises:
            EnvelopeError: one does not raise the version, or two start from the same one.
        """
        self._by_start: dict[tuple[str, int], Upcaster] = {}
        self._newest = {SCHEMA_NAME: SCHEMA_VERSION}
        for each in upcasters:
            start = (each.schema_name, each.from_version)
            if each.to_version <= each.from_version:
                msg = f"upcaster of {_named(*start)} must raise the version, not {each.to_version}"
                raise EnvelopeError(msg)
            if start in self._by_start:
                msg = f"two upcasters start from {_named(*start)}"
                raise EnvelopeError(msg)
            self._by_start[start] = each
            held = self._newest.get(each.schema_name, 0)
            self._newest[each.schema_name] = max(held, each.to_version)
        self.digest = digest(
            {
                "newest": self._newest,
                "upcasters": sorted(
                    [u.schema_name, u.from_version, u.to_version, u.revision]
                    for u in self._by_start.values()
                ),
            }
        )
        """SHA-256 over what is registered, whatever the order; states and snapshots keep it."""

    def newest(self, schema_name: str) -> int:
        """The version events of a schema leave with, 0 for a schema nobody knows."""
        return self._newest.get(schema_name, 0)

    def is_newest(self, schema_name: str, version: int) -> bool:
        """Whether an event can be taken as it is."""
        return self._newest.get(schema_name) == version

    def lift(self, raw: RawEvent) -> RawEvent:
        """An event at its newest version, sealed anew; the given mapping is not to be used again.

        Raises:
            EnvelopeError: a newer program wrote it, no upcaster leads up from it, or it was changed
            after it was written.
        """
        name = str(raw.get("schema_name", SCHEMA_NAME))
        version = int(raw.get("schema_version", 1))
        if self.is_newest(name, version):
            return raw
        if not self.newest(name) or version > self.newest(name):
            msg = f"{_named(name, version)} was written by a newer version of noetl-ray: upgrade"
            raise EnvelopeError(msg)
        sealed = raw.get("envelope_checksum", "")
        if sealed and raw_checksum(raw) != sealed:
            # Lifting seals anew, which would hide the damage.
            msg = f"the checksum of event {raw.get('event_id')} does not fit"
            raise EnvelopeError(msg)
        while version < self.newest(name):
            step = self._by_start.get((name, version))
            if step is None:
                msg = f"no upcaster leads up from {_named(name, version)}"
                raise EnvelopeError(msg)
            raw = step.lift(raw)
            version = step.to_version
            raw = raw | {"schema_name": name, "schema_version": version}
        return raw | {"envelope_checksum": raw_checksum(raw) if sealed else ""}


def raw_checksum(raw: RawEvent) -> str:
    """The content checksum of an event as it is stored, whatever its version."""
    bare = raw | {"envelope_checksum": "", "ingest_time": None, "producer": ""}
    return sha256_hex(canonical_json(bare))


_installed = [UpcasterRegistry()]


def registry() -> UpcasterRegistry:
    """The registry of this process."""
    return _installed[-1]


def install(new: UpcasterRegistry) -> UpcasterRegistry:
    """Make a registry that of this process, before anything is read; the one before comes back."""
    before, _installed[-1] = _installed[-1], new
    return before


def _named(schema_name: str, version: int) -> str:
    return f"{schema_name} v{version}"
