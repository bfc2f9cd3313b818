"""The proofs every task-log adapter must pass, each over a fresh, empty task log.

Owns what the task-log port promises while nothing is broken: lines come back whole and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from noetl_ray.wal.tasklog import LogLine, PositionedLines, TaskLog
from noetl_ray.wal.tasklog_batches import CUT_MARK, LINE_CHARS_MAX

WAIT_S = 5.0

TaskLogCheck = Callable[[TaskLog], Awaitable[None]]


def sample_line(text: str, **overrides: int | str) -> LogLine:
    """A line of execution 7."""
    fields: dict[str, object] = {
        "tenant_id": "default",
        "organization_id": "default",
        "execution_id": 7,
        "step": "start",
        "task": "start",
        "attempt": 1,
        "stream": "stdout",
        "time_ms": 1_767_323_045_678,
        "text": text,
    }
    return LogLine(**(fields | overrides))  # type: ignore[arg-type]


async def lines_come_back_in_order(log: TaskLog) -> None:
    """Positions grow, and the lines of every shard are there as written."""
    written = [[sample_line(f"{n}.{i} ü", visit=2) for i in range(3)] for n in range(4)]
    for shard, lines in enumerate(written):
        await log.write(shard, lines)
    batches = await read_batches(log, 0, 4)
    assert [list(batch.lines) for batch in batches] == written
    numbers = [batch.position for batch in batches]
    assert numbers == sorted(set(numbers))


async def reading_goes_on_from_any_position(log: TaskLog) -> None:
    """A reader may go on, go back and ask for little."""
    for number in range(6):
        await log.write(0, [sample_line(str(number))])
    batches = await read_batches(log, 0, 6)
    again = await log.read_after(batches[3].position, max_batches=1, timeout_s=WAIT_S)
    assert again == [batches[4]]
    assert await log.read_after(again[0].position, max_batches=9, timeout_s=WAIT_S) == [batches[5]]
    assert await log.read_after(0, max_batches=2, timeout_s=WAIT_S) == batches[:2]


async def a_reader_waits_and_gives_up(log: TaskLog) -> None:
    """Nothing in time gives nothing; a line that comes wakes the reader."""
    assert await log.read_after(0, max_batches=5, timeout_s=0.02) == []
    waiting = asyncio.ensure_future(log.read_after(0, max_batches=5, timeout_s=WAIT_S))
    await asyncio.sleep(0.01)
    await log.write(1, [sample_line("late")])
    assert [line.text for batch in await waiting for line in batch.lines] == ["late"]
    await log.write(1, [])


async def much_output_is_cut_into_messages(log: TaskLog) -> None:
    """No amount of output is too much; one endless line loses its end and says so."""
    lines = [sample_line("x" * 10_000) for _ in range(300)] + [sample_line("y" * 3_000_000)]
    await log.write(0, lines)
    got: list[LogLine] = []
    position = 0
    while len(got) < len(lines):
        batches = await log.read_after(position, max_batches=2, timeout_s=WAIT_S)
        assert batches, "lines are missing"
        position = batches[-1].position
        got += [line for batch in batches for line in batch.lines]
    assert got[:300] == lines[:300]
    assert len(got[300].text) == LINE_CHARS_MAX
    assert got[300].text.endswith(CUT_MARK)


TASKLOG_CHECKS: tuple[TaskLogCheck, ...] = (
    lines_come_back_in_order,
    reading_goes_on_from_any_position,
    a_reader_waits_and_gives_up,
    much_output_is_cut_into_messages,
)


async def read_batches(log: TaskLog, position: int, count: int) -> list[PositionedLines]:
    """Exactly so many batches after a position, or fail."""
    batches: list[PositionedLines] = []
    async with asyncio.timeout(WAIT_S):
        while len(batches) < count:
            after = batches[-1].position if batches else position
            batches += await log.read_after(after, max_batches=count, timeout_s=WAIT_S)
    return batches
