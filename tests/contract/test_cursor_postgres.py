"""Cursor claims against a real server: what a crash before and after the commit leaves (P21)."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
import pytest_asyncio

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ToolError
from noetl_ray.tools.cursor import CursorClaim
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.postgres import PostgresTool

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

CONFIG = {"kind": "postgres", "auth": "pg"}
CLAIM = """
-- it's the usual shape
UPDATE work SET state = 'claimed' WHERE id IN (
  SELECT id FROM work WHERE state = 'new' ORDER BY id LIMIT {n} FOR UPDATE SKIP LOCKED
) RETURNING id, body
"""


class Bench:
    """A table of work and a cursor over it."""

    def __init__(self, dsn: str, tool: PostgresTool) -> None:
        self.dsn = dsn
        self.cursor = tool.cursor
        self.kept: list[tuple[list[int], str]] = []

    async def _credential(self, name: str) -> Credential:
        return Credential(name=name, type="postgres", data={"dsn": self.dsn})

    @property
    def context(self) -> ToolContext:
        return ToolContext(
            execution_id=1,
            step="s",
            task="claim",
            attempt=1,
            idempotency_key="k",
            timeout_s=None,
            credential=self._credential,
            log=lambda stream, line: None,
        )

    async def keep(self, rows, token):
        self.kept.append((sorted(row["id"] for row in rows), token))

    async def claim(self, max_rows=3, max_bytes=1 << 20, keep=None, claim=CLAIM, tag="tag/1"):
        wanted = CursorClaim(
            config=CONFIG,
            statement=lambda n: claim.format(n=n),
            max_rows=max_rows,
            max_bytes=max_bytes,
            tag=tag,
        )
        return await self.cursor.claim(wanted, keep or self.keep, self.context)

    async def states(self):
        connection = await asyncpg.connect(self.dsn)
        try:
            found = await connection.fetch("SELECT state, count(*) FROM work GROUP BY state")
            return dict(found)
        finally:
            await connection.close()


@pytest_asyncio.fixture
async def bench(empty_postgres_dsn):
    connection = await asyncpg.connect(empty_postgres_dsn)
    await connection.execute(
        "CREATE TABLE work (id int PRIMARY KEY, state text DEFAULT 'new', body text);"
        "INSERT INTO work (id, body) SELECT i, repeat('x', 100) FROM generate_series(1, 10) i"
    )
    await connection.close()
    tool = PostgresTool(connections_max=4, idle_s=30)
    yield Bench(empty_postgres_dsn, tool)
    await tool.close()


async def test_p21_rows_are_kept_before_the_claim_commits(bench):
    seen = []

    async def keep(rows, token):
        seen.append(await bench.states())
        assert await bench.cursor.fate(CONFIG, token, bench.context) == "running"
        await bench.keep(rows, token)

    claimed = await bench.claim(keep=keep)
    assert [row["id"] for row in claimed.rows] == [1, 2, 3]
    assert seen == [{"new": 10}]
    assert await bench.states() == {"new": 7, "claimed": 3}
    assert await bench.cursor.fate(CONFIG, bench.kept[0][1], bench.context) == "committed"


async def test_p21_a_refused_keep_gives_the_rows_back(bench):
    async def refuse(rows, token):
        await bench.keep(rows, token)
        msg = "taken away"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError):
        await bench.claim(keep=refuse)
    assert await bench.cursor.fate(CONFIG, bench.kept[0][1], bench.context) == "aborted"
    assert await bench.states() == {"new": 10}


async def test_p21_a_frozen_holder_is_ended_by_the_next_one(bench):
    holding = asyncio.Event()

    async def freeze(rows, token):
        await bench.keep(rows, token)
        holding.set()
        await asyncio.sleep(60)

    frozen = asyncio.create_task(bench.claim(max_rows=10, keep=freeze))
    async with asyncio.timeout(20):
        await holding.wait()
        assert (await bench.claim(tag="tag/other")).rows == []
        await bench.cursor.evict(CONFIG, "tag/1", bench.context)
        assert await bench.cursor.fate(CONFIG, bench.kept[0][1], bench.context) == "aborted"
        assert len((await bench.claim(max_rows=10)).rows) == 10
    frozen.cancel()
    await asyncio.gather(frozen, return_exceptions=True)
    assert await bench.states() == {"claimed": 10}


async def test_a_claim_over_the_bytes_is_made_smaller_and_strands_nothing(bench):
    claimed = await bench.claim(max_rows=10, max_bytes=400)
    assert 1 <= len(claimed.rows) <= 4
    assert len(bench.kept) == 1
    assert await bench.states() == {"new": 10 - len(claimed.rows), "claimed": len(claimed.rows)}


async def test_nothing_left_is_no_error_and_keeps_nothing(bench):
    await bench.claim(max_rows=10)
    assert (await bench.claim()).rows == []
    assert len(bench.kept) == 1


async def test_a_claim_that_is_wrong_says_so(bench):
    with pytest.raises(ToolError) as caught:
        await bench.claim(claim="SELECT nonsense FROM work LIMIT {n}")
    assert "nonsense" in caught.value.message
    assert not caught.value.retryable
    with pytest.raises(ToolError, match="empty"):
        await bench.claim(claim="-- {n}")
    assert await bench.states() == {"new": 10}


async def test_two_claimers_never_share_a_row(bench):
    results = await asyncio.gather(*(bench.claim(max_rows=2, tag=f"t/{i}") for i in range(5)))
    ids = [row["id"] for claimed in results for row in claimed.rows]
    assert len(ids) == len(set(ids))
    assert (await bench.states())["claimed"] == len(ids)
