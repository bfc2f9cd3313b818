"""Settling answers the server gives rarely: back-pressure, replicas behind, errors that stay."""

from __future__ import annotations

import pytest

from noetl_ray.errors import LogError, LogUnavailableError, UsageError
from noetl_ray.events.envelope import encode_record
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.settle import Attempt, Outcome, Published, check_subject, settle

A = sample_subject(1)


class Clock:
    def __init__(self) -> None:
        self.time_s = 0.0
        self.sleeps: list[float] = []

    def now_ms(self) -> int:
        return int(self.time_s * 1000) + 1

    def monotonic(self) -> float:
        return self.time_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time_s += seconds


class Moody(MemoryLog):
    """A log that gives some answers of its own before it does its work."""

    def __init__(self, clock: Clock, answers: list[Published | Exception]) -> None:
        super().__init__(clock)
        self.answers = answers

    async def publish(self, attempt: Attempt) -> Published:
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await super().publish(attempt)


def attempt(expected: int | None = 0) -> Attempt:
    record = sample_record(1)
    return Attempt(subject=A, data=encode_record(record), message_id=1, expected=expected)


@pytest.mark.asyncio
async def test_p6_back_pressure_waits_and_tries_again() -> None:
    clock = Clock()
    log = Moody(clock, [Published(Outcome.BUSY)] * 4)
    position = await settle(log, clock, attempt(), Published(Outcome.BUSY), bound_s=30)
    assert position == 1
    assert clock.sleeps == sorted(clock.sleeps)
    assert len(clock.sleeps) == 5


@pytest.mark.asyncio
async def test_back_pressure_without_end_is_unavailable() -> None:
    clock = Clock()
    log = Moody(clock, [Published(Outcome.BUSY)] * 1_000)
    with pytest.raises(LogUnavailableError):
        await settle(log, clock, attempt(), Published(Outcome.BUSY), bound_s=3)
    assert 3 <= clock.time_s < 4


@pytest.mark.asyncio
async def test_a_refusal_that_the_subject_does_not_show_is_tried_again() -> None:
    """A purge between refusal and look, or a replica that is behind."""
    clock = Clock()
    log = Moody(clock, [])
    assert await settle(log, clock, attempt(), Published(Outcome.REFUSED), bound_s=3) == 1


@pytest.mark.asyncio
async def test_a_refusal_that_never_shows_does_not_spin() -> None:
    clock = Clock()
    log = Moody(clock, [Published(Outcome.REFUSED)] * 1_000)
    with pytest.raises(LogUnavailableError):
        await settle(log, clock, attempt(), Published(Outcome.REFUSED), bound_s=3)
    assert len(clock.sleeps) < 50


@pytest.mark.asyncio
async def test_an_error_that_stays_ends_the_settling() -> None:
    clock = Clock()
    log = Moody(clock, [LogError("maximum message size exceeded")])
    with pytest.raises(LogError, match="size"):
        await settle(log, clock, attempt(), Published(Outcome.BUSY), bound_s=3)


@pytest.mark.parametrize("subject", ["noetl.events.0.a", "noetl.system.x", A])
def test_subjects_of_the_log(subject: str) -> None:
    check_subject(subject)


@pytest.mark.parametrize("subject", ["noetl.event.a", "noetl.events.a b", "noetl.events.a\n", "x"])
def test_other_subjects_are_refused(subject: str) -> None:
    with pytest.raises(UsageError):
        check_subject(subject)
