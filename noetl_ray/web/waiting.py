"""Long polls: one poller for everyone who waits for an execution to end.

Reads the read model only: few ids one by one, many in one question, those known to have ended never
again. A nudge makes it look at once, at those it names; while nudges come it looks less often at
everyone by itself, because one may be lost. It never answers before the projection shows the end,
so whoever waited may read the result at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from noetl_ray.engine.state import TERMINAL_STATUSES
from noetl_ray.errors import NoetlError, StoreUnavailableError
from noetl_ray.readmodel.port import LIMIT_MAX
from noetl_ray.wal.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from noetl_ray.clock import Clock
    from noetl_ray.readmodel.port import Queries
    from noetl_ray.readmodel.records import ExecutionRow
    from noetl_ray.scope import Scope

POLL_S = 0.02
POLL_NUDGED_S = 0.5
"""How long it waits for a nudge where nudges come."""
NUDGES_COUNT_S = 5.0
"""How long after the last nudge it still counts on the next."""
POLL_COST_MAX = 0.25
"""The share of time for looking at everyone; a slow read model is asked less often."""
SINGLE_READS_MAX = 8
WAIT_S_MAX = 300.0

_log = logging.getLogger(__name__)

_Key = tuple["Scope", int]


class Waiters:
    """Everyone who waits, by execution."""

    def __init__(self, queries: Queries, clock: Clock) -> None:
        self._queries = queries
        self._clock = clock
        self._waiting: dict[_Key, set[asyncio.Future[ExecutionRow]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._signal = Signal()
        self._named: set[_Key] = set()
        """Worth a look by themselves."""
        self._nudged = False
        self._nudged_at = float("-inf")

    def nudge(self, ended: Collection[_Key] | None = None) -> None:
        """These executions have ended: look now. Without names, at everyone's."""
        self._nudged_at = self._clock.monotonic()
        if ended is None:
            self._nudged = True
        else:
            self._named |= self._waiting.keys() & ended
        if self._nudged or self._named:
            self._signal.notify()

    @property
    def count(self) -> int:
        """How many executions are waited for."""
        return len(self._waiting)

    async def wait(
        self, scope: Scope, execution_ids: Iterable[int], timeout_s: float
    ) -> dict[int, ExecutionRow]:
        """Rows of the executions that ended in time; the others are left out.

        Raises:
            StoreUnavailableError: the gateway is stopping.
        """
        if self._closed:
            msg = "this gateway is stopping; ask again in a moment"
            raise StoreUnavailableError(msg)
        loop = asyncio.get_running_loop()
        futures: dict[int, asyncio.Future[ExecutionRow]] = {}
        for execution_id in execution_ids:
            if execution_id not in futures:
                future: asyncio.Future[ExecutionRow] = loop.create_future()
                futures[execution_id] = future
                self._waiting.setdefault((scope, execution_id), set()).add(future)
                self._named.add((scope, execution_id))
        if not futures:
            return {}
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._poll())
        self._signal.notify()
        try:
            await asyncio.wait(futures.values(), timeout=max(0.0, min(timeout_s, WAIT_S_MAX)))
        finally:
            for execution_id, future in futures.items():
                self._forget((scope, execution_id), future)
        return {
            key: future.result()
            for key, future in futures.items()
            if future.done() and not future.cancelled()
        }

    async def close(self) -> None:
        """Stop polling and let everyone who waits go with what has ended so far."""
        self._closed = True
        for futures in list(self._waiting.values()):
            for future in futures:
                future.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self) -> None:
        """Look at who is named at once, at everyone when that is due; sleep in between."""
        due = may = self._clock.monotonic()
        while self._waiting:
            now = self._clock.monotonic()
            everyone = now >= (may if self._nudged else due)
            if not everyone and not self._named:
                await self._signal.wait((may if self._nudged else due) - now)
                continue
            named, self._named = self._named, set()
            await self._look_at(self._waiting.keys() if everyone else named)
            if everyone:
                self._nudged = False
                done = self._clock.monotonic()
                counts = done - self._nudged_at < NUDGES_COUNT_S
                may = done + (done - now) / POLL_COST_MAX
                due = max(may, done + (POLL_NUDGED_S if counts else POLL_S))

    async def _look_at(self, keys: Iterable[_Key]) -> None:
        by_scope: dict[Scope, list[int]] = {}
        for key in keys:
            # Who waits for many stays until the last has ended; the others are known by then.
            if not all(future.done() for future in self._waiting.get(key, ())):
                by_scope.setdefault(key[0], []).append(key[1])
        for scope, execution_ids in by_scope.items():
            try:
                await self._look(scope, execution_ids)
            except NoetlError as error:
                # Who waits keeps waiting: the read model comes back or time runs out.
                _log.warning("cannot look for ended executions: %s", error)

    async def _look(self, scope: Scope, execution_ids: list[int]) -> None:
        """One pass: a few one by one, many at once."""
        if len(execution_ids) > SINGLE_READS_MAX:
            for start in range(0, len(execution_ids), LIMIT_MAX):
                part = execution_ids[start : start + LIMIT_MAX]
                for row in await self._queries.ended(scope, part):
                    self._tell(scope, row)
            return
        for execution_id in execution_ids:
            found = await self._queries.execution(scope, execution_id)
            if found is not None:
                self._tell(scope, found)

    def _tell(self, scope: Scope, row: ExecutionRow) -> None:
        if row.status in TERMINAL_STATUSES:
            for future in self._waiting.get((scope, row.execution_id), ()):
                if not future.done():
                    future.set_result(row)

    def _forget(self, key: _Key, future: asyncio.Future[ExecutionRow]) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[key]
