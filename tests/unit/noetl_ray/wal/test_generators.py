"""Generator numbers within one process."""

from __future__ import annotations

import pytest

from noetl_ray.errors import LogUnavailableError
from noetl_ray.ids import GENERATORS_MAX
from noetl_ray.wal.generators import MemoryGenerators

pytestmark = pytest.mark.asyncio


async def test_numbers_differ_and_come_back() -> None:
    generators = MemoryGenerators()
    first = await generators.lease("a")
    second = await generators.lease("b")
    assert (first.number, second.number) == (0, 1)
    await first.close()
    await first.close()
    third = await generators.lease("c")
    assert third.number == 0
    await first.close()
    assert (await generators.lease("d")).number == 2


async def test_numbers_run_out() -> None:
    generators = MemoryGenerators()
    for _ in range(GENERATORS_MAX):
        await generators.lease("x")
    with pytest.raises(LogUnavailableError, match="taken"):
        await generators.lease("x")
