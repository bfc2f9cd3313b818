"""The read model in memory: the peer of the Postgres one, under the same contract.

Both ports on one object. A commit is checked before anything is changed, so it happens whole or not
at all. Holds everything it is given; made for tests, the simulator and one-process use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.engine.state import TERMINAL_STATUSES
from noetl_ray.errors import ConflictError
from noetl_ray.readmodel.frames import merge_frame, merge_stage
from noetl_ray.readmodel.limits import check_limit, whole_records
from noetl_ray.readmodel.objects import is_about, newest_objects
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.readmodel.projecting import REGISTRY_DIGEST, shard_consumer, state_key
from noetl_ray.readmodel.records import (
    BusinessObjectRow,
    CommandRow,
    CommitResult,
    EventRow,
    ExecutionRow,
    ExecutionRows,
    FrameRow,
    LogRow,
    PlaybookRow,
    ProjectionBatch,
    ProjectionKey,
    ProjectionRecord,
    ProjectionSnapshot,
    StageRow,
    WorkerRow,
    scope_of,
)
from noetl_ray.readmodel.rows import keep_end, merge_command, merge_worker
from noetl_ray.readmodel.shards import ShardRow, merge_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl_ray.scope import Scope


class MemoryReadModel:
    """Projection store and queries over plain dictionaries."""

    def __init__(self) -> None:
        self._projections: dict[ProjectionKey, ProjectionRecord] = {}
        self._snapshots: dict[ProjectionKey, dict[int, ProjectionSnapshot]] = {}
        self._positions: dict[str, int] = {}
        self._events: dict[int, EventRow] = {}
        self._executions: dict[tuple[Scope, int], ExecutionRow] = {}
        self._commands: dict[tuple[Scope, int, str], CommandRow] = {}
        self._playbooks: dict[tuple[Scope, str, int], PlaybookRow] = {}
        self._workers: dict[str, WorkerRow] = {}
        self._shards: dict[int, ShardRow] = {}
        self._stages: dict[tuple[Scope, int, str], StageRow] = {}
        self._frames: dict[tuple[Scope, int, str], FrameRow] = {}
        self._objects: dict[int, BusinessObjectRow] = {}
        self._lines: dict[int, LogRow] = {}
        self.stale = 0
        """Writes that were older than what was held."""

    async def save_projection(self, record: ProjectionRecord) -> bool:
        """Keep a projection unless a newer or equal version is held."""
        held = self._projections.get(record.key)
        if held is not None and held.version >= record.version:
            self.stale += 1
            return False
        self._projections[record.key] = record
        return True

    async def load_projection(self, key: ProjectionKey) -> ProjectionRecord | None:
        """The projection of that name, or None."""
        return self._projections.get(key)

    async def save_snapshot(self, snapshot: ProjectionSnapshot) -> bool:
        """Keep a snapshot beside those of other versions."""
        held = self._snapshots.setdefault(snapshot.record.key, {})
        if snapshot.record.version in held:
            return False
        held[snapshot.record.version] = snapshot
        return True

    async def load_snapshot(
        self, key: ProjectionKey, *, at_or_before: int | None = None
    ) -> ProjectionSnapshot | None:
        """The newest snapshot, or the newest not after a position."""
        held = self._snapshots.get(key, {})
        versions = [v for v in held if at_or_before is None or v <= at_or_before]
        return held[max(versions)] if versions else None

    async def query(
        self,
        scope: Scope,
        *,
        projection_type: str,
        execution_ids: Sequence[int] | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[ProjectionRecord]:
        """Projections of one type by ascending execution id."""
        check_limit(limit)
        wanted = None if execution_ids is None else set(execution_ids)
        found = [
            record
            for key, record in self._projections.items()
            if scope_of(key) == scope
            and key.projection_type == projection_type
            and key.execution_id > after
            and (wanted is None or key.execution_id in wanted)
        ]
        found.sort(key=lambda r: (r.key.execution_id, r.key.stage_id, r.key.frame_id))
        return found[:limit]

    async def commit(self, batch: ProjectionBatch) -> CommitResult:
        """Write a whole batch and its checkpoints, or nothing."""
        for mark in batch.checkpoints:
            held = self._positions.get(mark.consumer, 0)
            if held != mark.expected:
                msg = f"{mark.consumer}: expected position {mark.expected}, the store has {held}"
                raise ConflictError(msg)
        before, stale_before = len(self._events), self.stale
        for event in batch.events:
            self._events.setdefault(event.event.event_id, event)
        for execution in batch.executions:
            self._put_execution(execution)
        for command in batch.commands:
            self._put(self._commands, command, command.command_id, merge_command)
        for playbook in batch.playbooks:
            self._playbooks.setdefault(
                (scope_of(playbook), playbook.path, playbook.version), playbook
            )
        for worker in batch.workers:
            self._put_newer(self._workers, worker.worker_id, worker, merge_worker)
        for shard in batch.shards:
            self._put_newer(self._shards, shard.shard_id, shard, merge_shard)
        for stage in batch.stages:
            self._put(self._stages, stage, stage.stage_id, merge_stage)
        for frame in batch.frames:
            self._put(self._frames, frame, frame.frame_id, merge_frame)
        for projection in batch.projections:
            await self.save_projection(projection)
        for stated in batch.objects:
            self._objects.setdefault(stated.version, stated)
        for line in batch.lines:
            self._lines.setdefault(line.log_id, line)
        for mark in batch.checkpoints:
            self._positions[mark.consumer] = mark.position
        return CommitResult(events_new=len(self._events) - before, stale=self.stale - stale_before)

    async def position(self, consumer: str) -> int:
        """The last position this consumer has committed, 0 when none."""
        return self._positions.get(consumer, 0)

    async def execution(self, scope: Scope, execution_id: int) -> ExecutionRow | None:
        """One execution, or None when this scope has none of that id."""
        return self._executions.get((scope, execution_id))

    async def whole_execution(self, scope: Scope, execution_id: int) -> ExecutionRows | None:
        """Everything about one execution at one moment."""
        row = self._executions.get((scope, execution_id))
        kept = self._projections.get(
            state_key((scope.tenant_id, scope.organization_id, execution_id))
        )
        if row is None or kept is None:
            return None
        of_it = (scope, execution_id)
        return ExecutionRows(
            execution=row,
            state=kept.state,
            registry_digest=kept.meta.get(REGISTRY_DIGEST, ""),
            position=max(self._positions.get(shard_consumer(row.shard), 0), row.last_position),
            commands=tuple(r for key, r in self._commands.items() if key[:2] == of_it),
            stages=tuple(r for key, r in self._stages.items() if key[:2] == of_it),
            frames=tuple(r for key, r in self._frames.items() if key[:2] == of_it),
            objects=tuple(
                r for r in self._objects.values() if (scope_of(r), r.execution_id) == of_it
            ),
        )

    async def executions(
        self,
        scope: Scope,
        *,
        status: str | None = None,
        path: str | None = None,
        parent: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[ExecutionRow]:
        """Newest first."""
        check_limit(limit)
        found = [
            row
            for (owner, execution_id), row in self._executions.items()
            if owner == scope
            and (status is None or row.status == status)
            and (path is None or row.path == path)
            and (parent is None or row.parent_execution_id == parent)
            and (before is None or execution_id < before)
        ]
        found.sort(key=lambda row: -row.execution_id)
        return found[:limit]

    async def ended(self, scope: Scope, execution_ids: Sequence[int]) -> list[ExecutionRow]:
        """Those of the given executions that have ended."""
        if not execution_ids:
            return []
        check_limit(len(execution_ids))
        rows = [self._executions.get((scope, execution_id)) for execution_id in execution_ids]
        return [row for row in rows if row is not None and row.status in TERMINAL_STATUSES]

    async def events(
        self,
        scope: Scope,
        execution_id: int,
        *,
        command_id: str | None = None,
        after_position: int = 0,
        limit: int = 500,
    ) -> list[EventRow]:
        """Events in log order after a position; a record is never cut."""
        check_limit(limit)
        found = [
            row
            for row in self._events.values()
            if row.event.execution_id == execution_id
            and scope_of(row.event) == scope
            and row.position > after_position
            and command_id in (None, row.event.command_id)
        ]
        found.sort(key=lambda row: (row.position, row.ordinal))
        return whole_records(found, limit)

    async def logs(
        self,
        scope: Scope,
        execution_id: int,
        *,
        step: str | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[LogRow]:
        """Printed lines in order after a log id."""
        check_limit(limit)
        found = [
            row
            for row in self._lines.values()
            if row.line.execution_id == execution_id
            and scope_of(row.line) == scope
            and row.log_id > after
            and (step is None or row.line.step == step)
        ]
        found.sort(key=lambda row: row.log_id)
        return found[:limit]

    async def commands(self, scope: Scope, execution_id: int) -> list[CommandRow]:
        """All commands of an execution in the order they were issued."""
        found = [
            row
            for (owner, execution, _), row in self._commands.items()
            if owner == scope and execution == execution_id
        ]
        found.sort(key=lambda row: (row.issued_event_id or 0, row.command_id))
        return found[:LIMIT_MAX]

    async def stages(self, scope: Scope, execution_id: int) -> list[StageRow]:
        """Stages in the order they were opened."""
        found = [
            row
            for row in self._stages.values()
            if scope_of(row) == scope and row.execution_id == execution_id
        ]
        return sorted(found, key=lambda row: row.opened_event_id or 0)[:LIMIT_MAX]

    async def frames(
        self,
        scope: Scope,
        execution_id: int,
        *,
        stage_id: str | None = None,
        status: str | None = None,
        limit: int = 1_000,
    ) -> list[FrameRow]:
        """Frames, last changed first."""
        check_limit(limit)
        found = [
            row
            for row in self._frames.values()
            if scope_of(row) == scope
            and row.execution_id == execution_id
            and stage_id in (None, row.stage_id)
            and status in (None, row.status)
        ]
        return sorted(found, key=lambda row: -row.position)[:limit]

    async def playbooks(
        self,
        scope: Scope,
        *,
        path: str | None = None,
        version: int | None = None,
        limit: int = 100,
    ) -> list[PlaybookRow]:
        """Registered playbooks, newest version first."""
        check_limit(limit)
        rows = [row for (owner, _, _), row in self._playbooks.items() if owner == scope]
        rows.sort(key=lambda row: (row.path, -row.version))
        if path is None:
            newest: dict[str, PlaybookRow] = {}
            for row in rows:
                newest.setdefault(row.path, row)
            rows = list(newest.values())
        else:
            rows = [
                row
                for row in rows
                if row.path == path and (version is None or row.version == version)
            ]
        return rows[:limit]

    async def business_objects(
        self,
        scope: Scope,
        *,
        object_type: str | None = None,
        object_id: str | None = None,
        status: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[BusinessObjectRow]:
        """Objects as they are, last changed first."""
        check_limit(limit)
        found = [
            row
            for row in newest_objects(self._objects.values())
            if is_about(row, scope, object_type, object_id, before)
            and (status is None or row.status == status)
        ]
        return sorted(found, key=lambda row: -row.version)[:limit]

    async def business_object_history(
        self,
        scope: Scope,
        *,
        object_type: str | None = None,
        object_id: str | None = None,
        execution_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[BusinessObjectRow]:
        """Everything said, newest first."""
        check_limit(limit)
        found = [
            row
            for row in self._objects.values()
            if is_about(row, scope, object_type, object_id, before)
            and (execution_id is None or row.execution_id == execution_id)
        ]
        return sorted(found, key=lambda row: -row.version)[:limit]

    async def workers(self) -> list[WorkerRow]:
        """Every worker ever seen, newest change first."""
        return sorted(self._workers.values(), key=lambda row: (-row.position, row.worker_id))

    async def shards(self) -> list[ShardRow]:
        """Every shard that was ever claimed or kept, in order."""
        return sorted(self._shards.values(), key=lambda row: row.shard_id)

    def _put_execution(self, row: ExecutionRow) -> None:
        key = (scope_of(row), row.execution_id)
        held = self._executions.get(key)
        if held is not None and held.last_position >= row.last_position:
            self.stale += 1
            return
        self._executions[key] = keep_end(held, row) if held else row

    def _put(self, held: dict[Any, Any], row: Any, own: str, merge: Callable[..., Any]) -> None:
        self._put_newer(held, (scope_of(row), row.execution_id, own), row, merge)

    def _put_newer(
        self, held: dict[Any, Any], key: Any, row: Any, merge: Callable[..., Any]
    ) -> None:
        before = held.get(key)
        if before is not None and before.position >= row.position:
            self.stale += 1
            return
        held[key] = merge(before, row) if before else row
