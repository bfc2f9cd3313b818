"""The materializer: sees that every referenced result lies at the key its name says (MAT-1, 2).

It reads the log by a subscription and cursor of its own, so a slow object store delays no other
role. It never changes a result, never fails an event and never crashes for a store: what cannot be
done now is tried again, and its position does not pass it. The cursor is a small object; losing it
costs probes, nothing else.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import Counter

from noetl_ray.errors import ObjectMissingError, StoreError, UsageError
from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.events.types import EventType
from noetl_ray.locator.keys import cursor_key
from noetl_ray.results.ref import is_reference
from noetl_ray.results.repairing import RepairReport
from noetl_ray.scope import Scope
from noetl_ray.wal.subjects import shard_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.clock import Clock
    from noetl_ray.events.envelope import Event
    from noetl_ray.results.repairing import Repairer
    from noetl_ray.results.store import ResultStore, Staged
    from noetl_ray.wal.port import Log, Recorded, Subscription

CONSUMER = "noetl_result_materializer"
BATCH_RECORDS = 256
POLL_S = 1.0
CURSOR_EVERY_S = 1.0
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 10.0
NAMES_KEPT = 20
"""How many missing results the summary names."""

_REFERENCE = b'"reference":{'
"""How canonical JSON says that something has a reference: no escape can stand inside it, so a
record without these bytes announces no result outside the log and is not read any further."""

_DR = Counter(
    "noetl_worker_result_tier_dr",
    "Objects the materializer verified, by what was found and what became of it.",
    ("outcome",),
)

_BEARERS = frozenset({EventType.CALL_DONE, EventType.CALL_ERROR})


class _Cursor(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    v: int = 1


class Materializer:
    """One materializer for some shards."""

    name = "materializer"

    def __init__(
        self,
        log: Log,
        results: ResultStore,
        clock: Clock,
        *,
        shards: Sequence[int],
        enabled: bool = True,
        from_position: int | None = None,
        consumer: str = CONSUMER,
        repairer: Repairer | None = None,
    ) -> None:
        """Bind the role to its ports.

        Args:
            log: Where results are announced.
            results: Where they must lie; also holds the cursor.
            clock: For pauses and the pace of cursor writes.
            shards: The shards this one owns (MAT-3); no other materializer may own them.
            enabled: False makes every method a no-op that touches no port but the clock.
            from_position: Start here instead of at the stored cursor.
            consumer: Names the cursor, together with the shards.
            repairer: Compares each object with its digest and rebuilds bad ones (DR-1); None
                looks whether it is there and no closer.
        """
        self._log = log
        self._results = results
        self._clock = clock
        self._shards = tuple(sorted(set(shards)))
        self._enabled = enabled
        self._from_position = from_position
        owned = sha256_hex(canonical_json(self._shards))[:12]
        self._cursor_key = cursor_key(results.placement, f"{consumer}-{owned}")
        self._subscription: Subscription | None = None
        self._pending: deque[Recorded] = deque()
        self._position = 0
        self._cursor_position = 0
        self._cursor_due = 0.0
        self._failures_in_row = 0
        self._counts: dict[str, int] = dict.fromkeys(
            ("seen", "present", "written", "missing", "mismatched", "refused", "retries"), 0
        )
        self._repairer = repairer
        self._repairs = RepairReport(dry_run=False)
        self._missing: deque[str] = deque(maxlen=NAMES_KEPT)
        self._last_error = ""

    async def start(self) -> None:
        """Open nothing yet: the first turn does, where a failing store can be waited out."""

    async def step(self) -> None:
        """Take what the log has, see to it, and note the position; or wait a bounded time."""
        if not self._enabled:
            await self._clock.sleep(POLL_S)
            return
        try:
            if self._subscription is None:
                await self._open()
            assert self._subscription is not None
            if not self._pending:
                self._pending.extend(await self._subscription.next_batch(BATCH_RECORDS, POLL_S))
            while self._pending:
                await self._take(self._pending[0])
                self._position = self._pending.popleft().position
                self._failures_in_row = 0
            await self._note_position()
        except StoreError as error:
            await self._back_off(error)

    async def stop(self) -> None:
        """Let go of the subscription and note the position if the store answers."""
        if self._subscription is None:
            return
        await self._subscription.close()
        self._subscription = None
        self._cursor_due = 0.0
        try:
            await self._note_position()
        except StoreError as error:
            self._last_error = str(error)

    def summary(self) -> dict[str, Any]:
        """Position, counts and the newest missing names."""
        return {
            "enabled": self._enabled,
            "shards": len(self._shards),
            "position": self._position,
            **self._counts,
            "missing_results": list(self._missing),
            "last_error": self._last_error,
            **({"repairs": dict(self._repairs.counts)} if self._repairer else {}),
        }

    async def _open(self) -> None:
        start = self._from_position
        if start is None:
            start = await self._read_cursor() + 1
        self._position = self._cursor_position = start - 1
        filters = [shard_filter(shard) for shard in self._shards]
        self._subscription = await self._log.subscribe(filters, from_position=start)

    async def _take(self, recorded: Recorded) -> None:
        """See to every result of a record; doing so twice changes nothing."""
        if not recorded.may_hold(_REFERENCE):
            return
        for event in recorded.record.events:
            result = event.payload.get("result")
            if event.event_type in _BEARERS and isinstance(result, dict) and is_reference(result):
                await self._ensure(event, result)

    async def _ensure(self, event: Event, result: dict[str, Any]) -> None:
        outcome: Staged
        try:
            scope = Scope(tenant_id=event.tenant_id, organization_id=event.organization_id)
            outcome = await self._results.ensure_staged(scope, result)
        except UsageError as error:
            # A name that cannot be read, or is another tenant's, will not get better by waiting.
            self._counts["seen"] += 1
            self._counts["refused"] += 1
            self._last_error = str(error)
            return
        self._counts["seen"] += 1
        self._counts[outcome] += 1
        if self._repairer is not None:
            await self._verify(self._repairer, scope, event)
        elif outcome in {"missing", "mismatched"}:
            self._missing.append(result["reference"]["uri"])

    async def _verify(self, repairer: Repairer, scope: Scope, event: Event) -> None:
        """Look at the bytes themselves; what cannot be rebuilt is named and not waited for."""
        report = RepairReport(dry_run=False)
        await repairer.see_to_event(scope, event, report, set())
        self._repairs.counts += report.counts
        for outcome, count in report.counts.items():
            _DR.labels(outcome=outcome).inc(count)
        lost = [each["uri"] for each in report.findings if each["fate"] != "rebuilt"]
        self._missing.extend(dict.fromkeys(lost))

    async def _back_off(self, error: StoreError) -> None:
        self._failures_in_row += 1
        self._counts["retries"] += 1
        self._last_error = str(error)
        exponent = min(self._failures_in_row - 1, 16)
        await self._clock.sleep(min(BACKOFF_FIRST_S * 2**exponent, BACKOFF_MAX_S))

    async def _read_cursor(self) -> int:
        try:
            data = await self._results.objects.get(self._cursor_key)
            return max(0, msgspec.json.decode(data, type=_Cursor).position)
        except (ObjectMissingError, msgspec.DecodeError):
            return 0

    async def _note_position(self) -> None:
        now = self._clock.monotonic()
        if self._position == self._cursor_position or now < self._cursor_due:
            return
        self._cursor_due = now + CURSOR_EVERY_S
        cursor = _Cursor(position=self._position)
        await self._results.objects.put(self._cursor_key, canonical_json(cursor))
        self._cursor_position = self._position
