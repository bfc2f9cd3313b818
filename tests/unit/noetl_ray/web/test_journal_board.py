"""What hosts tell of their journals, as Prometheus sees it."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actors.host_log import tell_journal
from noetl_ray.clock import SystemClock
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.hints.port import JOURNALS
from noetl_ray.testing.samples import sample_record
from noetl_ray.wal.journal import Entry, Journal
from noetl_ray.web.journal_board import BELIEVED_S, JournalBoard


def shown(board: JournalBoard) -> str:
    registry = CollectorRegistry()
    registry.register(board)
    return generate_latest(registry).decode()


@pytest.mark.asyncio
async def test_buf_2_the_gauge_of_a_host_is_on_the_metrics_page() -> None:
    time_s, heard, stopping = 100.0, asyncio.Event(), asyncio.Event()
    board, hints = JournalBoard(lambda: time_s), MemoryHints()
    journal = Journal(SystemClock(), max_events=300, max_bytes=900_000)
    assert journal.enter(Entry("s", sample_record(1, events=3), 77))

    def hear(_subject: str, data: bytes) -> None:
        board.hear(data)
        heard.set()

    await hints.listen(JOURNALS, hear)
    async with asyncio.TaskGroup() as group:
        group.create_task(tell_journal(journal, hints, source="hot/0/abc", stopping=stopping))
        await asyncio.wait_for(heard.wait(), 10)
        stopping.set()
    time_s += 4
    page = shown(board)
    assert 'noetl_journal_events{source="hot/0/abc"} 3.0' in page
    assert 'noetl_journal_bytes{source="hot/0/abc"} 77.0' in page
    assert 'noetl_journal_bound_events{source="hot/0/abc"} 300.0' in page
    assert 'noetl_journal_held_total{source="hot/0/abc"} 0.0' in page
    assert 'noetl_journal_told_seconds_ago{source="hot/0/abc"} 4.0' in page
    time_s += BELIEVED_S
    assert "hot/0/abc" not in shown(board)


def test_a_word_that_cannot_be_read_is_left_out() -> None:
    board = JournalBoard(lambda: 0.0)
    for data in (b"", b"[]", b'{"source": "a"}', b'{"source": "a", "gauge": {"events": "x"}}'):
        board.hear(data)
    assert "source=" not in shown(board)
