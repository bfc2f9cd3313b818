"""Counts of all hosts in one place."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from actors.tiers import TierCounts, tell_counts
from noetl_ray.clock import SystemClock
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.hints.port import TIER_COUNTS
from noetl_ray.payloads.tiers import MemoryTier, Tiers
from noetl_ray.testing.gateway_kit import GatewayKit
from noetl_ray.web.tier_board import TierBoard


def told(source, hits, shared=None):
    counts = {"memory": {"hit": hits, "miss": 1}, "object": {"read": 1}}
    said = TierCounts(source=source, node="n", counts=counts, shared=shared or {})
    return msgspec.json.encode(said)


def test_the_newest_word_of_each_process_counts():
    board = TierBoard()
    for data in (told("a", 1), told("a", 6), told("b", 2), b"nonsense", b"{}", b"[]"):
        board.hear(data)
    page = board.page()
    assert page["totals"] == {"memory": {"hit": 8, "miss": 2}, "object": {"read": 2}}
    assert (page["reads"], page["served_by"]) == (10, {"memory": 0.8, "object": 0.2})
    assert set(page["sources"]) == {"a", "b"}


@pytest.mark.asyncio
async def test_cch_8_counts_are_served_to_people_and_to_prometheus():
    kit = GatewayKit()
    books = {"hits": 3, "misses": 1, "bytes": 50, "attempts": 4, "admitted": 4}
    kit.deps.tiers.hear(told("a", 1, books))
    async with kit.http() as http:
        page = (await http.get("/api/internal/tiers")).json()
        assert page["nodes"] == {"n": books}
        text = (await http.get("/metrics")).text
    assert 'noetl_tier_events_total{outcome="hit",tier="memory"} 1.0' in text
    assert 'noetl_storage_ipc_read_hit_ratio{node_id="n"} 0.75' in text


@pytest.mark.asyncio
async def test_a_host_tells_its_counts_by_hints():
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    hints = MemoryHints()
    await hints.listen(TIER_COUNTS, lambda _subject, data: heard.put_nowait(data))
    tiers = Tiers(SystemClock(), memory=MemoryTier(10))
    tiers.counts["memory", "hit"] = 5
    stopping = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(tell_counts(tiers, hints, source="s", node="n", stopping=stopping))
        board = TierBoard()
        board.hear(await heard.get())
        stopping.set()
    assert board.totals()["memory"]["hit"] == 5
