"""Verifying stored bytes against what the log says, and making bad ones good again (DR-1).

The log names every object with its digest, so a missing, cut or altered one is told from a healthy
one for certain. It is made anew from the first source that gives the very same bytes: another copy,
a cache near to whoever repairs, the payload the value was kept in, or the producer itself where it
is free of side effects. Bytes with another digest are never written. Healthy objects are left
alone, and so is the log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from noetl_ray.errors import NoetlError, ObjectMissingError, StoreError, StoreUnavailableError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.events.envelope import Event
from noetl_ray.locator.keys import payload_key, result_key
from noetl_ray.locator.resource import PAYLOADS, parse_resource_uri
from noetl_ray.locator.result import SCHEME, parse_result_uri
from noetl_ray.payloads.content import get_payload
from noetl_ray.results.codecs import EXTENSIONS, MEDIA_JSON, decode_result
from noetl_ray.results.tier import decide_tier
from noetl_ray.scope import scope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.results.reading import ResultReader
    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Log

State = Literal["healthy", "missing", "corrupt", "unreachable"]
Source = Literal["copy", "cache", "payload", "producer"]
NAMED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One object the log names."""

    uri: str
    sha256: str
    key: str
    event: Event
    block: dict[str, Any]
    """What the event says of it."""

    @property
    def secret(self) -> bool:
        """Whether it is written sealed."""
        return bool(self.block.get("secret"))


class Producer(Protocol):
    """Who can run a task again that has no side effects."""

    async def produce(self, reference: Reference) -> bytes | None:
        """The bytes its result then has; None when it cannot or may not be run again."""
        ...


@dataclass(slots=True, kw_only=True)
class RepairReport:
    """What was looked at and what became of it."""

    dry_run: bool
    counts: Counter[str] = field(default_factory=Counter)
    """Copies by state; ``rebuilt`` and ``lost`` among those that were not healthy."""
    findings: list[dict[str, str]] = field(default_factory=list)
    """The first NAMED_MAX bad ones: uri, copy, state, and where good bytes came from."""


class Repairer:
    """Verifies and repairs what one scope's records name."""

    def __init__(
        self, log: Log, results: ResultReader, *, producer: Producer | None = None
    ) -> None:
        """Bind the ports; without a producer nothing is run again."""
        self._log = log
        self._results = results
        self._producer = producer

    async def repair(
        self, scope: Scope, *subject_filters: str, dry_run: bool = False
    ) -> RepairReport:
        """Look at every object that records under the filters name; write what can be made good.

        Raises:
            LogUnavailableError: the log cannot be read now.
        """
        report = RepairReport(dry_run=dry_run)
        seen: set[str] = set()
        for subject_filter in subject_filters:
            async for recorded in self._log.read(subject_filter):
                for event in recorded.record.events:
                    if scope_of(event.tenant_id, event.organization_id) == scope:
                        await self.see_to_event(scope, event, report, seen)
        return report

    async def see_to_event(
        self, scope: Scope, event: Event, report: RepairReport, seen: set[str]
    ) -> None:
        """The same for what one event names; ``seen`` keeps what was looked at."""
        for reference in self._references(scope, event):
            place = f"{reference.key} {reference.sha256}"
            if place not in seen:
                seen.add(place)
                await self._see_to(scope, reference, report)

    async def _see_to(self, scope: Scope, reference: Reference, report: RepairReport) -> None:
        """Verify one object in every copy, and rebuild the bad ones."""
        bad: list[tuple[int, ObjectStore, State]] = []
        good: bytes | None = None
        for number, copy in enumerate(self._results.objects.copies()):
            state, data = await _look(copy, reference)
            report.counts[state] += 1
            good = data if good is None else good
            if state != "healthy":
                bad.append((number, copy, state))
        if not bad:
            return
        source: Source | None = "copy" if good is not None else None
        if good is None:
            found = await self._elsewhere(scope, reference)
            if found is not None:
                source, good = found
        for number, copy, state in bad:
            fate = "lost" if good is None else "rebuilt"
            if fate == "rebuilt" and not report.dry_run:
                assert good is not None
                try:
                    await _write(copy, reference, good)
                except StoreError:
                    fate = "unwritten"
            report.counts[fate] += 1
            if len(report.findings) < NAMED_MAX:
                finding = {"uri": reference.uri, "copy": str(number), "state": state, "fate": fate}
                report.findings.append(finding | ({"source": source} if source else {}))

    async def _elsewhere(self, scope: Scope, reference: Reference) -> tuple[Source, bytes] | None:
        """Good bytes from elsewhere, compared with the digest before they are given."""
        data = await self._cached(scope, reference)
        if data is not None:
            return "cache", data
        data = await self._encoded(scope, reference, reference.block.get("payload_uri"))
        if data is not None:
            return "payload", data
        if self._producer is not None:
            data = await self._producer.produce(reference)
            if data is not None and sha256_hex(data) == reference.sha256:
                return "producer", data
        return None

    async def _cached(self, scope: Scope, reference: Reference) -> bytes | None:
        if reference.secret or not reference.uri.startswith(SCHEME):
            return None
        found = await self._results.cached(scope, reference.block)
        data = None if found is None else bytes(found)
        return data if data is not None and sha256_hex(data) == reference.sha256 else None

    async def _encoded(self, scope: Scope, reference: Reference, payload: Any) -> bytes | None:
        if not isinstance(payload, str):
            return None
        objects, placement = self._results.objects, self._results.placement
        try:
            kept = await get_payload(objects, placement, scope, payload)
            made = decide_tier(decode_result(MEDIA_JSON, kept), force_tier=True)
        except NoetlError:
            return None
        return made.data if made.sha256 == reference.sha256 else None

    def _references(self, scope: Scope, event: Event) -> Iterator[Reference]:
        blocks = list(_blocks_in(event.payload))
        if event.payload_ref is not None:
            ref = event.payload_ref
            # What is kept outside the log is written sealed, except the texts of playbooks.
            secret = ref.media_type == MEDIA_JSON
            blocks.append({"uri": ref.uri, "sha256": ref.sha256, "secret": secret})
        for block in blocks:
            key = self._key(scope, block)
            if key is not None:
                yield Reference(
                    uri=block["uri"], sha256=block["sha256"], key=key, event=event, block=block
                )

    def _key(self, scope: Scope, block: dict[str, Any]) -> str | None:
        placement, uri = self._results.placement, block["uri"]
        try:
            if uri.startswith(f"{SCHEME}tenant/"):
                locator = parse_resource_uri(uri)
                if locator.kind != PAYLOADS or locator.scope != scope:
                    return None
                return payload_key(placement, scope, locator.id)
            name = parse_result_uri(uri)
        except NoetlError:
            return None
        ext = EXTENSIONS.get(str(block.get("media_type")))
        if ext is None or name.tenant != scope.tenant_id:
            return None
        return result_key(placement, name, ext)


async def _look(copy: ObjectStore, reference: Reference) -> tuple[State, bytes | None]:
    try:
        data = await copy.get(reference.key)
    except ObjectMissingError:
        return "missing", None
    except StoreUnavailableError:
        return "unreachable", None
    except StoreError:
        return "corrupt", None
    return ("healthy", data) if sha256_hex(data) == reference.sha256 else ("corrupt", None)


async def _write(copy: ObjectStore, reference: Reference, data: bytes) -> None:
    store = copy.for_secrets() if reference.secret else copy
    await store.put(reference.key, data)


def _blocks_in(payload: Any) -> Iterator[dict[str, Any]]:
    """Whatever a payload says of stored bytes: a name and their digest, at any depth."""
    stack = [payload]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            uri = item.get("uri")
            if isinstance(uri, str) and uri.startswith(SCHEME) and "sha256" in item:
                yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
