"""The projector, only writer of the read model (PRJ-1): follows the log, folds, commits, goes on.

Rows and position are one transaction, so a kill anywhere repeats nothing and skips nothing. After
any failure it forgets what it holds, makes its subscription anew from the committed position and
waits a little longer each time (P30); a database that is down never takes the host with it.
Positions are kept per shard, so that shards may move between projectors (PRJ-4, PRJ-8). It answers
no question and nobody waits for it (P14).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from actors.messages import Ended, encode
from actors.restoring import restore_trimmed
from noetl_ray.clock import iso_utc
from noetl_ray.errors import ConfigError, NoetlError, StoreError
from noetl_ray.hints.port import ENDED
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.readmodel.projecting import (
    SYSTEM_SHARD,
    ExecutionKey,
    Part,
    cut_records,
    decode_state,
    executions_of,
    project_records,
    shard_consumer,
    shard_of,
)
from noetl_ray.readmodel.records import (
    EXECUTION_STATE,
    LOG_ID_SHIFT,
    Checkpoint,
    LogRow,
    ProjectionBatch,
)
from noetl_ray.scope import Scope
from noetl_ray.wal.port import Log, Recorded, Subscription, once
from noetl_ray.wal.subjects import SYSTEM_ROOT, shard_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl_ray.clock import Clock
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.hints.port import Hints
    from noetl_ray.readmodel.port import ProjectionStore
    from noetl_ray.replay.archive import Archive
    from noetl_ray.wal.tasklog import PositionedLines, TaskLog

STATES_MAX = 4096
TASKLOG_BATCHES_MAX = 64
TASKLOG_CONSUMER = "tasklog"
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
GATHER_S = 0.01
"""How often a turn looks for company; when none came for so long, it goes on."""
COMMIT_COST_MAX = 0.25
"""The share of time for commits while more keeps coming: after a slow one a turn gathers longer."""
GATHER_S_MIN, GATHER_S_MAX = 0.02, 0.25
"""What a busy turn may add to the lag; PRJ-13 allows 0.5 s."""
OVER_MIN = 0.25
"""The part of that which it gathers for, even if all it has heard of has ended."""


class Projector:
    """Projects a set of shards; with shard 0 also workers, playbooks and task logs."""

    def __init__(
        self,
        log: Log,
        store: ProjectionStore,
        tasklog: TaskLog | None,
        clock: Clock,
        *,
        hints: Hints | None = None,
        consumer: str = "projector-0",
        shards: Sequence[int],
        shard_count: int,
        batch_size: int = 500,
        batch_window_ms: int = 100,
        archive: Archive | None = None,
        on_kept: Callable[..., None] | None = None,
    ) -> None:
        """Check the settings; nothing is opened yet.

        Args:
            log: Where records come from.
            store: Where rows go.
            tasklog: Where printed lines come from, if anywhere.
            clock: Time.
            hints: Where it says that executions have ended, for whoever waits for that.
            consumer: A name that survives restarts (PRJ-8).
            shards: The shards it owns.
            shard_count: How many shards there are.
            batch_size: Records fetched at once.
            batch_window_ms: How long a turn waits for the first record.
            archive: Where executions are of which the log holds only the end.
            on_kept: Told of states before and after each commit.

        Raises:
            ConfigError: a value makes no sense; nothing is clamped (PRJ-9).
        """
        _check("batch_size", batch_size, batch_size > 0, "must be positive")
        _check("batch_window_ms", batch_window_ms, batch_window_ms > 0, "must be positive")
        _check("shard_count", shard_count, shard_count > 0, "must be positive")
        _check("shards", list(shards), len(shards) > 0, "a projector owns at least one shard")
        _check("shards", list(shards), len(set(shards)) == len(shards), "a shard is named twice")
        for shard in shards:
            _check("shards", shard, 0 <= shard < shard_count, f"is not in 0..{shard_count - 1}")
        _check("consumer", consumer, bool(consumer), "must not be empty")
        self.name = consumer
        self._log = log
        self._store = store
        self._tasklog = tasklog if 0 in shards else None
        self._clock = clock
        self._hints = hints
        self._archive = archive
        self._on_kept = on_kept
        self._owned = frozenset((*shards, SYSTEM_SHARD) if 0 in shards else shards)
        self._batch_size = batch_size
        self._window_s = batch_window_ms / 1000
        self._subscription: Subscription | None = None
        self._marks: dict[str, int] = {}
        self._states: OrderedDict[ExecutionKey, ExecutionState] = OrderedDict()
        self._tasklog_position: int | None = None
        self._tasklog_not_before = 0.0
        self._gather_s = 0.0
        self._failures = 0
        self._counts = dict.fromkeys(
            ("records", "events", "log_lines", "stale", "errors", "fold_errors", "unowned",
             "unshardable", "tasklog_errors"),
            0,
        )  # fmt: skip
        self._lag_ms = 0
        self._old = 0
        self._last_error: str | None = None

    async def start(self) -> None:
        """Take up where the store says; what is out of reach is tried again by ``step``."""
        try:
            await self._open()
        except NoetlError as error:
            await self._forget(error)

    async def step(self) -> None:
        """One turn: fetch, fold, commit (PRJ-3); then whatever was printed meanwhile.

        A turn takes what is there as soon as something is there, so a lone event is not kept
        waiting for company. What follows a busy turn gathers while more keeps coming: a transaction
        costs the same for one record as for a hundred, an execution's row is written once however
        often it changed, and what this costs is taken from whoever does the work. What was gathered
        is folded at once, so that only the commit is left when the last record has come.
        """
        try:
            if self._subscription is None:
                await self._open()
            if self._subscription is not None:
                await self._turn(self._subscription)
        except NoetlError as error:
            await self._forget(error)
            await self._clock.sleep(min(BACKOFF_FIRST_S * 2 ** (self._failures - 1), BACKOFF_MAX_S))
            return
        await self._drain_tasklog()

    async def stop(self) -> None:
        """Let go of the subscription. What was not committed is projected again next time."""
        await self._close()

    def summary(self) -> dict[str, Any]:
        """Position, lag and counters."""
        return {
            "consumer": self.name,
            "shards": sorted(self._owned - {SYSTEM_SHARD}),
            "position": self._marks.get(self.name, 0),
            "lag_ms": self._lag_ms,
            "connected": self._subscription is not None,
            "states": len(self._states),
            "last_error": self._last_error,
            **self._counts,
        }

    async def _open(self) -> None:
        consumers = [self.name, *(shard_consumer(shard) for shard in sorted(self._owned))]
        self._marks = {name: await self._store.position(name) for name in consumers}
        self._old = newest = await self._log.last_position()
        if max(self._marks.values()) > newest:
            # Positions would mean other records now; going on would skip what is new.
            msg = (
                f"the read model is at {max(self._marks.values())}, the log ends at {newest}: "
                "it was made from another log; drop the schema and let it be rebuilt"
            )
            raise StoreError(msg)
        first = min(self._marks[shard_consumer(shard)] for shard in self._owned) + 1
        filters = [shard_filter(shard) for shard in sorted(self._owned) if shard != SYSTEM_SHARD]
        if SYSTEM_SHARD in self._owned:
            filters.append(f"{SYSTEM_ROOT}.>")
        self._subscription = await self._log.subscribe(filters, from_position=first)

    async def _turn(self, subscription: Subscription) -> None:
        """One commit or, when a transaction would grow too large, several."""
        newest = await subscription.next_batch(self._batch_size, self._window_s)
        if not newest:
            self._lag_ms = 0
            self._gather_s = 0.0
            return
        deadline = self._clock.monotonic() + self._gather_s
        enough_s = self._gather_s * (1 - OVER_MIN)
        part = Part()
        while newest:
            for number, chunk in enumerate(cut_records(newest, len(part.made.events))):
                if number:
                    await self._commit(part)
                    part = Part()
                if chunk:
                    await self._fold(part, chunk)
            if number:
                break  # far behind: who hosts the role gets a word in between
            if len(newest) < self._batch_size:
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0 or (left_s <= enough_s and part.is_over):
                    break
                await self._clock.sleep(min(GATHER_S, left_s))
            newest = await subscription.next_batch(self._batch_size, 0)
        began = self._clock.monotonic()
        await self._commit(part)
        spent_s = self._clock.monotonic() - began
        self._gather_s = min(max(GATHER_S_MIN, spent_s / COMMIT_COST_MAX), GATHER_S_MAX)

    async def _fold(self, part: Part, records: Sequence[Recorded]) -> None:
        """Add records to what the next commit writes."""
        done = part.last.position if part.last is not None else 0
        due = [recorded for recorded in once(records, done) if self._is_due(recorded)]
        await self._load(executions_of(due), part.before)
        project_records(due, part.before, part.made)
        if self._archive is not None and records[0].position <= self._old:
            await restore_trimmed(part.made, part.before, due, self._archive)
        part.records += len(due)
        part.last = records[-1]

    async def _commit(self, part: Part) -> None:
        made, last = part.made, part.last
        assert last is not None
        now_ms = self._clock.now_ms()
        now, lag_ms = iso_utc(now_ms), max(0, now_ms - last.time_ms)
        executions, projections = made.execution_rows(updated_at=now, lag_ms=lag_ms)
        marks = tuple(
            Checkpoint(
                consumer=consumer,
                expected=held,
                position=max(held, last.position),
                event_id=last.record.events[-1].event_id,
                lag_ms=lag_ms,
                projected_at=now,
            )
            for consumer, held in self._marks.items()
        )
        result = await self._store.commit(
            ProjectionBatch(
                checkpoints=marks,
                events=tuple(made.events),
                executions=executions,
                commands=made.command_rows(),
                stages=made.stage_rows(),
                frames=made.frame_rows(),
                playbooks=tuple(made.playbooks),
                objects=tuple(made.objects),
                workers=tuple(made.workers.values()),
                shards=made.shard_rows(),
                projections=projections,
            )
        )
        self._marks = {mark.consumer: mark.position for mark in marks}
        self._keep(part.before, made.states)
        if self._on_kept is not None:
            self._on_kept(part.before, made.states)
        ended = [key for key, state in made.states.items() if state.terminal]
        if self._hints is not None and ended:
            await self._hints.send(ENDED, encode(Ended(executions=ended)))
        self._failures = 0
        self._lag_ms = lag_ms
        self._counts["records"] += part.records
        self._counts["events"] += result.events_new
        self._counts["stale"] += result.stale
        self._counts["fold_errors"] += len(made.fold_errors)
        if made.fold_errors:
            self._last_error = made.fold_errors[-1]

    def _is_due(self, recorded: Recorded) -> bool:
        shard = shard_of(recorded)
        if shard is None:
            self._counts["unshardable"] += 1
            return False
        if shard not in self._owned:
            self._counts["unowned"] += 1
            return False
        # One shard may be further than another when it came from another projector.
        return recorded.position > self._marks[shard_consumer(shard)]

    async def _load(
        self, keys: set[ExecutionKey], found: dict[ExecutionKey, ExecutionState | None]
    ) -> None:
        """Add the kept states of executions, None where there is none yet."""
        missing: dict[tuple[str, str], list[int]] = {}
        for key in keys - found.keys():
            found[key] = held = self._states.get(key)
            if held is not None:
                continue
            tenant, organization, execution_id = key
            missing.setdefault((tenant, organization), []).append(execution_id)
        for (tenant, organization), ids in missing.items():
            records = await self._store.query(
                Scope(tenant_id=tenant, organization_id=organization),
                projection_type=EXECUTION_STATE,
                execution_ids=ids,
                limit=LIMIT_MAX,
            )
            for record in records:
                found[tenant, organization, record.key.execution_id] = decode_state(record)

    def _keep(
        self,
        before: dict[ExecutionKey, ExecutionState | None],
        after: dict[ExecutionKey, ExecutionState],
    ) -> None:
        for key, state in (before | after).items():
            if state is None:
                continue
            if state.terminal:
                self._states.pop(key, None)
            else:
                self._states[key] = state
                self._states.move_to_end(key)
        while len(self._states) > STATES_MAX:
            self._states.popitem(last=False)

    async def _forget(self, error: NoetlError) -> None:
        """What is in memory may be ahead of what was committed; only the store knows (P30)."""
        self._failures += 1
        self._gather_s = 0.0
        self._counts["errors"] += 1
        self._last_error = f"{type(error).__name__}: {error}"
        self._states.clear()
        await self._close()

    async def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            try:
                await subscription.close()
            except NoetlError as error:
                self._last_error = f"{type(error).__name__}: {error}"

    async def _drain_tasklog(self) -> None:
        """Printed lines have their own position and trouble: events never wait for them."""
        if self._tasklog is None or self._clock.monotonic() < self._tasklog_not_before:
            return
        try:
            if self._tasklog_position is None:
                self._tasklog_position = await self._store.position(TASKLOG_CONSUMER)
            batches = await self._tasklog.read_after(
                self._tasklog_position, max_batches=TASKLOG_BATCHES_MAX, timeout_s=0
            )
            if batches:
                await self._commit_lines(batches, self._tasklog_position)
        except NoetlError as error:
            self._tasklog_position = None
            self._counts["tasklog_errors"] += 1
            self._last_error = f"{type(error).__name__}: {error}"
            self._tasklog_not_before = self._clock.monotonic() + BACKOFF_MAX_S

    async def _commit_lines(self, batches: Sequence[PositionedLines], expected: int) -> None:
        lines = tuple(
            LogRow(log_id=(batch.position << LOG_ID_SHIFT) + ordinal, line=line)
            for batch in batches
            for ordinal, line in enumerate(batch.lines)
        )
        mark = Checkpoint(
            consumer=TASKLOG_CONSUMER,
            expected=expected,
            position=batches[-1].position,
            projected_at=iso_utc(self._clock.now_ms()),
        )
        await self._store.commit(ProjectionBatch(checkpoints=(mark,), lines=lines))
        self._tasklog_position = mark.position
        self._counts["log_lines"] += len(lines)


def _check(key: str, value: object, holds: bool, reason: str) -> None:
    if not holds:
        name = f"projection_stores.{key}"
        raise ConfigError(name, value, reason)
