"""Garbage collection of one tenant's objects: gathers the facts, asks for verdicts, deletes.

The log says what is alive. A log that knows no execution of the tenant at all is more likely the
wrong log than an empty one, so nothing is deleted then. A dry run reads the same and deletes
nothing. Deleting is repeatable: an object that cannot be deleted now is found again.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from noetl_ray.errors import ConflictError, ObjectMissingError, StoreError
from noetl_ray.events.envelope import encode_record
from noetl_ray.events.types import EXECUTION_TERMINAL
from noetl_ray.locator.keys import (
    artifact_prefix,
    parse_key,
    payload_key,
    payload_prefix,
    payload_sha256,
    tenant_prefixes,
)
from noetl_ray.results.garbage import KEEP_EXT, RECLAIMABLE, Facts, Keep, stem, verdict
from noetl_ray.wal.subjects import (
    CONTROL,
    EVENTS_ROOT,
    SUBMIT,
    SYSTEM_ROOT,
    parse_event_subject,
    tenant_filter,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from noetl_ray.clock import Clock
    from noetl_ray.locator.keys import Placement
    from noetl_ray.payloads.port import ObjectInfo, ObjectStore
    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Log

NAMED_MAX = 100
"""Objects a report names; counts have all of them."""
_PAYLOAD_NAME = re.compile(rb"payloads/sha256/([0-9a-f]{64})")


class Archive(Protocol):
    """Who knows which executions lie in a verified archive."""

    async def kept_until(self, scope: Scope) -> Mapping[int, int]:
        """Executions of the tenant with an archive, and until when it is kept (milliseconds)."""
        ...

    def every_record(self, scope: Scope, now_ms: int) -> AsyncIterator[bytes]:
        """The bytes of every archived record that is kept now: what they name is still wanted."""
        ...


@dataclass(slots=True, kw_only=True)
class Report:
    """What a collection found and did."""

    dry_run: bool
    counts: Counter[str] = field(default_factory=Counter)
    """Objects by outcome; ``deleted`` and ``failed`` among those that may go."""
    reclaimable_bytes: int = 0
    live_candidates: int = 0
    """Candidates that turned out to be alive: always 0, and looked at again before deleting."""
    candidates: list[str] = field(default_factory=list)
    """Keys that may go, the first NAMED_MAX."""


class Collector:
    """Collects the garbage of one scope."""

    def __init__(
        self,
        log: Log,
        objects: ObjectStore,
        placement: Placement,
        clock: Clock,
        *,
        grace_ms: int,
        payload_ttl_ms: int,
        archive: Archive | None = None,
    ) -> None:
        """Bind the collector; nothing is read yet.

        Args:
            log: Says what is alive.
            objects: What is looked through.
            placement: What keys need beside names.
            clock: For ages.
            grace_ms: How young nothing is touched.
            payload_ttl_ms: How old a payload without a name must be.
            archive: Knows executions that were trimmed from the log; None: there are none.
        """
        self._log = log
        self._objects = objects
        self._placement = placement
        self._clock = clock
        self._grace_ms = grace_ms
        self._payload_ttl_ms = payload_ttl_ms
        self._archive = archive

    async def collect(self, scope: Scope, *, dry_run: bool = True) -> Report:
        """Look at every object of the tenant; delete what may go unless it is a dry run.

        Raises:
            ConflictError: the log knows no execution of this tenant, so it may be the wrong one.
            LogUnavailableError, StoreUnavailableError: nothing can be said now.
        """
        report = Report(dry_run=dry_run)
        # Objects first: one that is written after the log was read is not looked at at all.
        found = [info async for info in self._results(scope)]
        payloads = [info async for info in self._objects.list(self._payloads(scope))]
        facts = await self._facts(scope, found, payloads)
        chosen: list[ObjectInfo] = []
        for info in (*found, *payloads):
            outcome = verdict(info, facts)
            report.counts[outcome] += 1
            if outcome in RECLAIMABLE:
                chosen.append(info)
                report.reclaimable_bytes += info.size_bytes
        report.candidates = [info.key for info in chosen[:NAMED_MAX]]
        if chosen and not facts.events:
            msg = (
                f"the log knows no execution of tenant {scope.tenant_id}, yet there are "
                f"{len(chosen)} objects: is it the right log? nothing was deleted"
            )
            raise ConflictError(msg)
        for info in () if dry_run else chosen:
            await self._delete(scope, info, facts, report)
        return report

    async def _delete(self, scope: Scope, info: ObjectInfo, facts: Facts, report: Report) -> None:
        if payload_sha256(info.key) is None:
            execution_id = parse_key(info.key).name.execution_id
            records = await self._records(scope, str(execution_id))
            if verdict(info, replace(facts, events=records)) not in RECLAIMABLE:
                report.live_candidates += 1
                return
        try:
            await self._objects.delete(info.key)
        except StoreError:
            report.counts["failed"] += 1
        else:
            report.counts["deleted"] += 1

    async def _results(self, scope: Scope) -> AsyncIterator[ObjectInfo]:
        for prefix in tenant_prefixes(self._placement, scope.tenant_id):
            async for info in self._objects.list(prefix):
                yield info

    def _payloads(self, scope: Scope) -> str:
        return payload_prefix(self._placement, scope)

    async def _facts(
        self, scope: Scope, results: list[ObjectInfo], payloads: list[ObjectInfo]
    ) -> Facts:
        keeps = await self._keeps(results)
        facts = Facts(
            now_ms=self._clock.now_ms(),
            grace_ms=self._grace_ms,
            payload_ttl_ms=self._payload_ttl_ms,
            events=await self._records(scope, "*"),
            archived=await self._archive.kept_until(scope) if self._archive else {},
            keeps=keeps,
            ended=await self._ended(scope, keeps),
            referenced=frozenset(),
        )
        if any(verdict(info, facts) in RECLAIMABLE for info in payloads):
            # Only now is everything read that could name one.
            return replace(facts, referenced=await self._named(scope, results, facts))
        return replace(facts, referenced=None)

    async def _records(self, scope: Scope, execution: str) -> dict[int, int]:
        """Executions that have records on their own subjects, and how many."""
        found: Counter[int] = Counter()
        for aggregate in (CONTROL, SUBMIT):
            wanted = tenant_filter(scope.tenant_id, execution, aggregate)
            async for subject, count in self._log.subjects(wanted):
                parsed = parse_event_subject(subject)
                if parsed is not None and parsed.execution.isdecimal():
                    found[int(parsed.execution)] += count
        return dict(found)

    async def _keeps(self, results: list[ObjectInfo]) -> dict[str, Keep]:
        keeps: dict[str, Keep] = {}
        for info in results:
            if not info.key.endswith(f".{KEEP_EXT}"):
                continue
            try:
                data = await self._objects.get(info.key)
                keeps[stem(info.key)] = msgspec.json.decode(data, type=Keep)
            except ObjectMissingError:
                continue
            except msgspec.DecodeError:
                # Somebody wanted something: what cannot be read keeps.
                keeps[stem(info.key)] = Keep(scope="permanent")
        return keeps

    async def _ended(self, scope: Scope, keeps: Mapping[str, Keep]) -> set[int]:
        """Executions with results wanted for a while only that have come to their end."""
        asked = {
            parse_key(f"{place}.{KEEP_EXT}").name.execution_id
            for place, keep in keeps.items()
            if keep.scope == "step"
        }
        ended: set[int] = set()
        for execution_id in asked:
            wanted = tenant_filter(scope.tenant_id, str(execution_id), CONTROL)
            async for subject, _ in self._log.subjects(wanted):
                last = await self._log.last(subject)
                if last and last.record.events[-1].event_type in EXECUTION_TERMINAL:
                    ended.add(execution_id)
        return ended

    async def _named(self, scope: Scope, results: list[ObjectInfo], facts: Facts) -> frozenset[str]:
        """Digests of payloads that records, artifacts, results or named payloads name."""
        named: set[str] = set()
        for root in (EVENTS_ROOT, f"{SYSTEM_ROOT}.catalog"):
            async for recorded in self._log.read(f"{root}.>"):
                data = recorded.data or encode_record(recorded.record)
                named |= _names_in(data)
        if self._archive is not None:
            async for data in self._archive.every_record(scope, facts.now_ms):
                named |= _names_in(data)
        async for info in self._objects.list(artifact_prefix(self._placement, scope)):
            named |= await self._names_at(info.key)
        for info in results:
            if verdict(info, facts) not in RECLAIMABLE:
                named |= await self._names_at(info.key)
        # A manifest is a payload that names others.
        new = set(named)
        while new:
            below: set[str] = set()
            for digest in new:
                below |= await self._names_at(payload_key(self._placement, scope, digest))
            new = below - named
            named |= new
        return frozenset(named)

    async def _names_at(self, key: str) -> set[str]:
        try:
            return _names_in(await self._objects.get(key))
        except ObjectMissingError:
            return set()


def _names_in(data: bytes) -> set[str]:
    return {digest.decode() for digest in _PAYLOAD_NAME.findall(data)}
