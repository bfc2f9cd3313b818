"""One run of a playbook of the workload on a local set: submit, wait, look at everything."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors import state_file
from actors.local import DEMO_DATABASE
from bench._processes import cpu_s, used
from bench._report import say
from bench.pft import book
from bench.pft.metrics import Connections, Told, bytes_below, nine, told, wrong_lineage
from bench.pft.world import Found, look, look_continued, make_tables
from noetl_ray.client import Client
from noetl_ray.embedded.postgres import with_database
from noetl_ray.errors import NoetlError

if TYPE_CHECKING:
    from actors.local import LocalSet
    from bench._child import Child
    from bench.pft.bare import Size

WAIT_S = 3_600.0
LEASE_S = 60
ATTEMPTS = 3
ATTEMPTS_UNDER_FIRE = 50
WORKER_HOSTS = ("noetl/worker/1", "noetl/worker/2")


@dataclass(slots=True, kw_only=True)
class Ran:
    """What a run gave."""

    process: str
    seconds: float
    rows: int
    found: Found
    told: Told
    metrics: dict[str, Any]
    wrong: list[str]
    cpu_s: dict[str, float]
    kills: list[float] = field(default_factory=list)
    """When a process was killed, seconds from the start."""


def world_dsn(running: LocalSet) -> str:
    """The database that rows go to."""
    return with_database(running.postgres_dsn, DEMO_DATABASE)


class Drive:
    """Runs on one set, against one API."""

    def __init__(
        self, running: LocalSet, api_url: str, hosts: tuple[str, ...] = WORKER_HOSTS
    ) -> None:
        """Bind it; ``hosts`` are those that may be killed."""
        self._running = running
        self._hosts = hosts
        self._api_url = api_url
        self._dsn = world_dsn(running)

    async def run(self, size: Size, killer: Child | None = None, kill_every: float = 0.0) -> Ran:
        """One run of the main playbook, checked to the last row."""
        await make_tables(self._dsn)
        objects = Path(self._running.data_dir) / "objects"
        before, nats = bytes_below(objects), self._nats()
        cpu = cpu_s(self._running, 0)
        given = {k: v for k, v in asdict(size).items() if k != "process"}
        under_fire = kill_every > 0
        given |= {
            "api_url": self._api_url,
            "lease_seconds": LEASE_S,
            "max_attempts": ATTEMPTS_UNDER_FIRE if under_fire else ATTEMPTS,
        }
        kills: list[float] = []
        async with Connections(self._running.postgres_dsn) as connections:
            execution_id, ended = await self._execute(
                book.text(size.process), given, killer, kill_every, kills
            )
        spent = used(cpu, cpu_s(self._running, 0))
        run = await told(self._running.postgres_dsn, execution_id)
        found = await look(self._dsn, size.facilities * size.patients)
        wrong = [*found.wrong, *wrong_lineage(run)]
        if ended != "COMPLETED":
            wrong.append(f"the execution ended as {ended}")
        if not under_fire and found.repeated:
            wrong.append(f"{found.repeated} pages were written again, and nothing was killed")
        allowed = run.events.get("frame.abandoned", 0) * size.max_rows
        metrics = nine(
            run,
            found.rows,
            connections.high,
            bytes_below(objects) - before,
            int(self._nats() != nats),
        )
        metrics["more"] |= {"writes_repeated": found.repeated, "rows_that_may_repeat": allowed}
        return Ran(
            process=size.process,
            seconds=run.seconds,
            rows=found.rows,
            found=found,
            told=run,
            metrics=metrics,
            wrong=wrong,
            cpu_s=spent,
            kills=kills,
        )

    async def continuation(self, patients: int) -> list[str]:
        """The companion playbook: each page enqueues the one after it; what is wrong."""
        await make_tables(self._dsn)
        given = {"api_url": self._api_url, "patients": patients}
        _id, ended = await self._execute(book.CONTINUATION, given, None, 0.0, [])
        wrong = await look_continued(self._dsn, patients)
        return wrong if ended == "COMPLETED" else [*wrong, f"continuation ended as {ended}"]

    async def _execute(
        self,
        playbook: str,
        workload: dict[str, Any],
        killer: Child | None,
        kill_every: float,
        kills: list[float],
    ) -> tuple[int, str]:
        token = self._running.token or None
        async with Client(self._running.gateway_url, token=token, timeout_s=60.0) as client:
            started = await client.submit(playbook=playbook, workload=workload)
            began = time.monotonic()
            killing = None
            if killer is not None and kill_every > 0:
                killing = asyncio.create_task(self._kill(killer, kill_every, kills, began))
            try:
                ended = await _wait(client, started.execution_id, began + WAIT_S)
            finally:
                if killing is not None:
                    killing.cancel()
                    await asyncio.gather(killing, return_exceptions=True)
        return started.execution_id, ended

    async def _kill(self, killer: Child, every_s: float, kills: list[float], began: float) -> None:
        """Kill a host with a worker, again and again; which one is left to chance."""
        chance = random.Random(0)
        while True:
            await asyncio.sleep(every_s)
            name = chance.choice(self._hosts)
            if await asyncio.to_thread(killer.ask, name):
                kills.append(round(time.monotonic() - began, 2))
                say(f"killed {name} at {kills[-1]:.1f} s")

    def _nats(self) -> int:
        record = state_file.read(Path(self._running.data_dir))
        assert record is not None
        return next((ref.pid for ref in record.processes if ref.title == "nats"), 0)


async def _wait(client: Client, execution_id: int, deadline: float) -> str:
    while True:
        try:
            left = max(1.0, min(60.0, deadline - time.monotonic()))
            execution = await client.wait(execution_id, timeout_s=left)
            if execution.ended:
                return execution.status
        except (NoetlError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
