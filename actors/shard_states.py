"""The shards a conductor drives now: their states, where they begin, and taking them up.

Owns the one subscription over all owned shards and the start of each: its checkpoint, and the log
from there (P25). A shard gained later is caught up with before it is driven; one that is lost is
dropped with everything in memory about it. Refuses records from before a shard's checkpoint, so
that nothing that has ended comes back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from actors.messages import ShardsWord
from noetl_ray.wal.subjects import EVENTS_ROOT, WORKERS_FILTER, shard_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from actors.checkpointer import Checkpointer
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.wal.port import Log, Recorded, Subscription

_log = logging.getLogger(__name__)

BATCH_MAX = 512
QUIET_S = 0.2
_EVENTS = f"{EVENTS_ROOT}."
_WORKERS = -1
"""Stands for what is no shard: the workers, whose last words are read first."""
QUIET_TURNS_MAX = 50
"""How often a delivery may be silent before a catch-up goes on without what is missing: it comes
later, as any other record does."""


class OwnedShards:
    """What one conductor owns, and its place in the log."""

    def __init__(
        self,
        log: Log,
        checkpointer: Checkpointer | None,
        *,
        absorb: Callable[[Recorded], int],
        restore: Callable[[ExecutionState], None],
    ) -> None:
        """Own nothing yet.

        Args:
            log: Where records come from.
            checkpointer: Where shards begin; None begins at the start of the log.
            absorb: Takes a record.
            restore: Takes a state out of a checkpoint.
        """
        self._log = log
        self._checkpointer = checkpointer
        self._absorb = absorb
        self._restore = restore
        self._shards: dict[int, int] = {}
        self._floors: dict[int, int] = {}
        self._subscription: Subscription | None = None
        self._newest = 0
        self.delivered = 0
        """Everything owned is folded up to here."""
        self.replayed = 0
        """Records read by the last start or takeover."""

    def __contains__(self, shard: object) -> bool:
        """Whether a shard is owned."""
        return shard in self._shards

    def __iter__(self) -> Iterator[int]:
        """The owned shards in order."""
        return iter(sorted(self._shards))

    @property
    def epochs(self) -> Mapping[int, int]:
        """Owned shards and the lease epoch of each."""
        return self._shards

    def word(self, owner: str) -> ShardsWord:
        """What others may hear of the owned shards."""
        ages = self._checkpointer.ages_ms() if self._checkpointer is not None else {}
        said = {shard: (epoch, ages.get(shard, 0)) for shard, epoch in self._shards.items()}
        return ShardsWord(owner=owner, shards=said)

    async def start(self, shards: Mapping[int, int]) -> None:
        """Take up the first shards, with the workers that live."""
        begun = await self._log.last_position()
        for recorded in await self._log.latest(WORKERS_FILTER):
            self._absorb(recorded)
        await self._take_up(shards, begun)

    async def gain(self, shards: Mapping[int, int]) -> None:
        """Take up further shards; those already owned wait as long as that takes."""
        await self._take_up(shards, self.delivered)

    async def lose(self, shards: Iterable[int]) -> None:
        """Let go of shards; the delivery goes on without them."""
        for shard in shards:
            self._shards.pop(shard, None)
            self._floors.pop(shard, None)
        await self._subscribe(self.delivered)

    async def next_batch(self, timeout_s: float) -> list[Recorded]:
        """Records of owned shards, in order; whoever took them says so by :meth:`passed`."""
        assert self._subscription is not None
        batch = await self._subscription.next_batch(BATCH_MAX, timeout_s)
        if batch:
            self._newest = batch[-1].position
        return [each for each in batch if self._is_due(each)] if self._floors else batch

    def passed(self) -> None:
        """Everything handed out has been absorbed."""
        self.delivered = max(self.delivered, self._newest)
        if self._floors and self.delivered >= max(self._floors.values()):
            self._floors.clear()

    async def close(self) -> None:
        """End the delivery."""
        if self._subscription is not None:
            await self._subscription.close()

    async def _take_up(self, shards: Mapping[int, int], begun: int) -> None:
        loaded = await self._checkpointer.load(shards) if self._checkpointer else []
        positions = dict.fromkeys(shards, 0) | {each.shard: each.position for each in loaded}
        for each in loaded:
            for state in each.states.values():
                self._restore(state)
        first = min(positions.values(), default=begun)
        if self._shards:
            first = min(first, begun)
            positions |= {s: max(begun, self._floors.get(s, 0)) for s in self._shards}
        positions[_WORKERS] = max(begun, self._floors.get(_WORKERS, 0))
        self._shards |= shards
        self._floors = {shard: position for shard, position in positions.items() if position}
        self.delivered = self._newest = first
        await self._subscribe(first)
        await self._catch_up()
        _log.info(
            "owns shards %s: %d open executions out of checkpoints, %d records read since",
            sorted(self._shards),
            sum(len(each.states) for each in loaded),
            self.replayed,
        )

    async def _subscribe(self, after: int) -> None:
        await self.close()
        filters = [*(shard_filter(shard) for shard in self), WORKERS_FILTER]
        self._subscription = await self._log.subscribe(filters, from_position=after + 1)

    async def _catch_up(self) -> None:
        """Read to what is the end now; the end is known, so that nobody waits for silence."""
        end = await self._log.end_of([*(shard_filter(shard) for shard in self), WORKERS_FILTER])
        self.replayed = 0
        quiet = 0
        while self.delivered < end and quiet < QUIET_TURNS_MAX:
            assert self._subscription is not None
            batch = await self._subscription.next_batch(BATCH_MAX, QUIET_S)
            quiet = 0 if batch else quiet + 1
            for recorded in batch:
                if not self._floors or self._is_due(recorded):
                    self._absorb(recorded)
                    self.replayed += 1
                self._newest = recorded.position
            self.passed()

    def _is_due(self, recorded: Recorded) -> bool:
        subject = recorded.subject
        shard = int(subject.split(".", 3)[2]) if subject.startswith(_EVENTS) else _WORKERS
        return recorded.position > self._floors.get(shard, 0)
