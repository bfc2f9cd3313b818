"""The write-ahead log on NATS JetStream.

Owns the mapping of the log port onto one stream: an append is a publish that states the subject's
version, a read or subscription is an ordered delivery, single records come by direct get. Refuses
a stream whose set-up would lose or hide records.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from noetl_ray.clock import Clock, SystemClock
from noetl_ray.errors import ConfigError, LogError, LogUnavailableError
from noetl_ray.events.envelope import Record, encode_record
from noetl_ray.wal.connection import Connection, connect
from noetl_ray.wal.jetstream_api import Message, StreamApi
from noetl_ray.wal.jetstream_consumer import OrderedConsumer
from noetl_ray.wal.jetstream_mux import Mux
from noetl_ray.wal.jetstream_read import last_of_each, read_messages
from noetl_ray.wal.jetstream_stream import ensure_stream, events_config
from noetl_ray.wal.journal import Entry, Journal
from noetl_ray.wal.own import OwnRecords
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.settle import Attempt, Outcome, Published, check_subject, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl_ray.config.settings import Durability

SETTLE_S = 30.0

_WINDOW_KEY = "event_store.duplicate_window_s"


class JetStreamLog:
    """The log port over one stream; made by :meth:`open`."""

    def __init__(
        self,
        connection: Connection,
        mux: Mux,
        api: StreamApi,
        *,
        settle_s: float,
        clock: Clock,
        owns_connection: bool,
        journal: Journal,
    ) -> None:
        self._connection = connection
        self._mux = mux
        self._api = api
        self._settle_s = settle_s
        self._clock = clock
        self._owns_connection = owns_connection
        self._own = OwnRecords()
        self.journal = journal
        """What is on its way and not acknowledged yet."""

    @classmethod
    async def open(
        cls,
        connection: Connection | str,
        *,
        stream: str = "noetl_events",
        durability: Durability = "process",
        ack_timeout_ms: int = 5_000,
        duplicate_window_s: int = 120,
        settle_s: float = SETTLE_S,
        token: str | None = None,
        clock: Clock | None = None,
        journal: Journal | None = None,
    ) -> JetStreamLog:
        """Open the log, making its stream if there is none.

        Args:
            connection: A connection made by ``wal.connection.connect``, which stays the caller's;
                or an address, whose connection is closed with the log.
            stream: The name of the stream.
            durability: ``replicated`` keeps three copies; the others are the server's own setting.
            ack_timeout_ms: When an unanswered publish counts as lost and is settled.
            duplicate_window_s: How long the server remembers message ids.
            settle_s: How long an append waits for room in the journal, and then tries to learn its
                outcome.
            token: For an address only.
            clock: Where settling takes its time from.
            journal: The bound on what is not acknowledged; one of its own when none is given.

        Raises:
            ConfigError: the stream exists with a set-up that contradicts the log's.
            LogUnavailableError: the server cannot be reached.
        """
        if settle_s > duplicate_window_s:
            raise ConfigError(
                _WINDOW_KEY,
                duplicate_window_s,
                f"must not be shorter than the {settle_s:g} s in which an append is settled",
            )
        owns = isinstance(connection, str)
        client = await connect(connection, token) if isinstance(connection, str) else connection
        try:
            mux = await Mux.open(client, timeout_s=ack_timeout_ms / 1000)
            api = StreamApi(mux, stream, leader_reads=durability == "replicated")
            await ensure_stream(api, events_config(stream, durability, duplicate_window_s))
        except BaseException:
            if owns:
                await client.close()
            raise
        clock = clock or SystemClock()
        return cls(
            client,
            mux,
            api,
            settle_s=settle_s,
            clock=clock,
            owns_connection=owns,
            journal=journal or Journal(clock),
        )

    async def append(self, subject: str, record: Record, *, expected_version: int | None) -> int:
        """Append one record and return its position; see the port."""
        check_subject(subject)
        attempt = Attempt(
            subject=subject,
            data=encode_record(record),
            message_id=record.events[0].event_id,
            expected=expected_version,
        )
        entry = Entry(subject, record, len(attempt.data))
        if not self.journal.enter(entry):
            await self.journal.wait(entry, self._settle_s)
        try:
            self._own.note(subject, attempt.data, record)
            published = await self._api.publish(attempt)
            if published.outcome is Outcome.STORED:
                return published.position
            tail = _Tail(self, self._settle_s)
            return await settle(tail, self._clock, attempt, published, bound_s=self._settle_s)
        finally:
            self.journal.leave(entry)

    async def last(self, subject: str) -> Recorded | None:
        """The last record of a subject, or None."""
        return _recorded(await self._api.last(subject))

    async def get(self, position: int) -> Recorded | None:
        """The record at a position, or None."""
        return _recorded(await self._api.get(position))

    async def read(self, subject_filter: str, *, from_position: int = 1) -> AsyncIterator[Recorded]:
        """All records that match now, in order, then end."""
        async with contextlib.aclosing(
            read_messages(self._connection, self._api, subject_filter, from_position)
        ) as messages:
            async for message in messages:
                yield _decoded(message)

    async def subjects(self, subject_filter: str) -> AsyncIterator[tuple[str, int]]:
        """Subjects under a filter that hold records now, and how many."""
        async for page in self._api.subjects(subject_filter):
            for subject, count in sorted(page.items()):
                yield subject, count

    async def subscribe(
        self, subject_filters: Sequence[str], *, from_position: int = 1
    ) -> JetStreamSubscription:
        """Deliver matching records from a position on, for ever."""
        consumer = await OrderedConsumer.open(
            self._connection, self._api, subject_filters, from_position
        )
        return JetStreamSubscription(consumer, self._own)

    async def latest(self, subject_filter: str) -> list[Recorded]:
        """The last record of each subject that matches, in order of position."""
        messages = await last_of_each(self._connection, self._api, subject_filter)
        return [_decoded(message) for message in messages]

    async def end_of(self, subject_filters: Sequence[str]) -> int:
        """The position of the newest record under any of some filters, 0 when there is none."""
        ends = await asyncio.gather(*(self._end_of(each) for each in subject_filters))
        return max(ends, default=0)

    async def last_position(self) -> int:
        """The position of the newest record of the log, 0 when empty."""
        return int((await self._api.state())["last_seq"])

    async def first_after(self, subject_filter: str, position: int) -> Recorded | None:
        """The first record under a filter after a position, or None."""
        return _recorded(await self._api.first_after(subject_filter, position))

    async def purge(self, subject: str, *, keep: int = 0, below: int = 0) -> int:
        """Remove the records of a subject but the last ``keep``, or only those below a position.

        Returns how many went. Without either the subject starts again at version 0: only archived
        work may lose its terminal record (P7).
        """
        check_subject(subject)
        body: dict[str, str | int] = {"filter": subject}
        if keep:
            body["keep"] = keep
        elif below:
            body["seq"] = below
        answer = await self._api.call(f"STREAM.PURGE.{self._api.stream}", body)
        return int(answer.get("purged", 0))

    async def close(self) -> None:
        """Let go of the inbox, and of the connection if it is ours."""
        self._mux.close()
        if self._owns_connection:
            await self._connection.close()

    async def _end_of(self, subject_filter: str) -> int:
        message = await self._api.last(subject_filter)
        return 0 if message is None else message.position


class JetStreamSubscription:
    """A running delivery of records."""

    def __init__(self, consumer: OrderedConsumer, own: OwnRecords) -> None:
        self._consumer = consumer
        self._own = own

    async def next_batch(self, max_records: int, timeout_s: float) -> list[Recorded]:
        """Wait for at least one record or the timeout."""
        batch = await self._consumer.next_batch(max_records, timeout_s)
        record_of = self._own.record_of
        return [
            Recorded(
                position=message.position,
                subject=message.subject,
                time_ms=message.time_ms,
                record=record_of(message.subject, message.data),
                data=message.data,
            )
            for message in batch
        ]

    async def close(self) -> None:
        """Stop delivery; safe to call twice."""
        await self._consumer.close()


class _Tail:
    """What settling sees: each call first waits for a connection within the rest of the bound."""

    def __init__(self, log: JetStreamLog, bound_s: float) -> None:
        self._log = log
        self._clock = log._clock
        self._deadline = self._clock.monotonic() + bound_s

    async def publish(self, attempt: Attempt) -> Published:
        await self._reach()
        return await self._log._api.publish(attempt)

    async def last(self, subject: str) -> Recorded | None:
        await self._reach()
        return await self._log.last(subject)

    async def first_after(self, subject: str, position: int) -> Recorded | None:
        await self._reach()
        return _recorded(await self._log._api.first_after(subject, position))

    async def get(self, position: int) -> Recorded | None:
        await self._reach()
        return await self._log.get(position)

    async def _reach(self) -> None:
        if self._log._connection.is_closed:
            msg = "the log is closed"
            raise LogError(msg)
        if not await self._log._connection.wait_up(self._deadline - self._clock.monotonic()):
            msg = "NATS is not reachable"
            raise LogUnavailableError(msg)


def _decoded(message: Message) -> Recorded:
    return Recorded(
        position=message.position,
        subject=message.subject,
        time_ms=message.time_ms,
        data=message.data,
    )


def _recorded(message: Message | None) -> Recorded | None:
    return None if message is None else _decoded(message)
