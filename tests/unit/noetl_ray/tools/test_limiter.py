"""Shared limits: never more at once, never faster, nobody forgotten, the dead forgiven."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import HttpLimit
from noetl_ray.errors import LogUnavailableError, StoreUnavailableError, ToolError
from noetl_ray.testing.simloop import SimClock, SimLoop, run_simulated
from noetl_ray.tools.http import HttpTool
from noetl_ray.tools.limiter import (
    LEASE_S,
    Limit,
    Limiter,
    LimitState,
    MemoryLimits,
    applies,
    limiter_of,
)

TARGET = "host:api.example"


class World:
    """Some processes, one table, and calls that are watched."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.table = SlowTable()
        self.active = 0
        self.most = 0
        self.starts: list[float] = []

    def process(self, name: str, wait_max_s: float = 600, **limit: Any) -> Limiter:
        return Limiter(
            [(TARGET, Limit(key=TARGET, **limit))],
            self.table,
            owner=name,
            clock=SimClock(self.loop),
            wait_max_s=wait_max_s,
        )

    async def call(self, process: Limiter, takes: float = 0.0) -> None:
        async with process.slot("api.example", 443, ""):
            self.starts.append(self.loop.time())
            self.active += 1
            self.most = max(self.most, self.active)
            await asyncio.sleep(takes)
            self.active -= 1


class SlowTable(MemoryLimits):
    """Takes a moment, so that processes meet; may be out of reach."""

    down = False

    async def read(self, key: str) -> tuple[bytes | None, int]:
        await self._meet()
        return await super().read(key)

    async def write(self, key: str, data: bytes, version: int) -> bool:
        await self._meet()
        return await super().write(key, data, version)

    async def _meet(self) -> None:
        await asyncio.sleep(0.001)
        if self.down:
            msg = "down"
            raise StoreUnavailableError(msg)


def simulated(work: Any, seed: int = 5) -> None:
    run_simulated(seed, lambda loop: work(World(loop)))


@pytest.mark.parametrize("seed", range(5))
def test_no_more_at_once_over_all_processes(seed: int) -> None:
    async def work(world: World) -> None:
        processes = [world.process(f"w{i}", max_in_flight=4) for i in range(3)]
        calls = [world.call(processes[i % 3], 0.2) for i in range(60)]
        await asyncio.gather(*calls)
        assert len(world.starts) == 60
        assert world.most == 4, "and the places are used"
        data, _ = await world.table.read(TARGET)
        await asyncio.sleep(1)
        data, _ = await world.table.read(TARGET)
        assert data is not None
        assert msgspec.json.decode(data, type=LimitState).holders == {}
        for process in processes:
            await process.close()

    simulated(work, seed)


@pytest.mark.parametrize("seed", range(5))
def test_no_faster_over_all_processes(seed: int) -> None:
    async def work(world: World) -> None:
        processes = [world.process(f"w{i}", per_second=10.0) for i in range(3)]
        await asyncio.gather(*(world.call(processes[i % 3]) for i in range(50)))
        starts = sorted(world.starts)
        for first, eleventh in zip(starts, starts[10:], strict=False):
            assert eleventh - first > 0.99
        assert starts[-1] - starts[0] < 8, "and it is not much slower either"

    simulated(work, seed)


def test_the_places_of_a_dead_process_come_back() -> None:
    async def work(world: World) -> None:
        dead, alive = (world.process(name, max_in_flight=2) for name in ("dead", "alive"))
        held = [asyncio.ensure_future(world.call(dead, 1e6)) for _ in range(2)]
        await asyncio.sleep(1)
        await dead.close()
        began = world.loop.time()
        await world.call(alive)
        assert LEASE_S / 2 < world.loop.time() - began < LEASE_S * 2
        for one in held:
            one.cancel()

    simulated(work)


def test_a_live_process_keeps_its_places() -> None:
    async def work(world: World) -> None:
        one, other = (world.process(name, wait_max_s=50, max_in_flight=1) for name in "ab")
        call = asyncio.ensure_future(world.call(one, 100))
        await asyncio.sleep(1)
        with pytest.raises(ToolError, match="no place under the limit") as caught:
            await world.call(other)
        assert (caught.value.kind, caught.value.retryable) == ("rate_limit", True)
        await call
        await world.call(other)

    simulated(work)


def test_out_of_reach_nobody_passes_and_all_do_once_it_is_back() -> None:
    async def work(world: World) -> None:
        world.table.down = True
        process = world.process("a", wait_max_s=30, max_in_flight=1)
        with pytest.raises(ToolError):
            await world.call(process)
        late = asyncio.ensure_future(world.call(process))
        await asyncio.sleep(5)
        assert world.starts == []
        world.table.down = False
        await late
        assert len(world.starts) == 1

    simulated(work)


def test_who_gives_up_leaves_no_trace() -> None:
    async def work(world: World) -> None:
        process = world.process("a", max_in_flight=1, per_second=2.0)
        calls = [asyncio.ensure_future(world.call(process, 5)) for _ in range(10)]
        await asyncio.sleep(0.3)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        world.active = 0
        began = world.loop.time()
        await world.call(process)
        assert world.loop.time() - began < 5

    simulated(work)


@pytest.mark.parametrize(
    ("target", "host", "port", "credential", "expected"),
    [
        ("host:api.example", "API.example", 443, "", True),
        ("host:api.example:8080", "api.example", 8080, "", True),
        ("host:api.example:8080", "api.example", 443, "", False),
        ("host:*.example", "a.b.example", 443, "", True),
        ("host:*.example", "example", 443, "", False),
        ("credential:shop", "api.example", 443, "shop", True),
        ("credential:shop", "shop", 443, "", False),
    ],
)
def test_what_a_limit_applies_to(
    target: str, host: str, port: int, credential: str, expected: bool
) -> None:
    assert applies(target, host, port, credential) is expected


def test_without_limits_there_is_no_limiter() -> None:
    made: dict[str, Any] = {"owner": "a", "clock": None, "wait_max_s": 1}
    assert limiter_of((), MemoryLimits(), **made) is None
    limits = (HttpLimit(host="b", max_in_flight=1), HttpLimit(credential="a", per_second=0.5))
    assert limiter_of(limits, MemoryLimits(), **made) is not None


class _Refusing:
    """A world that nothing may reach."""

    def __init__(self) -> None:
        self.calls = 0

    async def still_ours(self) -> None:
        self.calls += 1
        msg = "the lease is gone"
        raise LogUnavailableError(msg)


@pytest.mark.asyncio
async def test_p22_after_the_wait_for_a_place_the_lease_is_asked_again(bench: Any) -> None:
    limits = (HttpLimit(host="127.0.0.1", max_in_flight=1),)
    made: dict[str, Any] = {"owner": "a", "clock": SystemClock(), "wait_max_s": 5}
    tool = HttpTool(trust_env=False, limiter=limiter_of(limits, MemoryLimits(), **made))
    lost = _Refusing()
    context = bench.context(still_ours=lost.still_ours)
    with pytest.raises(LogUnavailableError):
        await tool.run({"url": "http://127.0.0.1:9/never"}, context)
    assert lost.calls == 1
    with pytest.raises(ToolError) as caught:
        await tool.run({"url": "http://127.0.0.1:9/refused"}, bench.context())
    assert caught.value.kind == "connection", "the place was given back"
    await tool.close()
