"""Keeps what a conductor has folded, so that whoever comes next need not fold it again (P25).

Once an interval it saves the states that were touched since the last save, shard by shard, and says
so in the log. It works beside the conductor: nobody waits for it, and a save that fails is made
again with what was touched meanwhile. The store refuses a save of an owner whose shard has moved
on; that shard is then left alone. Owns what is touched and how long ago; refuses to be needed for
anything but speed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.stamp import shard_event
from noetl_ray.errors import LogError, VersionConflictError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import EventType
from noetl_ray.shards.checkpoint import Checkpoint, Save, encode_save, encode_state, read_chain
from noetl_ray.wal.subjects import checkpoint_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from noetl_ray.clock import Clock
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.shards.port import CheckpointStore
    from noetl_ray.wal.port import Log

_log = logging.getLogger(__name__)

ENCODED_AT_ONCE = 50
"""States that are encoded before others get their turn."""
CHANGES_MAX = 256
CHANGES_MIN = 8
"""How many saves of changes follow a base at most, and at least."""
IDLE_RECORDS_MAX = 5_000
"""How far the log may go on before an idle shard says again where it stands: what a restart reads
grows with it."""
NAMED_MAX = 5_000
"""Executions that one event names."""


@dataclass(slots=True, kw_only=True)
class _Shard:
    epoch: int
    version: int = 0
    marked: int | None = None
    """Version of the subject that says so in the log; None when it is not known."""
    sound: bool = False
    """Whether the chain ends with what this owner knows."""
    position: int = 0
    anchor: tuple[int, int] = (0, 0)
    kept: set[int] = field(default_factory=set)
    """Executions the chain knows."""
    touched: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    since: float | None = None
    """When the oldest change was made that is not saved yet."""
    changes: int = 0
    change_bytes: int = 0
    base_bytes: int = 0
    lost: bool = False


class Checkpointer:
    """The checkpoints of one conductor."""

    def __init__(
        self,
        store: CheckpointStore,
        log: Log,
        ids: SnowflakeIds,
        clock: Clock,
        *,
        producer: str,
        owner: str,
        interval_ms: int,
        states: Mapping[int, ExecutionState],
        reached: Callable[[], int],
    ) -> None:
        """Begin with no shard.

        Args:
            store: Where saves go.
            log: Where it is said that they were made.
            ids: For the events that say so.
            clock: Time.
            producer: Who says so.
            owner: Name and incarnation of the conductor.
            interval_ms: How often a shard is saved at most.
            states: The live states, which it reads and never changes.
            reached: The position up to which everything was delivered.
        """
        self._store = store
        self._log = log
        self._ids = ids
        self._clock = clock
        self._producer = producer
        self._owner = owner
        self._interval_s = interval_ms / 1000
        self._states = states
        self._reached = reached
        self._shards: dict[int, _Shard] = {}
        self._saving: asyncio.Task[None] | None = None
        self._begun_at = 0.0
        self._counts = {"saves": 0, "states": 0, "bytes": 0, "failed": 0}

    async def load(self, shards: Mapping[int, int]) -> list[Checkpoint]:
        """What the store has of some shards, by shard with its epoch; their saves begin here."""
        found = await asyncio.gather(*(self._load(shard) for shard in shards))
        for each in found:
            usable = not each.refused
            self._shards[each.shard] = _Shard(
                epoch=shards[each.shard],
                version=each.version,
                sound=usable and each.base_version > 0,
                position=each.position if usable else 0,
                anchor=(each.anchor_position, each.anchor_event_id) if usable else (0, 0),
                kept=set(each.states) if usable else set(),
                changes=each.changes,
                change_bytes=each.change_bytes,
                base_bytes=each.base_bytes,
            )
        return found

    async def _load(self, shard: int) -> Checkpoint:
        try:
            found = read_chain(shard, await self._store.read(shard))
            if found.position and not found.refused:
                found.refused = await self._foreign(found)
        except LogError as error:
            found = Checkpoint(shard=shard, refused=f"cannot be read: {error}")
        if found.refused:
            found.states, found.position = {}, 0
            _log.warning(
                "the checkpoint of shard %d %s; its log is folded from the start",
                shard,
                found.refused,
            )
        return found

    async def _foreign(self, found: Checkpoint) -> str:
        """Whether the log is another one than that of the checkpoint, restored or made anew."""
        newest = await self._log.last_position()
        if found.position > newest:
            return f"is at {found.position} and the log ends at {newest}"
        if not found.anchor_position:
            return ""
        recorded = await self._log.get(found.anchor_position)
        # A record that is gone was archived and trimmed; only another one in its place speaks.
        if recorded is None or recorded.record.events[-1].event_id == found.anchor_event_id:
            return ""
        return "belongs to another log"

    def touch(self, state: ExecutionState) -> None:
        """A state has changed."""
        mark = self._shards.get(state.shard)
        if mark is None:
            return
        mark.touched.add(state.execution_id)
        if state.terminal:
            # Said, never guessed: a state may also be away because its shard is another's now.
            mark.ended.add(state.execution_id)
        if mark.since is None:
            mark.since = self._clock.monotonic()

    def forget(self, shards: Iterable[int]) -> None:
        """Shards that are another's now; a save under way writes nothing more about them."""
        for shard in shards:
            mark = self._shards.pop(shard, None)
            if mark is not None:
                mark.lost = True

    def turn(self) -> None:
        """Begin the saves that are due; a save under way is left to end."""
        now = self._clock.monotonic()
        if now - self._begun_at < self._interval_s or self._saving is not None:
            return
        due = self._due(now - self._interval_s / 2)
        if due:
            self._begun_at = now
            self._saving = asyncio.create_task(self._save_all(due))
            self._saving.add_done_callback(self._saved)

    async def save(self, shards: Iterable[int]) -> None:
        """Save some shards now, as their owner does before it gives them away."""
        await self.settle()
        await self._save_all([shard for shard in shards if shard in self._shards])

    async def settle(self) -> None:
        """Wait until no save is under way."""
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)

    async def stop(self) -> None:
        """Let go; what is not saved is folded again."""
        if self._saving is not None:
            self._saving.cancel()
        await self.settle()

    def ages_ms(self) -> dict[int, int]:
        """By shard, how old the oldest change is that no save has; 0 where everything is saved."""
        now = self._clock.monotonic()
        return {
            shard: 0 if mark.since is None else int((now - mark.since) * 1000)
            for shard, mark in sorted(self._shards.items())
        }

    def summary(self) -> dict[str, Any]:
        """What was saved so far, and how far behind it is."""
        return {**self._counts, "age_ms": max(self.ages_ms().values(), default=0)}

    def _due(self, before: float) -> list[int]:
        """Everything touched, once something was touched before a moment; and who lags behind.

        What begins and ends between two saves is never written at all.
        """
        marks = {shard: mark for shard, mark in self._shards.items() if not mark.lost}
        old = any(mark.since is not None and mark.since <= before for mark in marks.values())
        reached = self._reached()
        return [
            shard
            for shard, mark in marks.items()
            if (old and mark.touched) or reached - mark.position > IDLE_RECORDS_MAX
        ]

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._saving = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("checkpoint: %r", task.exception())

    async def _save_all(self, shards: list[int]) -> None:
        for shard in shards:
            mark = self._shards.get(shard)
            if mark is not None and not mark.lost:
                await self._save(shard, mark)

    async def _save(self, shard: int, mark: _Shard) -> None:
        touched, ended, since = mark.touched, mark.ended, mark.since
        mark.touched, mark.ended, mark.since = set(), set(), None
        done = False
        try:
            save = await self._made(shard, mark, touched, ended)
            idle = not save.base and not save.states and not save.ended
            if mark.lost or (idle and save.position - mark.position <= IDLE_RECORDS_MAX):
                done = True
                return
            size = await self._store_it(shard, mark, save)
            done = True
        except VersionConflictError as error:
            await self._refused(shard, mark, error)
            return
        except (LogError, ValueError) as error:
            self._counts["failed"] += 1
            _log.warning("the checkpoint of shard %d waits: %s", shard, error)
            return
        finally:
            if not done:
                mark.touched |= touched
                mark.ended |= ended
                mark.since = since if since is not None else mark.since
                mark.sound = False
        mark.position = save.position
        mark.anchor = (save.anchor_position, save.anchor_event_id)
        self._counts["saves"] += 1
        self._counts["states"] += len(save.states)
        self._counts["bytes"] += size
        await self._say(shard, mark, save, sorted(touched))

    async def _refused(self, shard: int, mark: _Shard, error: VersionConflictError) -> None:
        """Someone else wrote: an owner before us who woke late, or the one after us."""
        try:
            found = read_chain(shard, await self._store.read(shard))
        except LogError:
            return
        if found.epoch < mark.epoch or found.owner == self._owner:
            # A base of ours comes next, and his further saves are refused in turn.
            mark.version = found.version
            return
        mark.lost = True
        _log.info("shard %d is saved by %s now: %s", shard, found.owner, error)

    async def _made(self, shard: int, mark: _Shard, touched: set[int], ended: set[int]) -> Save:
        """What this save holds; states may go on changing while it is made (see the codec)."""
        if not mark.sound:
            found = read_chain(shard, await self._store.read(shard))
            if found.epoch > mark.epoch:
                subject = checkpoint_subject(shard)
                raise VersionConflictError(subject, mark.version, found.version)
            mark.version = found.version
        base = not mark.sound or self._is_long(mark)
        position = max(self._reached(), mark.position)
        wanted = touched - ended
        if base:
            wanted = {e for e, state in self._states.items() if state.shard == shard}
        states, anchor = await self._encoded(wanted, mark.anchor)
        gone = set() if base else ended & mark.kept
        mark.kept = wanted if base else (mark.kept | wanted) - gone
        return Save(
            base=base,
            shard=shard,
            epoch=mark.epoch,
            position=position,
            anchor_position=anchor[0],
            anchor_event_id=anchor[1],
            saved_ms=self._clock.now_ms(),
            owner=self._owner,
            states=states,
            ended=sorted(gone),
        )

    def _is_long(self, mark: _Shard) -> bool:
        """Whether a base is cheaper to read than the changes since the last one."""
        if mark.changes >= CHANGES_MAX:
            return True
        return mark.changes >= CHANGES_MIN and mark.change_bytes > mark.base_bytes

    async def _encoded(
        self, wanted: set[int], anchor: tuple[int, int]
    ) -> tuple[list[msgspec.Raw], tuple[int, int]]:
        states: list[msgspec.Raw] = []
        for number, execution_id in enumerate(sorted(wanted), start=1):
            state = self._states.get(execution_id)
            if state is not None:
                states.append(encode_state(state))
                anchor = max(anchor, (state.position, state.last_event_id))
            if number % ENCODED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return states, anchor

    async def _store_it(self, shard: int, mark: _Shard, save: Save) -> int:
        messages = encode_save(save)
        first = 0
        # Unknown until the last answer is there.
        mark.sound = False
        for data in messages:
            mark.version = await self._store.add(shard, data, expected=mark.version)
            first = first or mark.version
        mark.sound = True
        size = sum(map(len, messages))
        if save.base:
            mark.base_bytes, mark.change_bytes, mark.changes = size, 0, 0
            await self._store.drop_before(shard, first)
        else:
            mark.change_bytes += size
            mark.changes += 1
        return size

    async def _say(self, shard: int, mark: _Shard, save: Save, touched: list[int]) -> None:
        """One record per save: where the shard stands, and which executions were touched."""
        subject = checkpoint_subject(shard)
        try:
            if mark.marked is None:
                last = await self._log.last(subject)
                mark.marked = 0 if last is None else last.position
            events = tuple(
                shard_event(
                    EventType.CHECKPOINT_COMMITTED,
                    shard,
                    subject,
                    {
                        "shard": shard,
                        "epoch": mark.epoch,
                        "owner": self._owner,
                        "position": save.position,
                        "last_event_id": save.anchor_event_id,
                        "base": save.base,
                        "executions": [str(each) for each in touched[at : at + NAMED_MAX]],
                        "upcaster_registry_digest": save.registry,
                    },
                    event_id=self._ids.mint(),
                    now_ms=save.saved_ms,
                    producer=self._producer,
                )
                for at in range(0, len(touched) or 1, NAMED_MAX)
            )
            mark.marked = await self._log.append(
                subject, Record(events=events), expected_version=mark.marked
            )
        except LogError as error:
            # The save counts without it; the next one is told again.
            mark.marked = None
            _log.info("the checkpoint of shard %d is not told: %s", shard, error)
