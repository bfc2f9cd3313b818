"""The simulated loop: virtual time, one seed one run, processes that die at any await."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from noetl_ray.testing.simloop import START_MS, SimClock, SimLoop, SimStuckError, run_simulated


def test_time_jumps_and_nobody_waits() -> None:
    async def main(loop: SimLoop) -> float:
        clock = SimClock(loop)
        before = clock.now_ms()
        await clock.sleep(86_400)
        assert clock.now_ms() - before == 86_400_000
        assert before == START_MS
        return clock.monotonic()

    began = time.monotonic()
    assert run_simulated(1, main) == 86_400
    assert time.monotonic() - began < 30


def test_a_skewed_clock_is_wrong_only_on_the_wall() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, skew_ms=-5_000)
        assert clock.now_ms() == START_MS - 5_000
        assert clock.monotonic() == 0

    run_simulated(1, main)


async def _race(loop: SimLoop) -> list[tuple[int, int]]:
    order: list[tuple[int, int]] = []

    async def runner(number: int) -> None:
        for lap in range(5):
            order.append((number, lap))
            await asyncio.sleep(0)

    await asyncio.gather(*(runner(n) for n in range(4)))
    return order


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    runs = [tuple(run_simulated(seed, _race)) for seed in range(20)]
    assert runs == [tuple(run_simulated(seed, _race)) for seed in range(20)]
    assert len(set(runs)) > 15


def test_timers_keep_their_order() -> None:
    async def main(loop: SimLoop) -> list[int]:
        fired: list[int] = []
        for delay in (3, 1, 2):
            loop.call_later(delay, fired.append, delay)
        await asyncio.sleep(4)
        return fired

    assert run_simulated(3, main) == [1, 2, 3]


def test_a_killed_process_runs_no_finally_and_nothing_it_started_goes_on() -> None:
    said: list[str] = []

    async def child() -> None:
        await asyncio.sleep(2)
        said.append("child")

    async def process() -> None:
        task = asyncio.create_task(child())
        try:
            await task
        finally:
            said.append("finally")

    async def main(loop: SimLoop) -> None:
        loop.spawn("p", process())
        await asyncio.sleep(1)
        loop.kill("p")
        assert loop.is_dead("p")
        await asyncio.sleep(10)
        assert said == []

    run_simulated(1, main)


def test_a_frozen_process_goes_on_where_it_was_and_knows_nothing_of_it() -> None:
    said: list[float] = []

    async def main(loop: SimLoop) -> None:
        async def process() -> None:
            for _ in range(3):
                await asyncio.sleep(1)
                said.append(loop.time())

        loop.spawn("p", process())
        await asyncio.sleep(1.5)
        loop.freeze("p")
        await asyncio.sleep(20)
        assert said == [1.0]
        loop.thaw("p")
        await asyncio.sleep(5)

    run_simulated(1, main)
    assert said == [1.0, 21.5, 22.5]


def test_a_handler_runs_in_its_own_process_whoever_calls() -> None:
    async def main(loop: SimLoop) -> None:
        calls: list[Any] = []

        async def handler(value: int) -> None:
            calls.append(value)

        call = loop.within("listener", handler)
        await call(1)
        await asyncio.sleep(0.1)
        loop.kill("listener")
        await call(2)
        await asyncio.sleep(0.1)
        assert calls == [1]

    run_simulated(1, main)


def test_waiting_for_what_never_comes_is_said() -> None:
    async def main(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(SimStuckError):
        run_simulated(1, main)


def test_every_step_can_be_watched() -> None:
    async def main(loop: SimLoop) -> None:
        seen: list[int] = []
        loop.on_step = lambda: seen.append(loop.steps)
        await asyncio.sleep(1)
        loop.on_step = None
        assert seen == sorted(set(seen))
        assert seen

    run_simulated(1, main)
