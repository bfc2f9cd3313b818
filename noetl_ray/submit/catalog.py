"""The catalog: registering a playbook is an event on the subject of its path (P12).

The source lies content-addressed in the object store; the event holds path, version and digest.
Each version remembers the position of the one before, so an older one is reached by reading back
along the path's own subject, without a scan of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl_ray.dsl.parse import parsed_playbook
from noetl_ray.errors import ConflictError, NotFoundError, VersionConflictError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.locator.resource import payload_locator
from noetl_ray.payloads.content import get_payload, put_payload
from noetl_ray.submit.ports import PlaybookCache, SubmitPorts
from noetl_ray.wal.subjects import catalog_subject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl_ray.dsl.model import Playbook
    from noetl_ray.events.envelope import PayloadRef
    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Recorded

MEDIA_PLAYBOOK = "application/yaml"
REGISTER_TRIES_MAX = 16
VERSIONS_WALKED_MAX = 10_000
REGISTER_FIRST = "; register its file first: noetl-ray register FILE"

__all__ = [
    "CatalogEntry",
    "PlaybookCache",
    "find_playbook",
    "load_playbook",
    "playbook_text",
    "playbook_versions",
    "register_playbook",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One registered version."""

    path: str
    version: int
    digest: str
    position: int
    event_id: int
    registered_at: str
    name: str | None = None
    size_bytes: int | None = None
    previous_position: int = 0
    created: bool = False
    """Whether this call made the version, or found it."""

    def pinned(self) -> dict[str, str | int]:
        """What ``execution.requested`` keeps of it."""
        return {"path": self.path, "version": self.version, "digest": self.digest}


async def register_playbook(ports: SubmitPorts, scope: Scope, source: str) -> CatalogEntry:
    """Register a playbook's text; the same text as the newest version gives that version back.

    Raises:
        PlaybookError: the text is not a playbook that can be run.
    """
    data = source.encode()
    # A text held here was parsed and stored before: the digest is the content.
    held = ports.playbooks.get(scope, sha256_hex(data))
    playbook = held or parsed_playbook(source)
    reference = None if held else await _store(ports, scope, data)
    subject = catalog_subject(scope, playbook.path)
    for _ in range(REGISTER_TRIES_MAX):
        newest = await _newest(ports, scope, playbook.path)
        if newest is not None and newest.digest == playbook.digest:
            ports.playbooks.put(scope, playbook)
            return newest
        if reference is None:
            reference = await _store(ports, scope, data)
        version = newest.version + 1 if newest else 1
        record = ports.record(
            scope,
            subject,
            EventType.PLAYBOOK_REGISTERED,
            {
                "path": playbook.path,
                "name": playbook.name,
                "version": version,
                "digest": playbook.digest,
                "size": len(data),
            },
            aggregate=(AggregateType.PLAYBOOK, f"playbook/{playbook.path}"),
            idempotency_key=f"{playbook.path}@{version}",
            prev_event_id=newest.event_id if newest else None,
            payload_ref=reference,
            meta={"previous_position": newest.position if newest else 0},
        )
        expected = newest.position if newest else 0
        try:
            position = await ports.log.append(subject, record, expected_version=expected)
        except VersionConflictError:
            continue
        ports.playbooks.put(scope, playbook)
        return CatalogEntry(
            path=playbook.path,
            version=version,
            digest=playbook.digest,
            position=position,
            event_id=record.events[0].event_id,
            registered_at=record.events[0].event_time,
            name=playbook.name,
            size_bytes=len(data),
            previous_position=expected,
            created=True,
        )
    msg = f"{playbook.path} is being registered by too many at once; try again"
    raise ConflictError(msg)


async def find_playbook(
    ports: SubmitPorts,
    scope: Scope,
    path: str,
    *,
    version: int | None = None,
    digest: str | None = None,
) -> CatalogEntry:
    """A registered version: the newest, or the one of a version or digest.

    Raises:
        NotFoundError: there is none, with what to do about it.
    """
    newest = await _newest(ports, scope, path)
    if newest is None:
        msg = f"no playbook {path!r} is registered{REGISTER_FIRST}"
        raise NotFoundError(msg)
    async for entry in _back(ports, newest):
        if (version is None or entry.version == version) and digest in (None, entry.digest):
            return entry
        if version is not None and entry.version < version:
            break
    wanted = f"version {version}" if version is not None else f"text with digest {digest}"
    msg = f"playbook {path!r} has no {wanted}; its newest version is {newest.version}"
    raise NotFoundError(msg)


async def playbook_versions(
    ports: SubmitPorts, scope: Scope, path: str, *, before: int | None = None, limit: int = 100
) -> list[CatalogEntry]:
    """The versions of a path, newest first; ``before`` is the version to read on from.

    Read from the log, so that what was registered a moment ago is there.

    Raises:
        NotFoundError: the path is not registered.
    """
    newest = await find_playbook(ports, scope, path)
    found: list[CatalogEntry] = []
    async for entry in _back(ports, newest):
        if before is None or entry.version < before:
            found.append(entry)
        if len(found) >= limit:
            break
    return found


async def playbook_text(ports: SubmitPorts, scope: Scope, digest: str) -> str:
    """The text of a registered version, as it was given.

    Raises:
        ObjectMissingError: no such text is stored in this scope.
    """
    uri = payload_locator(scope, digest)
    return (await get_payload(ports.objects, ports.placement, scope, uri)).decode()


async def load_playbook(ports: SubmitPorts, scope: Scope, digest: str) -> Playbook:
    """A registered playbook's model, by the digest of its text.

    Raises:
        ObjectMissingError: no such text is stored in this scope.
    """
    held = ports.playbooks.get(scope, digest)
    if held is not None:
        return held
    playbook = parsed_playbook(await playbook_text(ports, scope, digest))
    ports.playbooks.put(scope, playbook)
    return playbook


async def _store(ports: SubmitPorts, scope: Scope, data: bytes) -> PayloadRef:
    return await put_payload(ports.objects, ports.placement, scope, data, MEDIA_PLAYBOOK)


async def _newest(ports: SubmitPorts, scope: Scope, path: str) -> CatalogEntry | None:
    recorded = await ports.log.last(catalog_subject(scope, path))
    return None if recorded is None else _entry(recorded)


async def _back(ports: SubmitPorts, entry: CatalogEntry) -> AsyncIterator[CatalogEntry]:
    """A version and those before it, along the path's own subject."""
    for _ in range(VERSIONS_WALKED_MAX):
        yield entry
        recorded = await ports.log.get(entry.previous_position) if entry.previous_position else None
        if recorded is None:
            return
        entry = _entry(recorded)


def _entry(recorded: Recorded) -> CatalogEntry:
    event = recorded.record.events[-1]
    return CatalogEntry(
        path=event.payload["path"],
        version=event.payload["version"],
        digest=event.payload["digest"],
        position=recorded.position,
        event_id=event.event_id,
        registered_at=event.event_time,
        name=event.payload.get("name"),
        size_bytes=event.payload.get("size"),
        previous_position=event.meta.get("previous_position", 0),
    )
