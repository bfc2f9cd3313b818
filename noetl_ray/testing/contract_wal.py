"""The proofs every log adapter must pass, each property one function over a fresh, empty log.

Owns what the log port promises, written as checks a user's own adapter can run too, named after the
rules of the architecture: ``LOG_CHECKS``. A broken promise is an AssertionError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from noetl_ray.errors import (
    EnvelopeError,
    InternalError,
    LogError,
    UsageError,
    VersionConflictError,
)
from noetl_ray.events.envelope import EVENTS_PER_RECORD_MAX, RECORD_BYTES_MAX, Record
from noetl_ray.testing.samples import (
    sample_event,
    sample_record,
    sample_record_of_bytes,
    sample_subject,
)
from noetl_ray.wal.port import Log, Recorded, Subscription

WAIT_S = 5.0
ALL = "noetl.>"
A, B, C = (sample_subject(number) for number in (1, 2, 3))
OTHER_SHARD = sample_subject(4, shard=1)
SYSTEM = "noetl.system.worker.w1"


class PurgeableLog(Log, Protocol):
    """A log that can also drop a subject, as trimming does (P7)."""

    async def purge(self, subject: str, *, keep: int = 0, below: int = 0) -> int:
        """Remove the records of a subject but the last ``keep``, or only those below a position."""
        ...


async def p1_what_was_appended_is_what_is_read(log: PurgeableLog) -> None:
    """Every way to read gives the record as it was written, with its subject and a time."""
    payload = {"step": "ü → €", "visit": 1, "deep": [{"a": None, "b": [1, 2.5, True]}]}
    event = sample_event(5, payload=payload)
    record = Record(events=(event, sample_event(6)), consumed=(3, 4))
    position = await log.append(A, record, expected_version=0)
    seen = [await log.last(A), await log.get(position), *await read_all(log, A)]
    subscription = await log.subscribe([A])
    seen += await take(subscription, 1)
    await subscription.close()
    for recorded in seen:
        assert recorded is not None
        assert recorded.record == record
        assert recorded.subject == A
        assert recorded.position == position
        assert recorded.time_ms > 0
        assert recorded == seen[0]


async def p3_the_expected_version_is_the_fence(log: PurgeableLog) -> None:
    """A writer that states an old version is refused and told the present one."""
    first = await log.append(A, sample_record(1), expected_version=0)
    second = await log.append(A, sample_record(2), expected_version=first)
    for stale in (0, first, second + 1):
        error = await refused(log, A, sample_record(10 + stale), stale)
        assert (error.subject, error.expected, error.actual) == (A, stale, second)
    error = await refused(log, B, sample_record(30), second)
    assert error.actual == 0
    assert [item.position for item in await read_all(log, ALL)] == [first, second]


async def p3_one_of_many_writers_wins(log: PurgeableLog) -> None:
    """Of many appends that expect the same version exactly one is stored."""
    version = 0
    for turn in range(5):
        results = await asyncio.gather(
            *(
                log.append(A, sample_record(1000 * turn + n + 1), expected_version=version)
                for n in range(20)
            ),
            return_exceptions=True,
        )
        won = [result for result in results if isinstance(result, int)]
        lost = [result for result in results if isinstance(result, VersionConflictError)]
        assert (len(won), len(lost)) == (1, 19), results
        version = won[0]
    assert len(await read_all(log, A)) == 5


async def p5_the_same_append_again_is_the_same_position(log: PurgeableLog) -> None:
    """A repeated append is not stored twice, with and without an expected version."""
    first = await log.append(A, sample_record(1), expected_version=0)
    assert await log.append(A, sample_record(1), expected_version=0) == first
    assert await log.append(A, sample_record(1), expected_version=None) == first
    assert await log.append(A, sample_record(1), expected_version=first) == first
    assert len(await read_all(log, A)) == 1


async def p5_a_stored_append_is_found_below_its_successor(log: PurgeableLog) -> None:
    """An append whose ack was lost is recognised even when another one followed it."""
    before = await log.append(A, sample_record(1), expected_version=0)
    ours = await log.append(A, sample_record(2), expected_version=before)
    await log.append(B, sample_record(3), expected_version=0)
    await log.append(A, sample_record(4), expected_version=ours)
    assert await log.append(A, sample_record(2), expected_version=before) == ours
    error = await refused(log, A, sample_record(5), before)
    assert error.actual is not None
    assert error.actual > ours


async def p5_a_message_id_used_elsewhere_is_not_taken_for_stored(log: PurgeableLog) -> None:
    """The log-wide duplicate check may drop a record; it must never count as appended."""
    await log.append(A, sample_record(1), expected_version=0)
    for expected in (0, None):
        try:
            await log.append(B, sample_record(1), expected_version=expected)
        except InternalError:
            pass
        else:
            msg = "a dropped record was reported as stored"
            raise AssertionError(msg)
    assert await log.last(B) is None


async def p6_a_record_is_whole_and_limited(log: PurgeableLog) -> None:
    """256 events travel together; more, or too many bytes, are refused before the log."""
    full = sample_record(1, events=EVENTS_PER_RECORD_MAX)
    position = await log.append(A, full, expected_version=0)
    stored = await log.get(position)
    assert stored is not None
    assert stored.record == full
    large = sample_record_of_bytes(1000, RECORD_BYTES_MAX - 2_000)
    await log.append(A, large, expected_version=position)
    for bad in (
        Record(events=()),
        sample_record(2000, events=EVENTS_PER_RECORD_MAX + 1),
        sample_record_of_bytes(3000, RECORD_BYTES_MAX),
    ):
        try:
            await log.append(B, bad, expected_version=0)
        except EnvelopeError:
            continue
        msg = "a record over the limits was accepted"
        raise AssertionError(msg)
    assert await log.last(B) is None


async def p7_a_purged_subject_starts_again_at_version_0(log: PurgeableLog) -> None:
    """Purging frees the subject's version but never a position; ``keep`` holds the version."""
    first = await log.append(A, sample_record(1), expected_version=0)
    second = await log.append(B, sample_record(2), expected_version=0)
    third = await log.append(B, sample_record(3), expected_version=second)
    assert (await log.purge(A), await log.purge(C)) == (1, 0)
    assert await log.purge(B, keep=1) == 1
    assert await log.get(first) is None
    assert await log.last(A) is None
    assert positions(await read_all(log, ALL)) == [third]
    assert [found async for found in log.subjects(ALL)] == [(B, 1)]
    await refused(log, B, sample_record(4), 0)
    again = await log.append(A, sample_record(5), expected_version=0)
    assert (again, await log.last_position()) == (third + 1, third + 1)
    try:
        await log.append(A, sample_record(1), expected_version=None)
    except InternalError:
        pass
    else:
        msg = "a removed record was reported as stored"
        raise AssertionError(msg)


async def p7_trimming_keeps_the_terminal_record_and_what_came_later(log: PurgeableLog) -> None:
    """What lies below a position goes; the version stays, so no zombie may begin again."""
    made = [await log.append(A, sample_record(n), expected_version=None) for n in (1, 2, 3)]
    assert (await log.purge(A, below=made[2]), await log.purge(A, below=made[2])) == (2, 0)
    assert positions(await read_all(log, ALL)) == made[2:]
    await refused(log, A, sample_record(5), 0)
    assert await log.append(A, sample_record(6), expected_version=made[2]) == made[2] + 1


async def p9_positions_are_those_of_the_whole_log(log: PurgeableLog) -> None:
    """Positions grow by one over all subjects; a version is the position of the last record."""
    assert await log.last_position() == 0
    assert await log.get(0) is None
    assert await log.get(1) is None
    assert await log.last(A) is None
    subjects = [A, B, SYSTEM, A, OTHER_SHARD]
    for number, subject in enumerate(subjects, start=1):
        assert await log.append(subject, sample_record(number), expected_version=None) == number, (
            subject
        )
    assert await log.last_position() == len(subjects)
    last = await log.last(A)
    assert last is not None
    assert last.position == 4
    assert await log.append(A, sample_record(9), expected_version=4) == 6
    assert await log.get(99) is None


async def p9_a_read_ends_at_what_is_there(log: PurgeableLog) -> None:
    """Reads follow filters and start positions, and end though a writer goes on."""
    assert await read_all(log, ALL) == []
    for number, subject in enumerate([A, B, A, OTHER_SHARD, SYSTEM, A], start=1):
        await log.append(subject, sample_record(number), expected_version=None)
    assert positions(await read_all(log, A)) == [1, 3, 6]
    assert positions(await read_all(log, A, 2)) == [3, 6]
    assert positions(await read_all(log, "noetl.events.0.>")) == [1, 2, 3, 6]
    assert positions(await read_all(log, "noetl.events.*.*.*.*.control", 4)) == [4, 6]
    assert positions(await read_all(log, "noetl.system.>")) == [5]
    assert positions(await read_all(log, C)) == []
    assert positions(await read_all(log, ALL, 7)) == []
    assert positions(await read_all(log, ALL, 0)) == [1, 2, 3, 4, 5, 6]
    number = 100
    count = 0
    async for _ in log.read(ALL):
        number += 1
        await log.append(B, sample_record(number), expected_version=None)
        count += 1
        assert count < 50, "the read runs after the writer"


async def p9_the_ends_of_subjects_need_no_history(log: PurgeableLog) -> None:
    """The last record of each subject under a filter, and the newest of several filters."""
    assert await log.latest(ALL) == []
    assert await log.end_of([ALL]) == 0
    for number, subject in enumerate([A, SYSTEM, A, B, OTHER_SHARD, A], start=1):
        await log.append(subject, sample_record(number), expected_version=None)
    assert positions(await log.latest(ALL)) == [2, 4, 5, 6]
    assert positions(await log.latest("noetl.events.0.>")) == [4, 6]
    assert [item.record for item in await log.latest(A)] == [sample_record(6)]
    assert await log.latest(C) == []
    assert await log.end_of(["noetl.system.>", B]) == 4
    assert await log.end_of([C, OTHER_SHARD]) == 5
    await log.purge(B)
    assert positions(await log.latest(ALL)) == [2, 5, 6]
    assert await log.end_of([B]) == 0


async def p9_a_subscription_gives_history_then_news(log: PurgeableLog) -> None:
    """Records come in order of position, once each, and wake a waiting reader."""
    for number in range(1, 6):
        await log.append(A, sample_record(number), expected_version=None)
    subscription = await log.subscribe([ALL], from_position=3)
    assert positions(await take(subscription, 3, batch=2)) == [3, 4, 5]
    assert await subscription.next_batch(10, 0.02) == []
    waiting = asyncio.ensure_future(subscription.next_batch(10, WAIT_S))
    await asyncio.sleep(0)
    await log.append(B, sample_record(6), expected_version=0)
    assert positions(await waiting) == [6]
    await asyncio.gather(
        *(log.append(C, sample_record(n), expected_version=None) for n in range(10, 110))
    )
    assert positions(await take(subscription, 100, batch=7)) == list(range(7, 107))
    await subscription.close()


async def p9_subscriptions_filter_and_stand_apart(log: PurgeableLog) -> None:
    """Overlapping filters give each record once; readers do not disturb each other."""
    for number, subject in enumerate([A, B, OTHER_SHARD, SYSTEM, A], start=1):
        await log.append(subject, sample_record(number), expected_version=None)
    both = await log.subscribe(["noetl.events.0.>", A, SYSTEM])
    single = await log.subscribe([B])
    assert positions(await take(both, 4)) == [1, 2, 4, 5]
    assert positions(await take(single, 1)) == [2]
    await single.close()
    await log.append(B, sample_record(6), expected_version=None)
    assert positions(await take(both, 1)) == [6]
    await both.close()


async def p9_a_subscription_may_start_beyond_the_end(log: PurgeableLog) -> None:
    """Nothing before the start position is delivered, even when it does not exist yet."""
    await log.append(A, sample_record(1), expected_version=0)
    subscription = await log.subscribe([ALL], from_position=4)
    for number in range(2, 6):
        await log.append(A, sample_record(number), expected_version=None)
    assert positions(await take(subscription, 2)) == [4, 5]
    await subscription.close()


async def p9_a_cancelled_wait_loses_nothing(log: PurgeableLog) -> None:
    """A reader that gives up waiting finds everything at its next call."""
    subscription = await log.subscribe([ALL])
    seen: list[Recorded] = []
    for number in range(1, 4):
        waiting = asyncio.ensure_future(subscription.next_batch(10, WAIT_S))
        await asyncio.sleep(0.005)
        waiting.cancel()
        for result in await asyncio.gather(waiting, return_exceptions=True):
            seen += result if isinstance(result, list) else []
        await log.append(A, sample_record(number), expected_version=None)
    seen += await take(subscription, 3 - len(seen))
    assert positions(seen) == [1, 2, 3]
    await subscription.close()


async def a_closed_subscription_says_so(log: PurgeableLog) -> None:
    """Closing twice is fine, wakes a waiting reader, and ends delivery."""
    subscription = await log.subscribe([ALL])
    waiting = asyncio.ensure_future(subscription.next_batch(10, WAIT_S))
    await asyncio.sleep(0.005)
    await subscription.close()
    await subscription.close()
    assert await asyncio.wait_for(waiting, WAIT_S) == []
    try:
        await subscription.next_batch(1, 0.01)
    except LogError:
        return
    msg = "a closed subscription still answers"
    raise AssertionError(msg)


async def a_subject_outside_the_log_is_refused(log: PurgeableLog) -> None:
    """Wildcards, blanks, line ends and foreign roots never reach the server."""
    for bad in (
        "noetl.events",
        "noetl.events.>",
        "noetl.events.a b",
        "noetl.events.a\r\nPUB x 0",
        "noetl.events..a",
        "other.events.a",
        "",
        "noetl.events.*.a",
        "noetl.events.a.",
    ):
        try:
            await log.append(bad, sample_record(1), expected_version=None)
        except UsageError:
            continue
        msg = f"{bad!r} was accepted"
        raise AssertionError(msg)
    assert await log.last_position() == 0


LogCheck = Callable[[PurgeableLog], Awaitable[None]]


LOG_CHECKS: tuple[LogCheck, ...] = (
    p1_what_was_appended_is_what_is_read,
    p3_the_expected_version_is_the_fence,
    p3_one_of_many_writers_wins,
    p5_the_same_append_again_is_the_same_position,
    p5_a_stored_append_is_found_below_its_successor,
    p5_a_message_id_used_elsewhere_is_not_taken_for_stored,
    p6_a_record_is_whole_and_limited,
    p7_a_purged_subject_starts_again_at_version_0,
    p7_trimming_keeps_the_terminal_record_and_what_came_later,
    p9_positions_are_those_of_the_whole_log,
    p9_a_read_ends_at_what_is_there,
    p9_the_ends_of_subjects_need_no_history,
    p9_a_subscription_gives_history_then_news,
    p9_subscriptions_filter_and_stand_apart,
    p9_a_subscription_may_start_beyond_the_end,
    p9_a_cancelled_wait_loses_nothing,
    a_closed_subscription_says_so,
    a_subject_outside_the_log_is_refused,
)


async def check_log(make_log: Callable[[], Awaitable[PurgeableLog]]) -> None:
    """Run every check, each over a log of its own."""
    for check in LOG_CHECKS:
        log = await make_log()
        try:
            await check(log)
        finally:
            await log.close()


async def read_all(log: Log, subject_filter: str, from_position: int = 1) -> list[Recorded]:
    """A finite read as a list."""
    return [item async for item in log.read(subject_filter, from_position=from_position)]


async def take(subscription: Subscription, count: int, *, batch: int = 100) -> list[Recorded]:
    """Exactly so many records from a subscription, or fail."""
    taken: list[Recorded] = []
    async with asyncio.timeout(WAIT_S):
        while len(taken) < count:
            taken += await subscription.next_batch(min(batch, count - len(taken)), WAIT_S)
    return taken


async def refused(
    log: Log, subject: str, record: Record, expected_version: int
) -> VersionConflictError:
    """The refusal of an append that must be refused."""
    try:
        await log.append(subject, record, expected_version=expected_version)
    except VersionConflictError as error:
        return error
    msg = f"{subject} accepted version {expected_version}"
    raise AssertionError(msg)


def positions(records: list[Recorded]) -> list[int]:
    """The positions of some records."""
    return [item.position for item in records]
