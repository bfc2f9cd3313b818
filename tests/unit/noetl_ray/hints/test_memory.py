"""Memory hints under faults, and their closing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from noetl_ray.hints.memory import MemoryHints
from noetl_ray.testing.contract_hints import HINTS_CHECKS, Heard, HintsCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.asyncio


class Faults:
    """The data of a hint says what happens to it."""

    def deliveries(self, subject: str, data: bytes) -> Sequence[float]:
        return {b"lost": (), b"doubled": (0.0, 0.0), b"late": (0.01,)}.get(data, (0.0,))


@pytest.mark.parametrize("check", HINTS_CHECKS, ids=lambda check: check.__name__)
async def test_contract(check: HintsCheck) -> None:
    hints = MemoryHints()
    await check(hints, hints)
    await hints.close()


async def test_hints_are_lost_doubled_and_late_as_told() -> None:
    hints = MemoryHints(Faults())
    heard = Heard()
    await hints.listen("a", heard)
    for data in (b"lost", b"late", b"doubled", b"plain"):
        await hints.send("a", data)
    got = [data for _, data in await heard.wait_for(4)]
    assert got == [b"doubled", b"doubled", b"plain", b"late"]
    await hints.close()


async def test_closing_ends_running_handlers() -> None:
    hints = MemoryHints()
    ended = asyncio.Event()

    async def hang(subject: str, data: bytes) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await hints.listen("a", hang)
    await hints.send("a", b"")
    await asyncio.sleep(0.01)
    await hints.close()
    assert ended.is_set()
    await hints.send("a", b"")
