"""One set whose roles live apart, so that each can be killed alone, and a world that counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from actors.local import DEMO_DATABASE, LocalSet, down, up
from actors.ray_head import forget
from noetl_ray.cli.demo import fixture_api
from noetl_ray.config.settings import RaySettings, RuntimeSettings, Settings
from noetl_ray.embedded.postgres import with_database
from noetl_ray.events.envelope import Event
from noetl_ray.events.types import EventType
from noetl_ray.locator.shard import shard_of
from tests.support.cli import processes_naming
from tests.support.journal import fetch, records_of
from tests.support.patient import ask_patiently
from tests.support.ray_agent import RayAgent

PLAYBOOK = (Path(__file__).parent / "playbook.yaml").read_text()
PAYMENTS = ("pay_a", "pay_b", "pay_c")
ROWS = ("store", "store_total")
CONDUCTORS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """A running set, its Ray, and the outside world its executions touch."""

    running: LocalSet
    ray: RayAgent
    api_url: str

    def submit(self, count: int, *, delay_s: float) -> list[int]:
        """So many executions, over the shards of every conductor."""
        workload = {"api_url": self.api_url, "delay_s": delay_s}
        ids: list[int] = []
        while len(ids) < count:
            started = ask_patiently(
                self.running, lambda client: client.submit(playbook=PLAYBOOK, workload=workload)
            )
            ids.append(started.execution_id)
        return ids

    def submit_to_all(self, *, delay_s: float) -> list[int]:
        """Executions until every conductor has one; usually two or three."""
        ids: list[int] = []
        while len({shard_of("default", "default", each) % CONDUCTORS for each in ids}) < CONDUCTORS:
            ids += self.submit(1, delay_s=delay_s)
        return ids

    def effects(self) -> dict[str, Any]:
        return dict(httpx.get(f"{self.api_url}/api/v1/effects", timeout=10).json())

    def rows(self, execution_id: int) -> dict[str, int]:
        """How often each statement that writes a row took effect."""
        found = fetch(
            demo_dsn(self.running),
            "SELECT step, count(*) AS times FROM chaos_effect"
            " WHERE execution_id = $1 GROUP BY step",
            execution_id,
        )
        return {row["step"]: row["times"] for row in found}

    def attempts(self, execution_id: int) -> dict[str, int]:
        """How often each step's command was given to a worker."""
        times: dict[str, int] = {}
        for event in self.events(execution_id):
            step = (event.command_id or "").removeprefix(f"{execution_id}-").rpartition("-")[0]
            if event.event_type is EventType.COMMAND_ISSUED:
                times[step] = times.get(step, 0) + 1
            elif event.event_type is EventType.COMMAND_RELEASED:
                times[step] += 1
        return times

    def events(self, execution_id: int) -> list[Event]:
        records = records_of(self.running, execution_id)
        return [event for recorded in records for event in recorded.record.events]


def payment_key(execution_id: int, step: str) -> str:
    """The idempotency key under which the effect counter knows a payment."""
    return f"{execution_id}-{step}-1/{step}_task/1"


def demo_dsn(running: LocalSet) -> str:
    return with_database(running.postgres_dsn, DEMO_DATABASE)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("chaos")
    settings = Settings(
        data_dir=str(folder),
        runtime=RuntimeSettings(conductors=CONDUCTORS, workers=2),
        ray=RaySettings(dashboard=False, num_cpus=2),
    )
    try:
        with fixture_api() as api_url:
            running = up(settings)
            asyncio.run(_make_table(demo_dsn(running)))
            agent = RayAgent(running)
            try:
                yield Arena(running=running, ray=agent, api_url=api_url)
            finally:
                agent.close()
    finally:
        down(folder)
        forget(folder)
    assert processes_naming(folder) == []


async def _make_table(dsn: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute(
            "CREATE TABLE chaos_effect (execution_id BIGINT, step TEXT, amount INTEGER)"
        )
    finally:
        await connection.close()
