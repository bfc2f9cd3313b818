"""The bound on what a process has sent and not seen acknowledged (BUF-1, BUF-2)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.errors import LogUnavailableError
from noetl_ray.testing.contract_wal import read_all
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.journal import Entry, Gauge, Journal
from noetl_ray.wal.memory import MemoryLog

pytestmark = pytest.mark.asyncio

PRODUCERS = 50


class Standstill:
    """A broker that answers nobody until it is let go."""

    def __init__(self) -> None:
        self.going = asyncio.Event()
        self.came: list[str] = []

    async def before_append(self, subject: str, record: object) -> None:
        self.came.append(subject)
        await self.going.wait()

    async def after_append(self, subject: str, record: object, position: int) -> None:
        return

    async def delay_delivery(self) -> None:
        return


class HandClock(SystemClock):
    """Moves when told."""

    time_s = 100.0

    def monotonic(self) -> float:
        return self.time_s


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def bounded(
    max_events: int, max_bytes: int = 1 << 20, settle_s: float = 30.0
) -> tuple[MemoryLog, Standstill, HandClock]:
    clock, broker = HandClock(), Standstill()
    journal = Journal(clock, max_events=max_events, max_bytes=max_bytes)
    return MemoryLog(clock, settle_s=settle_s, faults=broker, journal=journal), broker, clock


async def test_buf_2_a_stalled_broker_stops_producers_at_the_bound() -> None:
    """The gauge stands at the bound; on return nothing is lost, doubled, or out of turn."""
    log, broker, clock = bounded(max_events=8)
    appends = [
        asyncio.ensure_future(
            log.append(sample_subject(n), sample_record(10 * n, events=2), expected_version=0)
        )
        for n in range(1, PRODUCERS + 1)
    ]
    await turns()
    clock.time_s += 7
    gauge = log.journal.gauge()
    assert (gauge.records, gauge.events, gauge.waiting) == (4, 8, PRODUCERS - 4)
    assert (gauge.oldest_s, gauge.held, gauge.max_events) == (7.0, PRODUCERS - 4, 8)
    assert gauge.bytes > 0
    assert len(broker.came) == 4, "nothing over the bound was sent"
    broker.going.set()
    versions = await asyncio.gather(*appends)
    assert sorted(versions) == list(range(1, PRODUCERS + 1))
    assert broker.came == [sample_subject(n) for n in range(1, PRODUCERS + 1)], "first come"
    assert len(await read_all(log, "noetl.events.>")) == PRODUCERS
    empty = log.journal.gauge()
    assert (empty.records, empty.events, empty.bytes, empty.waiting) == (0, 0, 0, 0)
    assert empty.oldest_s == 0


async def test_buf_2_bytes_count_as_events_do() -> None:
    log, broker, _clock = bounded(max_events=1_000, max_bytes=1_500)
    appends = [
        asyncio.ensure_future(log.append(sample_subject(n), sample_record(n), expected_version=0))
        for n in range(1, 11)
    ]
    await turns()
    gauge = log.journal.gauge()
    assert 0 < gauge.bytes <= 1_500
    assert 0 < gauge.records < 10
    broker.going.set()
    assert len(set(await asyncio.gather(*appends))) == 10


async def test_buf_1_what_is_under_way_is_readable_at_once() -> None:
    log, broker, _clock = bounded(max_events=8)
    subject, record = sample_subject(1), sample_record(1)
    appending = asyncio.ensure_future(log.append(subject, record, expected_version=0))
    await turns()
    assert await log.last(subject) is None, "the log does not have it yet"
    assert log.journal.unacknowledged(subject) == [record]
    assert log.journal.unacknowledged(sample_subject(2)) == []
    broker.going.set()
    await appending
    assert log.journal.unacknowledged(subject) == []


async def test_who_finds_no_room_in_time_is_told_that_nothing_was_sent() -> None:
    log, broker, _clock = bounded(max_events=1, settle_s=0.05)
    first = asyncio.ensure_future(
        log.append(sample_subject(1), sample_record(1), expected_version=0)
    )
    await turns()
    with pytest.raises(LogUnavailableError, match=r"tail_max_events 1, .*nothing was sent"):
        await log.append(sample_subject(2), sample_record(2), expected_version=0)
    assert broker.came == [sample_subject(1)]
    broker.going.set()
    assert await first == 1
    assert await log.append(sample_subject(2), sample_record(2), expected_version=0) == 2


async def test_a_record_over_the_bound_goes_alone() -> None:
    log, broker, _clock = bounded(max_events=2)
    broker.going.set()
    assert await log.append(sample_subject(1), sample_record(1, events=5), expected_version=0) == 1


async def test_a_small_record_does_not_pass_a_large_one_that_waits() -> None:
    journal = Journal(HandClock(), max_events=4)
    first, large, small = (
        Entry("s", sample_record(10 * n, events=size), 1) for n, size in ((1, 3), (2, 4), (3, 1))
    )
    assert journal.enter(first)
    waiting = asyncio.ensure_future(journal.wait(large, 30))
    await turns(2)
    assert not journal.enter(small), "it would fit, but it is not its turn"
    journal.leave(first)
    await waiting
    assert journal.gauge().events == 4


@pytest.mark.parametrize("let_in", [False, True])
async def test_a_cancelled_producer_gives_its_room_to_the_next(let_in: bool) -> None:
    """Cancelled while it waits, and in the very moment in which it is let in."""
    journal = Journal(HandClock(), max_events=1)
    first, second, third = (Entry("s", sample_record(n), 1) for n in (1, 2, 3))
    assert journal.enter(first)
    cancelled = asyncio.ensure_future(journal.wait(second, 30))
    served = asyncio.ensure_future(journal.wait(third, 30))
    await turns(2)
    if let_in:
        journal.leave(first)  # lets the second in, which has not run since
        cancelled.cancel()
    else:
        cancelled.cancel()
        await turns(2)
        journal.leave(first)
    await asyncio.gather(cancelled, return_exceptions=True)
    assert cancelled.cancelled()
    await asyncio.wait_for(served, 5)
    assert journal.gauge() == Gauge(
        records=1,
        events=1,
        bytes=1,
        oldest_s=0,
        waiting=0,
        held=2,
        max_events=1,
        max_bytes=journal.gauge().max_bytes,
    )


async def test_a_tail_that_is_mixed_at_random_never_passes_its_bound_or_loses_room() -> None:
    journal = Journal(HandClock(), max_events=6, max_bytes=60)
    sizes = itertools.cycle([(1, 9), (2, 30), (5, 11), (3, 3), (6, 60)])

    async def produce(n: int) -> None:
        events, size = next(sizes)
        entry = Entry("s", sample_record(100 * n + 1, events=events), size)
        if not journal.enter(entry):
            await journal.wait(entry, 30)
        gauge = journal.gauge()
        assert gauge.events <= 6
        assert gauge.bytes <= 60
        await turns(n % 7)
        journal.leave(entry)

    tasks = [asyncio.ensure_future(produce(n)) for n in range(200)]
    for one in tasks[::9]:
        await turns(1)
        one.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [one for one in ended if isinstance(one, Exception)]
    assert journal.gauge().events == journal.gauge().bytes == journal.gauge().waiting == 0
