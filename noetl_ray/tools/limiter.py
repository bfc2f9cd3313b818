"""Limits on outside calls that all workers of a cluster share: how many at once, how many a second.

Owns the rules and the waiting; where the shared record lies is a table's (:class:`LimitTable`).
Each limit is one small record that workers change by compare-and-set: who holds how many, until
when, and when the next call may start. A worker that dies stops renewing and its tokens come back
after LEASE_S. When the table cannot be reached nobody is let through: calls wait, and fail with
``rate_limit`` after ``wait_max_s`` (closed rather than open, since the limit protects another).
Workers' clocks must agree to well below LEASE_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl_ray.errors import StoreError, ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl_ray.clock import Clock

LEASE_S = 10.0
RENEW_S = 3.0
AHEAD_S = 0.25
"""How far ahead starts are handed out; a crowd then needs few changes of the record."""
POLL_S = 0.05
_TRIES_QUICK = 5

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit; 0 means none of that sort."""

    key: str
    max_in_flight: int = 0
    per_second: float = 0.0


class LimitTable(Protocol):
    """Small records that many processes change."""

    async def read(self, key: str) -> tuple[bytes | None, int]:
        """The record and its version; 0 when there is none. Raises StoreError."""
        ...

    async def write(self, key: str, data: bytes, version: int) -> bool:
        """Replace it unless it has changed since. Raises StoreError."""
        ...


class MemoryLimits:
    """A table in one process."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[bytes, int]] = {}

    async def read(self, key: str) -> tuple[bytes | None, int]:
        """The record and its version; 0 when there is none."""
        return self._records.get(key, (None, 0))

    async def write(self, key: str, data: bytes, version: int) -> bool:
        """Replace it unless it has changed since."""
        if self._records.get(key, (None, 0))[1] != version:
            return False
        self._records[key] = (data, version + 1)
        return True


class LimitState(msgspec.Struct):
    """The shared record of one limit."""

    holders: dict[str, tuple[int, int]] = {}
    """Owner to how many calls it has under way, and until when that counts (ms)."""
    next_ms: float = 0.0
    """When the next call may start."""

    def take(
        self, limit: Limit, owner: str, held: int, wanted: int, now_ms: int
    ) -> tuple[list[float], float]:
        """Note what an owner holds and grant what fits.

        Args:
            limit: The rule.
            owner: Who asks.
            held: Calls it has under way.
            wanted: Calls it would start.
            now_ms: Wall time.

        Returns:
            When each granted call may start (ms), and when to ask again for the rest.
        """
        self.holders = {
            name: (count, until)
            for name, (count, until) in self.holders.items()
            if until > now_ms and name != owner
        }
        room = wanted
        if limit.max_in_flight:
            others = sum(count for count, _ in self.holders.values())
            room = min(wanted, max(0, limit.max_in_flight - others - held))
        starts: list[float] = [now_ms] * room
        again = now_ms + POLL_S * 1000
        if limit.per_second:
            gap = 1000 / limit.per_second
            at = max(self.next_ms, now_ms)
            starts = []
            while len(starts) < room and at <= now_ms + AHEAD_S * 1000:
                starts.append(at)
                at += gap
            if starts:
                self.next_ms = at
            if len(starts) < room:
                again = max(again, at - AHEAD_S * 1000)
        total = held + len(starts)
        if total:
            self.holders[owner] = (total, now_ms + int(LEASE_S * 1000))
        return starts, again


@dataclass(slots=True)
class _Waiter:
    granted: asyncio.Future[float] = field(repr=False)


class _Gate:
    """One limit as this process sees it: who waits here, and how many are through."""

    def __init__(self, limit: Limit, table: LimitTable, owner: str, clock: Clock) -> None:
        self._limit = limit
        self._table = table
        self._owner = owner
        self._clock = clock
        self._waiting: deque[_Waiter] = deque()
        self._held = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self, wait_max_s: float) -> None:
        """Wait for a place. Raises ToolError when none comes in time."""
        waiter = _Waiter(asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._wake()
        try:
            async with asyncio.timeout(wait_max_s):
                start_ms = await waiter.granted
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.granted.done() and not waiter.granted.cancelled():
                self.leave()
            if not isinstance(error, TimeoutError):
                raise
            msg = f"no place under the limit {self._limit.key!r} within {wait_max_s:g} s"
            raise ToolError(msg, "rate_limit", True, {"limit": self._limit.key}) from None
        try:
            await self._clock.sleep(max(0.0, (start_ms - self._clock.now_ms()) / 1000))
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Give a place back."""
        self._held -= 1
        self._wake()

    async def close(self) -> None:
        """Stop; what is still held runs out by itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _wake(self) -> None:
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Keep the record in step with what is held and wanted, until nothing is."""
        noted = -1
        tries = 0
        while self._waiting or self._held or noted:
            self._changed.clear()
            try:
                again_ms = await self._settle()
            except StoreError as error:
                _logger.warning("limit %s cannot be settled: %s", self._limit.key, error)
                await self._clock.sleep(1.0)
                continue
            if again_ms is None:
                # Another process was first. Whoever loses often steps back further.
                tries += 1
                await self._clock.sleep(random.uniform(0, 0.002 * 2 ** min(tries, _TRIES_QUICK)))
                continue
            tries, noted = 0, self._held
            pause = RENEW_S
            if self._waiting:
                pause = max(POLL_S / 5, (again_ms - self._clock.now_ms()) / 1000)
                pause *= random.uniform(0.7, 1.3)
            if self._waiting or self._held:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()

    async def _settle(self) -> float | None:
        """One change of the record; None when another process changed it meanwhile."""
        data, version = await self._table.read(self._limit.key)
        state = msgspec.json.decode(data, type=LimitState) if data else LimitState()
        held, wanted = self._held, len(self._waiting)
        starts, again_ms = state.take(self._limit, self._owner, held, wanted, self._clock.now_ms())
        if not await self._table.write(self._limit.key, msgspec.json.encode(state), version):
            return None
        for start in starts:
            if not self._waiting:
                self._changed.set()  # It gave up meanwhile; the record must not keep its place.
                break
            waiter = self._waiting.popleft()
            if not waiter.granted.done():
                waiter.granted.set_result(start)
                self._held += 1
        return again_ms


class Limiter:
    """The limits of a cluster, as one worker passes through them."""

    def __init__(
        self,
        limits: Sequence[tuple[str, Limit]],
        table: LimitTable,
        *,
        owner: str,
        clock: Clock,
        wait_max_s: float,
    ) -> None:
        """Bind the limits.

        Args:
            limits: What each applies to, ``host:<name>`` or ``credential:<name>``, and the limit.
            table: Shared by the cluster.
            owner: This process, new for every incarnation.
            clock: Wall time must agree between workers.
            wait_max_s: The most a call waits for one limit.
        """
        self._limits = limits
        self._wait_max_s = wait_max_s
        self._gates = {limit.key: _Gate(limit, table, owner, clock) for _, limit in limits}

    @contextlib.asynccontextmanager
    async def slot(self, host: str, port: int | None, credential: str) -> AsyncIterator[None]:
        """Hold a place under every limit that applies to a call.

        Raises:
            ToolError: of kind ``rate_limit`` when there was none in time.
        """
        async with contextlib.AsyncExitStack() as held:
            # One order for everybody, so that two calls never wait for each other's place.
            for target, limit in self._limits:
                if applies(target, host, port, credential):
                    gate = self._gates[limit.key]
                    await gate.enter(self._wait_max_s)
                    held.callback(gate.leave)
            yield

    async def close(self) -> None:
        """Stop renewing."""
        for gate in self._gates.values():
            await gate.close()


def applies(target: str, host: str, port: int | None, credential: str) -> bool:
    """Whether a limit's target means a call."""
    sort, _, name = target.partition(":")
    if sort == "credential":
        return name == credential
    name, host = name.lower(), host.lower()
    if name.startswith("*."):
        return host.endswith(name[1:])
    return name in (host, f"{host}:{port}")


def limiter_of(
    settings: Sequence[Any], table: LimitTable, *, owner: str, clock: Clock, wait_max_s: float
) -> Limiter | None:
    """A limiter for the limits of the configuration; None when there are none."""
    made = []
    for item in settings:
        target = f"host:{item.host}" if item.host else f"credential:{item.credential}"
        limit = Limit(key=target, max_in_flight=item.max_in_flight, per_second=item.per_second)
        made.append((target, limit))
    if not made:
        return None
    made.sort(key=lambda one: one[0])
    return Limiter(made, table, owner=owner, clock=clock, wait_max_s=wait_max_s)
