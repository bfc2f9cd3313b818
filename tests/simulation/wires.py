"""Log and hints as one process has them: they end with it, and a frozen one does not hear."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import LogUnavailableError
from noetl_ray.wal.memory import MemoryLog, MemorySubscription
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.settle import Attempt, Outcome, Published
from tests.simulation.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl_ray.clock import Clock
    from noetl_ray.events.envelope import Record
    from noetl_ray.hints.memory import MemoryHints
    from noetl_ray.testing.simloop import SimLoop

REPEATED_MAX = 5


class SimLog(MemoryLog):
    """The log of a world: it may turn publishes away and leave reads unanswered.

    Whoever watches is told of every record at the moment it is stored.
    """

    def __init__(
        self, clock: Clock, faults: Faults, watch: Callable[[Recorded, bytes], None]
    ) -> None:
        super().__init__(clock, faults=faults)
        self._unkind = faults
        self._watch = watch

    async def publish(self, attempt: Attempt) -> Published:
        if self._unkind.refuses():
            return Published(Outcome.BUSY)
        return await super().publish(attempt)

    async def last(self, subject: str) -> Recorded | None:
        self._unkind.read()
        return await super().last(subject)

    async def get(self, position: int) -> Recorded | None:
        self._unkind.read()
        return await super().get(position)

    async def first_after(self, subject: str, position: int) -> Recorded | None:
        self._unkind.read()
        return await super().first_after(subject, position)

    def _store(self, attempt: Attempt, record: Record) -> Published:
        published = super()._store(attempt, record)
        if published.outcome is Outcome.STORED:
            stored = self._at(published.position)
            assert stored is not None
            self._watch(stored, attempt.data)
        return published


class ProcessLog:
    """The log port of one process; its subscriptions go when it does."""

    def __init__(self, shared: SimLog, faults: Faults) -> None:
        self._shared = shared
        self._faults = faults
        self._open: list[MemorySubscription] = []

    async def append(self, subject: str, record: Record, *, expected_version: int | None) -> int:
        return await self._shared.append(subject, record, expected_version=expected_version)

    async def last(self, subject: str) -> Recorded | None:
        return await self._shared.last(subject)

    async def get(self, position: int) -> Recorded | None:
        return await self._shared.get(position)

    def read(self, subject_filter: str, *, from_position: int = 1) -> AsyncIterator[Recorded]:
        return self._shared.read(subject_filter, from_position=from_position)

    async def subscribe(
        self, subject_filters: Sequence[str], *, from_position: int = 1
    ) -> ProcessSubscription:
        opened = await self._shared.subscribe(subject_filters, from_position=from_position)
        self._open.append(opened)
        return ProcessSubscription(opened, self._faults)

    async def latest(self, subject_filter: str) -> list[Recorded]:
        self._faults.read()
        return await self._shared.latest(subject_filter)

    async def end_of(self, subject_filters: Sequence[str]) -> int:
        self._faults.read()
        return await self._shared.end_of(subject_filters)

    async def last_position(self) -> int:
        self._faults.read()
        return await self._shared.last_position()

    async def close(self) -> None:
        """The shared log stays."""

    def vanish(self) -> None:
        """The server sees the connection end."""
        for each in self._open:
            if each in self._shared._subscriptions:
                self._shared._subscriptions.remove(each)


class ProcessSubscription:
    """At least once and in order: after a reconnect the newest records may come again."""

    def __init__(self, inner: MemorySubscription, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self._given: list[Recorded] = []

    async def next_batch(self, max_records: int, timeout_s: float) -> list[Recorded]:
        if self._faults.meets(self._faults.plan.cut_subscription):
            msg = "the connection is gone"
            raise LogUnavailableError(msg)
        batch = await self._inner.next_batch(max_records, timeout_s)
        if batch and self._given and self._faults.meets(self._faults.plan.doubled_delivery):
            batch = [*self._given, *batch]
        if batch:
            self._given = batch[-REPEATED_MAX:]
        return batch

    async def close(self) -> None:
        await self._inner.close()


class ProcessHints:
    """The hint port of one process: handlers run in that process, whoever sends."""

    def __init__(self, shared: MemoryHints, loop: SimLoop, process: str) -> None:
        self._shared = shared
        self._loop = loop
        self._process = process
        self._heard: list[tuple[str, Any]] = []

    async def send(self, subject: str, data: bytes) -> None:
        await self._shared.send(subject, data)

    async def listen(self, subject: str, handler: Any) -> Any:
        bound = self._loop.within(self._process, handler)
        self._heard.append((subject, bound))
        return await self._shared.listen(subject, bound)

    async def close(self) -> None:
        """The shared table stays."""

    def vanish(self) -> None:
        """Nobody listens any more."""
        for subject, bound in self._heard:
            if bound in self._shared._exact.get(subject, ()):
                self._shared._exact[subject].remove(bound)
            elif (subject, bound) in self._shared._wild:
                self._shared._wild.remove((subject, bound))
