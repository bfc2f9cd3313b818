"""Generator numbers for snowflake ids, leased to one process incarnation at a time.

Owns the bucket of leases on the log's server: a number is taken by creating its key, which only
one process can do, and kept by renewing it before it runs out. Ids only identify, so this is the
one place where two of them are kept apart. Refuses to go on in silence when a lease is lost:
``lost`` turns true, and whoever mints with the number must stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

from noetl_ray.clock import Clock, SystemClock
from noetl_ray.errors import LogUnavailableError
from noetl_ray.ids import GENERATORS_MAX
from noetl_ray.wal.jetstream_errors import from_nats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.js.kv import KeyValue

    from noetl_ray.wal.connection import Connection

BUCKET = "noetl_generators"
LEASE_S = 60.0
RENEW_S = 20.0

_log = logging.getLogger(__name__)


class GeneratorLease:
    """A number that is ours until :meth:`close`, or until ``lost`` says otherwise."""

    def __init__(self, number: int, release: Callable[[], Awaitable[None]]) -> None:
        self.number = number
        self._release = release
        self._lost = False
        self._closed = False

    @property
    def lost(self) -> bool:
        """Whether another process may hold the number by now."""
        return self._lost

    def mark_lost(self) -> None:
        """Record that the lease could not be kept."""
        self._lost = True

    async def close(self) -> None:
        """Give the number back; safe to call twice."""
        if not self._closed:
            self._closed = True
            await self._release()


class MemoryGenerators:
    """Numbers within one process, for tests and the simulator; the lowest free one comes first."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    async def lease(self, owner: str) -> GeneratorLease:
        """Take the lowest free number; the owner is only for logs.

        Raises:
            LogUnavailableError: all numbers are taken.
        """
        number = next((n for n in range(GENERATORS_MAX) if n not in self._taken), None)
        if number is None:
            raise _exhausted(owner)
        self._taken.add(number)

        async def release() -> None:
            self._taken.discard(number)

        return GeneratorLease(number, release)


async def lease_generator(
    connection: Connection,
    owner: str,
    *,
    lease_s: float = LEASE_S,
    renew_s: float = RENEW_S,
    clock: Clock | None = None,
) -> GeneratorLease:
    """Take a generator number and keep it in the background.

    Args:
        connection: The log's connection, which stays the caller's.
        owner: Who takes it, as people will see it in the bucket.
        lease_s: How long a number stays taken without renewal; fixed by whoever makes the bucket.
        renew_s: How often to renew.
        clock: Where the lease takes its time from.

    Raises:
        LogUnavailableError: the server cannot be reached, or all numbers are taken.
    """
    used_clock = clock or SystemClock()
    try:
        bucket = await _bucket(connection, lease_s)
        taken_at = used_clock.monotonic()
        number, revision = await _take(bucket, owner)
    except (NatsError, TimeoutError, OSError) as error:
        raise from_nats(error) from None
    return _Keeper(
        connection, bucket, owner, number, revision, used_clock, taken_at, lease_s, renew_s
    ).lease


async def _bucket(connection: Connection, lease_s: float) -> KeyValue:
    stream = connection.jetstream()
    try:
        return await stream.create_key_value(bucket=BUCKET, history=1, ttl=lease_s)
    except NatsError:
        # It exists with another lease time: the one who made it decides.
        return await stream.key_value(BUCKET)


async def _take(bucket: KeyValue, owner: str) -> tuple[int, int]:
    # Starting at a place of one's own keeps processes that start together from racing.
    start = zlib.crc32(owner.encode()) % GENERATORS_MAX
    for offset in range(GENERATORS_MAX):
        number = (start + offset) % GENERATORS_MAX
        with contextlib.suppress(KeyWrongLastSequenceError):
            return number, await bucket.create(str(number), owner.encode())
    raise _exhausted(owner)


class _Keeper:
    """Renews one number until it is released or lost."""

    def __init__(
        self,
        connection: Connection,
        bucket: KeyValue,
        owner: str,
        number: int,
        revision: int,
        clock: Clock,
        taken_at: float,
        lease_s: float,
        renew_s: float,
    ) -> None:
        self.lease = GeneratorLease(number, self._release)
        self._connection = connection
        self._bucket = bucket
        self._owner = owner
        self._revision = revision
        self._clock = clock
        self._until = taken_at + lease_s
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._released = False
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        pause = self._renew_s
        while not self.lease.lost and not self._released:
            await self._clock.sleep(pause)
            asked_at = self._clock.monotonic()
            try:
                self._revision = await self._bucket.update(
                    str(self.lease.number), self._owner.encode(), last=self._revision
                )
                self._until = asked_at + self._lease_s
                pause = self._renew_s
            except KeyWrongLastSequenceError:
                await self._on_refused()
            except (NatsError, TimeoutError, OSError) as error:
                _log.warning("generator %d is not renewed: %s", self.lease.number, error)
                pause = min(1.0, self._renew_s)
                await self._take_again()
            if not self._released and self._clock.monotonic() >= self._until:
                self._lose("the server was away too long")

    async def _on_refused(self) -> None:
        """A refusal may be the echo of our own renewal whose answer was lost."""
        with contextlib.suppress(NatsError, TimeoutError, OSError):
            try:
                entry = await self._bucket.get(str(self.lease.number))
            except KeyNotFoundError:
                if self._clock.monotonic() < self._until:
                    await self._write_down()
                    return
                raise
            if entry.value == self._owner.encode() and entry.revision is not None:
                self._revision = entry.revision
                return
        self._lose("another process has it")

    async def _take_again(self) -> None:
        """After the whole bucket was removed: it is derived, and we live (PRIN-1)."""
        with contextlib.suppress(NatsError, TimeoutError, OSError):
            try:
                await self._bucket.status()
            except NotFoundError:
                self._bucket = await _bucket(self._connection, self._lease_s)
                await self._write_down()

    async def _write_down(self) -> None:
        """Take the number that is still ours once more; somebody removed the note of it."""
        asked_at = self._clock.monotonic()
        self._revision = await self._bucket.create(str(self.lease.number), self._owner.encode())
        self._until = asked_at + self._lease_s

    def _lose(self, why: str) -> None:
        if not self.lease.lost:
            _log.error("generator %d of %s is lost: %s", self.lease.number, self._owner, why)
            self.lease.mark_lost()

    async def _release(self) -> None:
        # The cancel alone may be swallowed by a wait_for of the driver that just got its answer.
        self._released = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.lease.lost:
            return
        try:
            await self._bucket.delete(str(self.lease.number), last=self._revision)
        except (NatsError, TimeoutError, OSError) as error:
            _log.info("generator %d runs out by itself: %s", self.lease.number, error)


def _exhausted(owner: str) -> LogUnavailableError:
    msg = f"all {GENERATORS_MAX} generator numbers are taken; {owner} cannot mint ids"
    return LogUnavailableError(msg)
