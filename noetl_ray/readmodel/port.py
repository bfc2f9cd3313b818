"""Two ports over the read model: the projector writes through one, people ask through the other.

``ProjectionStore`` is PRS-1 plus the one transaction of a projector's turn. ``Queries`` answers
from rows only (PRJ-13); every method but ``workers`` takes a scope, and no answer leaves it
(TEN-3). The two are apart so that whoever may ask cannot write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    )
    from noetl_ray.readmodel.shards import (
        ShardRow,
    )
    from noetl_ray.scope import Scope

LIMIT_MAX = 10_000
"""No query gives more rows than this at once; ask again with the cursor."""


class ProjectionStore(Protocol):
    """Where projections are kept; ``StoreUnavailableError`` when it cannot be reached."""

    async def save_projection(self, record: ProjectionRecord) -> bool:
        """Keep a projection unless a newer or equal version is held; False says it was stale."""
        ...

    async def load_projection(self, key: ProjectionKey) -> ProjectionRecord | None:
        """The projection of that name, or None."""
        ...

    async def save_snapshot(self, snapshot: ProjectionSnapshot) -> bool:
        """Keep a snapshot beside those of other versions; False when it is there already."""
        ...

    async def load_snapshot(
        self, key: ProjectionKey, *, at_or_before: int | None = None
    ) -> ProjectionSnapshot | None:
        """The newest snapshot, or the newest not after a position."""
        ...

    async def query(
        self,
        scope: Scope,
        *,
        projection_type: str,
        execution_ids: Sequence[int] | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[ProjectionRecord]:
        """Projections of one type by ascending execution id.

        Args:
            scope: Whose projections.
            projection_type: Which type.
            execution_ids: Only these executions; None means all of the scope.
            after: Only executions with a greater id, for paging.
            limit: At most so many rows.
        """
        ...

    async def commit(self, batch: ProjectionBatch) -> CommitResult:
        """Write a whole batch and its checkpoints in one transaction, or nothing.

        Raises:
            ConflictError: a checkpoint is not where the batch expects it: another projector was
            here. StoreUnavailableError: the store cannot be reached now. StoreError: the store
            refuses the batch.
        """
        ...

    async def position(self, consumer: str) -> int:
        """The last position this consumer has committed, 0 when none."""
        ...


class Queries(Protocol):
    """What can be asked. Limits must be 1..``LIMIT_MAX``, anything else is a ``UsageError``."""

    async def execution(self, scope: Scope, execution_id: int) -> ExecutionRow | None:
        """One execution, or None when this scope has none of that id."""
        ...

    async def whole_execution(self, scope: Scope, execution_id: int) -> ExecutionRows | None:
        """Everything about one execution at one moment, without limit; for comparisons (VAL-1)."""
        ...

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
        """Newest first; ``before`` is the execution id to read on from.

        ``parent`` gives the children of that execution only.
        """
        ...

    async def ended(self, scope: Scope, execution_ids: Sequence[int]) -> list[ExecutionRow]:
        """Those of the given executions that have ended, in any order; at most ``LIMIT_MAX`` ids.

        One look for all whom somebody waits for, however many.
        """
        ...

    async def events(
        self,
        scope: Scope,
        execution_id: int,
        *,
        command_id: str | None = None,
        after_position: int = 0,
        limit: int = 500,
    ) -> list[EventRow]:
        """Events in log order after a position, all or those about one command.

        A record is never cut: the answer ends with the record that reaches the limit, so it may be
        longer by less than one record, and the last position is always a sound cursor.
        """
        ...

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
        ...

    async def commands(self, scope: Scope, execution_id: int) -> list[CommandRow]:
        """All commands of an execution in the order they were issued, at most ``LIMIT_MAX``."""
        ...

    async def stages(self, scope: Scope, execution_id: int) -> list[StageRow]:
        """Stages of an execution in the order they were opened, at most ``LIMIT_MAX``."""
        ...

    async def frames(
        self,
        scope: Scope,
        execution_id: int,
        *,
        stage_id: str | None = None,
        status: str | None = None,
        limit: int = 1_000,
    ) -> list[FrameRow]:
        """Frames of an execution, last changed first."""
        ...

    async def playbooks(
        self,
        scope: Scope,
        *,
        path: str | None = None,
        version: int | None = None,
        limit: int = 100,
    ) -> list[PlaybookRow]:
        """Registered playbooks, newest version first.

        Without a path: the newest version of each path, by path. With a path: its versions, or the
        one asked for.
        """
        ...

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
        """Objects as they are, last changed first; ``before`` is the version to read on from."""
        ...

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
        """Everything said, newest first: about one object, or by one execution."""
        ...

    async def shards(self) -> list[ShardRow]:
        """Every shard that was ever claimed or kept, in order; shards belong to no tenant."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Every worker ever seen, newest change first; they belong to the cluster, not a tenant."""
        ...


async def find_playbook(
    queries: Queries, scope: Scope, path: str, version: int | None = None
) -> PlaybookRow | None:
    """One playbook: the version asked for, else the newest."""
    rows = await queries.playbooks(scope, path=path, version=version, limit=1)
    return rows[0] if rows else None
