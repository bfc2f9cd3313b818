"""Takes snapshots of executions that grow long, beside the projector that notices it (SNP-1).

One at a time, in the background: a snapshot reads the log, and nothing that runs waits for it. One
that fails is not made again before the execution has grown by another interval; a replay is then as
slow as without.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from noetl_ray.clock import iso_utc
from noetl_ray.errors import NoetlError
from noetl_ray.replay.snapshots import take_snapshot
from noetl_ray.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.clock import Clock
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.readmodel.projecting import ExecutionKey
    from noetl_ray.replay.archive import Archive
    from noetl_ray.replay.snapshots import SnapshotStore
    from noetl_ray.wal.port import Log

_log = logging.getLogger(__name__)
WAITING_MAX = 1_000


class Snapshotter:
    """Snapshots of one projector's executions."""

    def __init__(
        self,
        log: Log,
        store: SnapshotStore,
        clock: Clock,
        *,
        every: int,
        archive: Archive | None = None,
    ) -> None:
        """Bind; ``every`` is how many events lie between two snapshots."""
        self._log = log
        self._store = store
        self._clock = clock
        self._every = every
        self._archive = archive
        self._waiting: deque[ExecutionKey] = deque(maxlen=WAITING_MAX)
        self._task: asyncio.Task[None] | None = None
        self.taken = 0
        self.failed = 0

    def note(
        self,
        before: Mapping[ExecutionKey, ExecutionState | None],
        after: Mapping[ExecutionKey, ExecutionState],
    ) -> None:
        """Look which executions have grown past another interval."""
        for key, state in after.items():
            if state.event_count < self._every:
                continue
            old = before.get(key)
            had = old.event_count // self._every if old is not None else 0
            if state.event_count // self._every > had:
                self._waiting.append(key)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._work())
            self._task.add_done_callback(self._done)

    async def stop(self) -> None:
        """Let go; what is not taken is taken at the next interval."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def settle(self) -> None:
        """Wait until none is being taken."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            tenant, organization, execution_id = self._waiting.popleft()
            scope = Scope(tenant_id=tenant, organization_id=organization)
            try:
                await take_snapshot(
                    self._log,
                    self._store,
                    scope,
                    execution_id,
                    taken_at=iso_utc(self._clock.now_ms()),
                    archive=self._archive,
                )
                self.taken += 1
            except NoetlError as error:
                self.failed += 1
                _log.warning("no snapshot of execution %s: %s", execution_id, error)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self.failed += 1
            _log.error("snapshot: %r", task.exception())
