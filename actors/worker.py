"""The worker: takes offered commands, runs their pipelines, persists results.

And records completions.

It decides nothing about routing (PRIN-4). A completion states the version its claim gave it, so a
command taken away meanwhile refuses it (P16); the bytes of a result are durable before the event
that names them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from actors.collection_frame import CollectionFrameRun
from actors.command_run import CommandRun
from actors.ended_work import EndedWork
from actors.frame_run import FrameRun
from actors.holding import subject_of
from actors.lease import LeaseLostError, WorkerLease
from actors.messages import (
    CANCEL,
    Announcement,
    Offer,
    decode_heard,
    decode_nudge,
    decode_offer,
    encode,
    heard_subject,
)
from actors.reduce_frame import ReduceFrameRun
from noetl_ray.errors import LogError, NoetlError, VersionConflictError
from noetl_ray.hints.port import ANNOUNCE, offer_subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.worker_ports import WorkerIdentity, WorkerPorts

_log = logging.getLogger(__name__)

OFFER_FRESH_MS = 2_000
"""An offer older than this is checked against the log before it is worked on."""
SEEN_MAX = 20_000


class Worker:
    """Runs commands, several at once, in one process."""

    name = "worker"

    def __init__(
        self,
        identity: WorkerIdentity,
        ports: WorkerPorts,
        *,
        lease_ms: int,
        announce_ms: int,
        shard_count: int,
    ) -> None:
        self._me = identity
        self._p = ports
        self._lease_ms = lease_ms
        self._shard_count = shard_count
        self._announce_s = announce_ms / 1000
        self._slots = asyncio.Semaphore(identity.slots)
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._seen: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._nudged: set[str] = set()
        self._ended_work = EndedWork(ports.log, ports.clock.monotonic, self._drop)
        self._stoppers: list[Callable[[], Awaitable[None]]] = []
        self._done = 0
        self._refused = 0
        self._lives = 1
        self._lost = False
        self._lease = self._new_lease(identity.incarnation)

    def _new_lease(self, incarnation: str) -> WorkerLease:
        return WorkerLease(
            self._p.log,
            self._p.ids,
            self._p.clock,
            worker_id=self._me.worker_id,
            incarnation=incarnation,
            producer=self._me.producer,
            facts={"slots": self._me.slots, "place": self._me.place},
            lease_ms=self._lease_ms,
        )

    async def _begin_anew(self) -> None:
        """Drop what belongs to the lost incarnation and join as another."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._lives += 1
        self._lease = self._new_lease(f"{self._me.incarnation}.{self._lives}")
        self._lost = False
        await self._lease.join()

    async def start(self) -> None:
        """Listen for offers, then join in the log: whoever reads the join can offer at once."""
        # One subject per shard instead of a wildcard: a conductor in this process then reaches us
        # without the server.
        for shard in range(self._shard_count):
            subject = offer_subject(shard, self._me.worker_id)
            self._stoppers.append(await self._p.hints.listen(subject, self._on_offer))
        self._stoppers.append(await self._p.hints.listen(CANCEL, self._on_cancel))
        self._stoppers.append(
            await self._p.hints.listen(heard_subject(self._me.worker_id), self._on_heard)
        )
        await self._lease.join()

    async def step(self) -> None:
        """Announce that this incarnation lives; begin anew when it was declared lost."""
        await self._notice_loss()
        if self._lost:
            await self._begin_anew()
        announcement = Announcement(
            worker_id=self._me.worker_id,
            incarnation=self._lease.incarnation,
            sequence=self._lease.announced(),
            running=len(self._tasks),
        )
        await self._p.hints.send(ANNOUNCE, encode(announcement))
        self._ended_work.look()
        await self._p.clock.sleep(self._announce_s)

    async def _notice_loss(self) -> None:
        """Learn of a verdict even with nothing to run: nobody offers a lost worker anything."""
        if self._lost or self._lease.valid:
            return
        try:
            await self._lease.check()
        except LeaseLostError:
            self._lost = True
        except LogError as error:
            _log.info("cannot ask about the lease yet: %s", error)

    async def stop(self) -> None:
        """Leave: stop taking offers, drop what runs (the log has it), say goodbye."""
        for stopper in self._stoppers:
            await stopper()
        await self._ended_work.stop()
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        try:
            await self._lease.leave()
        except NoetlError as error:
            _log.info("left without a word: %s", error)

    def summary(self) -> dict[str, Any]:
        """What it holds and has done."""
        return {
            "worker_id": self._me.worker_id,
            "running": len(self._tasks),
            "completed": self._done,
            "refused": self._refused,
            "barrier": dict(self._p.barriers.counts),
        }

    def _on_offer(self, _subject: str, data: bytes) -> None:
        offer = decode_offer(data)
        if offer.incarnation != self._lease.incarnation:
            return
        command_id = offer.issued.command_id or ""
        holding = (command_id, offer.attempt)
        if holding in self._tasks or (command_id, offer.version) in self._seen:
            # Our own record moves the version on, so a second hint may name one we know of first.
            return
        self._see(command_id, offer.version)
        task = asyncio.create_task(self._work(offer))
        self._tasks[holding] = task
        self._ended_work.began(holding, offer)
        task.add_done_callback(lambda _t: self._ended(holding))

    def _see(self, command_id: str, version: int) -> None:
        """No offer at this version starts the command again."""
        self._seen[command_id, version] = None
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)

    def _ended(self, holding: tuple[str, int]) -> None:
        self._tasks.pop(holding, None)
        self._ended_work.ended(holding)
        self._nudged.discard(holding[0])

    async def _on_cancel(self, _subject: str, data: bytes) -> None:
        self._drop(decode_nudge(data).execution_id)

    def _drop(self, execution_id: int) -> None:
        """An execution has ended: nothing of it is to run on."""
        prefix = f"{execution_id}-"
        for (command_id, _attempt), task in list(self._tasks.items()):
            if command_id.startswith(prefix):
                self._nudged.add(command_id)
                task.cancel()

    async def _on_heard(self, _subject: str, data: bytes) -> None:
        heard = decode_heard(data)
        if heard.incarnation == self._lease.incarnation:
            self._lease.heard(heard.sequence)

    async def _work(self, offer: Offer) -> None:
        command_id = offer.issued.command_id or ""
        version = offer.version

        def advanced(to: int) -> None:
            nonlocal version
            version = to
            self._see(command_id, to)

        async with self._slots:
            try:
                if self._p.clock.now_ms() - offer.sent_ms > OFFER_FRESH_MS:
                    await self._check_still_ours(offer)
                run = _kind_of_run(offer)(
                    self._me, self._p, offer, self._lease, self._nudged, advanced
                )
                await run.run()
                run.take_apart()
                self._done += 1
            except VersionConflictError:
                # The command was taken away or ended: our run is void, the log has the truth.
                self._refused += 1
            except LeaseLostError:
                self._refused += 1
                self._lost = True
            except asyncio.CancelledError:
                raise
            except Exception:
                # Forget its newest version, so that the conductor's next hint starts it anew, from
                # what is recorded. Hints that were sent before that stay known.
                self._seen.pop((command_id, version), None)
                _log.exception("command %s broke", command_id)

    async def _check_still_ours(self, offer: Offer) -> None:
        last = await self._p.log.last(subject_of(offer))
        version = last.position if last else 0
        if version != offer.version:
            raise VersionConflictError(subject_of(offer), offer.version, version)


def _kind_of_run(offer: Offer) -> type[CommandRun]:
    if not offer.issued.stage_id:
        return CommandRun
    if "reduce" in offer.issued.payload:
        return ReduceFrameRun
    return CollectionFrameRun if "range" in offer.issued.payload else FrameRun
