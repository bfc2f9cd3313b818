"""Which shards a conductor owns: leases it takes, keeps, gives back and loses (PRJ-6).

Owns this process's line in the table of owners and its part of the shards. A lease is kept by a
heartbeat; who is silent for a whole lease, by the observer's own clock, has lost its shards, and
whoever is told to be dead (P22) loses them at once. Each claim and release is an event on the
shard's own subject, with an epoch that only grows. Safety never rests on any of this: a late owner
is refused by the log (P3). Refuses to go on under a name that another incarnation has taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from actors.lease_book import LeaseBook
from noetl_ray.errors import InternalError, LogError, NoetlError, StoreError
from noetl_ray.shards.plan import (
    Owner,
    Table,
    claimable,
    decode_table,
    encode_table,
    freed,
    given,
    surplus,
    without,
)
from noetl_ray.wal.subjects import shard_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from noetl_ray.clock import Clock
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.shards.port import OwnerTable
    from noetl_ray.wal.port import Log

_log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the table is looked at; a heartbeat may ask for more."""
LOOKS_PER_BEAT = 3
ABSENT_LOOKS = 3
"""So many looks missed mean that this process itself was away: it judges nobody then."""
TRIES = 8


@dataclass(slots=True)
class _Seen:
    incarnation: str
    beat: int
    at: float


@dataclass(slots=True, kw_only=True)
class _Next:
    """What one turn makes of a table."""

    table: Table
    claims: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Shards to take: the version of their subject, and the epoch."""
    reason: str = ""


class LeasedShards:
    """The shards of one process, by leases in a shared table."""

    def __init__(
        self,
        table: OwnerTable,
        log: Log,
        ids: SnowflakeIds,
        clock: Clock,
        *,
        name: str,
        incarnation: str,
        producer: str,
        shard_count: int,
        lease_s: float,
        heartbeat_s: float,
        unwanted: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        """Bind; nothing is claimed before :meth:`start`.

        Args:
            table: The table all owners share.
            log: Where claims and releases are told.
            ids: For those events.
            clock: Time.
            name: A name that survives restarts.
            incarnation: New for every process.
            producer: Who tells.
            shard_count: How many shards there are.
            lease_s: After how much silence an owner has lost its shards.
            heartbeat_s: How often this one says that it lives.
            unwanted: Whether no owner of a name is to be any more; it is not waited for then.
        """
        self.name = f"{name}/{incarnation}"
        self.generation = 0
        self.held: Mapping[int, int] = {}
        self.parting: Collection[int] = ()
        self._me = name
        self._incarnation = incarnation
        self._table = table
        self._log = log
        self._clock = clock
        self._book = LeaseBook(
            log, ids, clock, owner=name, incarnation=incarnation, producer=producer
        )
        self._shard_count = shard_count
        self._unwanted = unwanted
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._look_s = min(LOOK_S, heartbeat_s / LOOKS_PER_BEAT)
        self._seen: dict[str, _Seen] = {}
        self._looked_at: float | None = None
        self._beat_at: float | None = None
        self._beat = 0
        self._known: Table | None = None
        self._joined = False
        self._since: int | None = None
        self._liked: set[int] = set()
        self._dead: set[tuple[str, str]] = set()
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failed = ""

    async def start(self) -> Mapping[int, int]:
        """Join, and take the first shards; waits for the table as long as a lease.

        Raises:
            StoreError: the table cannot be reached.
        """
        deadline = self._clock.monotonic() + self._lease_s
        while True:
            try:
                await self._turn()
                break
            except StoreError:
                if self._clock.monotonic() >= deadline:
                    raise
                await self._clock.sleep(self._look_s)
        self._task = asyncio.create_task(self._run())
        return self.held

    async def parted(self, shards: Iterable[int]) -> None:
        """Shards are kept for their next owner and may be taken."""
        given_back = set(shards)
        if not given_back:
            return
        epochs = self._known.leases if self._known is not None else {}
        told = {shard: epochs[shard].epoch for shard in given_back if shard in epochs}
        with contextlib.suppress(NoetlError):
            await self._book.released(told, "rebalanced")
            await self._change(lambda table: freed(table, self._me, given_back))
        # When that failed, the next turn finds them held and parting still, and asks again.
        self.parting = [shard for shard in self.parting if shard not in given_back]

    async def stop(self) -> None:
        """Leave; what is held is free at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._joined and not self._failed:
            with contextlib.suppress(NoetlError):
                await self._book.released(self.held, "left")
                await self._change(self._left)

    def gone(self, name: str, incarnation: str) -> None:
        """Somebody noticed that a process is dead: its leases end now (P22)."""
        if (name, incarnation) != (self._me, self._incarnation):
            self._dead.add((name, incarnation))
            self._wake.set()

    def summary(self) -> dict[str, Any]:
        """Who it is, and whom it sees."""
        table = self._known or Table()
        return {
            "name": self._me,
            "incarnation": self._incarnation,
            "epochs": {str(shard): epoch for shard, epoch in sorted(self.held.items())},
            "owners": {name: len(table.held_by(name)) for name in sorted(table.owners)},
        }

    def check(self) -> None:
        """Refuse to go on under a name that is another's.

        Raises:
            InternalError: another incarnation has this name now; this process must end.
        """
        if self._failed:
            raise InternalError(self._failed)

    async def _run(self) -> None:
        while not self._failed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_s):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._turn()
            except (StoreError, LogError) as error:
                _log.warning("the table of shard owners waits: %s", error)

    async def _turn(self) -> None:
        """Look at the table, and change what is ours to change."""
        async with self._lock:
            dead = set(self._dead)
            for _ in range(TRIES):
                data, version = await self._table.read()
                table = self._read(data)
                if self._replaced(table):
                    return
                silent = self._silent(table)
                made = await self._made(table, silent)
                if made.table == table and data is not None:
                    self._dead -= dead
                    self._adopt(table)
                    return
                if await self._table.write(encode_table(made.table), version):
                    self._joined = True
                    # Once is enough: who was called dead by mistake may join again.
                    self._dead -= dead
                    self._beat_at = self._clock.monotonic()
                    self._beat = made.table.owners[self._me].beat
                    await self._book.claimed(made.claims, made.reason, self._lease_s)
                    self._adopt(made.table)
                    return
            _log.info("the table of shard owners changes too fast; looking again later")

    def _read(self, data: bytes | None) -> Table:
        if data is not None:
            try:
                return decode_table(data)
            except msgspec.DecodeError as error:
                _log.error("the table of shard owners is not one; writing it anew: %s", error)
        # Lost: everybody writes down what he remembers, and nobody is judged for it.
        self._seen.clear()
        return self._known or Table()

    def _replaced(self, table: Table) -> bool:
        entry = table.owners.get(self._me)
        if not self._joined or entry is None or entry.incarnation == self._incarnation:
            return False
        if entry.since < (self._since or 0):
            # Somebody wrote a lost table anew and remembered the one before us.
            return False
        self._failed = f"{self._me} is {entry.incarnation} now; this is {self._incarnation}"
        _log.error("%s", self._failed)
        self.held, self.parting = {}, ()
        self.generation += 1
        return True

    def _silent(self, table: Table) -> dict[str, str]:
        """Owners whose leases are over, and why."""
        now = self._clock.monotonic()
        first = self._looked_at is None
        if not first and now - (self._looked_at or 0.0) > ABSENT_LOOKS * self._look_s:
            # Not a judge of silence: it was away itself.
            self._seen.clear()
        self._looked_at = now
        over: dict[str, str] = {}
        for name, owner in table.owners.items():
            if name == self._me:
                continue
            seen = self._seen.get(name)
            if seen is None or (seen.incarnation, seen.beat) != (owner.incarnation, owner.beat):
                self._seen[name] = _Seen(owner.incarnation, owner.beat, now)
            elif now - seen.at > self._lease_s:
                over[name] = "expired"
            if first and owner.until_ms < self._clock.now_ms():
                over[name] = "expired"
            if (name, owner.incarnation) in self._dead or self._unwanted(name):
                over[name] = "lost"
        return over

    async def _made(self, table: Table, over: dict[str, str]) -> _Next:
        now = self._clock.monotonic()
        made = _Next(table=without(table, set(over)), reason=next(iter(over.values()), "free"))
        mine = made.table.owners.get(self._me)
        if mine is None or mine.incarnation != self._incarnation:
            await self._follow(mine)
            made.table = self._joining(made.table)
            made.reason = "joined"
        elif self._beat_at is None or now - self._beat_at >= self._heartbeat_s:
            made.table = self._with_beat(made.table)
        wanted = claimable(made.table, self._me, self._shard_count, self._liked)
        if wanted:
            ends = await asyncio.gather(*(self._log.last(shard_subject(s)) for s in wanted))
            for shard, last in zip(wanted, ends, strict=True):
                lease = made.table.leases.get(shard)
                told = last.record.events[-1].payload["epoch"] if last is not None else 0
                epoch = max(lease.epoch if lease else 0, told) + 1
                made.claims[shard] = (last.position if last is not None else 0, epoch)
            epochs = {shard: epoch for shard, (_, epoch) in made.claims.items()}
            made.table = given(made.table, self._me, self._incarnation, epochs)
        if made.table != table:
            made.table = self._with_beat(made.table)
        return made

    async def _follow(self, before: Owner | None) -> None:
        """Be later than whoever had the name before, also where the table has forgotten him."""
        if self._since is None:
            self._since = await self._log.last_position()
        if before is not None and not self._joined:
            self._since = max(self._since, before.since + 1)

    def _joining(self, table: Table) -> Table:
        """Our line, in place of that of an earlier incarnation, whose shards are free now."""
        self._liked |= set(table.held_by(self._me))
        table = self._with_beat(without(table, {self._me}))
        # Left out by mistake: what nobody took meanwhile is ours as before.
        back = {
            shard: epoch
            for shard, epoch in self.held.items()
            if (lease := table.leases.get(shard)) and not lease.owner and lease.epoch == epoch
        }
        return given(table, self._me, self._incarnation, back)

    def _with_beat(self, table: Table) -> Table:
        until_ms = self._clock.now_ms() + int(self._lease_s * 1000)
        line = Owner(
            incarnation=self._incarnation,
            beat=self._beat + 1,
            until_ms=until_ms,
            since=self._since or 0,
        )
        return msgspec.structs.replace(table, owners=table.owners | {self._me: line})

    async def _change(self, change: Callable[[Table], Table]) -> None:
        """Apply a change to the table, however often it moves under us."""
        async with self._lock:
            for _ in range(TRIES):
                data, version = await self._table.read()
                table = change(decode_table(data) if data is not None else Table())
                if await self._table.write(encode_table(table), version):
                    self._known = table
                    return

    def _left(self, table: Table) -> Table:
        mine = table.owners.get(self._me)
        if mine is None or mine.incarnation != self._incarnation:
            return table
        return without(table, {self._me})

    def _adopt(self, table: Table) -> None:
        """What the table says is ours, without what another needs more."""
        self._known = table
        ours = {
            shard: lease.epoch
            for shard, lease in table.leases.items()
            if (lease.owner, lease.incarnation) == (self._me, self._incarnation)
        }
        parting = set(surplus(table, self._me, self._shard_count))
        self._liked = set(ours)
        self._set({s: epoch for s, epoch in ours.items() if s not in parting}, parting)

    def _set(self, held: Mapping[int, int], parting: Collection[int]) -> None:
        if held != self.held or set(parting) != set(self.parting):
            self.held, self.parting = held, parting
            self.generation += 1
