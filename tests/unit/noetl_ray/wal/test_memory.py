"""What the memory log does beyond the contract: faults, the duplicate window, virtual time."""

from __future__ import annotations

import asyncio

import pytest

from noetl_ray.errors import InternalError, LogUnavailableError, VersionConflictError
from noetl_ray.testing.contract_wal import LOG_CHECKS, LogCheck, positions, read_all
from noetl_ray.testing.samples import sample_event, sample_record, sample_subject
from noetl_ray.wal.memory import MemoryLog

pytestmark = pytest.mark.asyncio

A, B = sample_subject(1), sample_subject(2)


class HandClock:
    """Stands still unless moved; sleeping moves it."""

    def __init__(self) -> None:
        self.time_s = 1_000.0

    def now_ms(self) -> int:
        return int(self.time_s * 1000)

    def monotonic(self) -> float:
        return self.time_s

    async def sleep(self, seconds: float) -> None:
        self.time_s += seconds
        await asyncio.sleep(0)


class Losses:
    """Loses so many publishes, then so many acks."""

    def __init__(self, *, publishes: int = 0, acks: int = 0) -> None:
        self.publishes = publishes
        self.acks = acks
        self.deliveries = 0

    async def before_append(self, subject: str, record: object) -> None:
        if self.publishes > 0:
            self.publishes -= 1
            msg = "publish lost"
            raise LogUnavailableError(msg)

    async def after_append(self, subject: str, record: object, position: int) -> None:
        if self.acks > 0:
            self.acks -= 1
            msg = "ack lost"
            raise LogUnavailableError(msg)

    async def delay_delivery(self) -> None:
        self.deliveries += 1
        await asyncio.sleep(0)


@pytest.mark.parametrize("check", LOG_CHECKS, ids=lambda check: check.__name__)
async def test_contract(check: LogCheck) -> None:
    await check(MemoryLog(HandClock()))


@pytest.mark.parametrize("expected", [0, None])
@pytest.mark.parametrize("losses", [{"publishes": 3}, {"acks": 1}, {"publishes": 2, "acks": 1}])
async def test_p5_lost_messages_are_settled(losses: dict[str, int], expected: int | None) -> None:
    log = MemoryLog(HandClock(), faults=Losses(**losses))
    assert await log.append(A, sample_record(1), expected_version=expected) == 1
    assert positions(await read_all(log, A)) == [1]


async def test_p5_a_lost_ack_under_another_writer_is_found() -> None:
    class Overtaken(Losses):
        async def after_append(self, subject: str, record: object, position: int) -> None:
            lost = self.acks > 0
            self.acks -= 1
            if lost:
                await log.append(A, sample_record(2), expected_version=position)
                msg = "ack lost"
                raise LogUnavailableError(msg)

    log = MemoryLog(HandClock(), faults=Overtaken(acks=1))
    assert await log.append(A, sample_record(1), expected_version=0) == 1
    assert positions(await read_all(log, A)) == [1, 2]


async def test_p3_a_publish_lost_and_overtaken_is_a_conflict() -> None:
    class Overtaken(Losses):
        async def before_append(self, subject: str, record: object) -> None:
            lost = self.publishes > 0
            self.publishes -= 1
            if lost:
                await log.append(A, sample_record(2), expected_version=0)
                msg = "publish lost"
                raise LogUnavailableError(msg)

    log = MemoryLog(HandClock(), faults=Overtaken(publishes=1))
    with pytest.raises(VersionConflictError) as caught:
        await log.append(A, sample_record(1), expected_version=0)
    assert caught.value.actual == 1


async def test_a_log_that_never_answers_is_unavailable_after_the_bound() -> None:
    clock = HandClock()
    log = MemoryLog(clock, settle_s=30, faults=Losses(publishes=10_000))
    with pytest.raises(LogUnavailableError, match="30 s"):
        await log.append(A, sample_record(1), expected_version=0)
    assert 30 <= clock.time_s - 1_000 < 32


async def test_the_duplicate_window_ends() -> None:
    clock = HandClock()
    log = MemoryLog(clock, duplicate_window_s=120)
    await log.append(A, sample_record(1), expected_version=0)
    with pytest.raises(InternalError):
        await log.append(B, sample_record(1), expected_version=0)
    clock.time_s += 121
    assert await log.append(B, sample_record(1), expected_version=0) == 2


async def test_the_log_shares_nothing_with_its_writer() -> None:
    payload = {"step": "s", "visit": 1}
    event = sample_event(1, payload=payload)
    log = MemoryLog(HandClock())
    await log.append(A, sample_record(1, payload=payload), expected_version=0)
    payload["step"] = "changed"
    stored = await log.last(A)
    assert stored is not None
    assert stored.record.events[0].payload["step"] == "s"
    assert stored.record.events[0].event_id == event.event_id


async def test_deliveries_pass_the_fault_hook_and_times_come_from_the_clock() -> None:
    clock, losses = HandClock(), Losses()
    log = MemoryLog(clock, faults=losses)
    await log.append(A, sample_record(1), expected_version=0)
    subscription = await log.subscribe(["noetl.>"])
    batch = await subscription.next_batch(5, 1.0)
    assert losses.deliveries == 1
    assert batch[0].time_ms == clock.now_ms()
    await log.close()
