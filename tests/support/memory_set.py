"""The whole runtime in one process over the memory adapters, with real tools and a real clock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from actors.conductor import Conductor
from actors.contexts import ContextStore
from actors.deciding import ConductorPorts
from actors.keeper import Keeper
from actors.materializer import Materializer
from actors.programs import Programs
from actors.projector import Projector
from actors.role import Role, run_role
from actors.shard_owner import FixedShards
from actors.worker import Worker
from actors.worker_ports import WorkerIdentity, WorkerPorts
from noetl_ray.clock import Clock, SystemClock
from noetl_ray.config.settings import Settings
from noetl_ray.credentials.memory import MemoryCredentials
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.state import TERMINAL_STATUSES
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.submit import Submission, SubmitPorts, submit_execution
from noetl_ray.tools.registry import ToolRegistry, default_registry
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.tasklog_memory import MemoryTaskLog
from placement.offer import Place
from tests.simulation.invariants import fold_all, records

POLL_S = 0.02
PRODUCER = "noetl://tenant/default/org/default"


class MemorySet:
    """All ports, and the roles over them; everything as the default settings say."""

    def __init__(self, clock: Clock, env: Mapping[str, str] | None = None) -> None:
        settings = Settings()
        self.scope = Scope()
        self.clock = clock
        self.credentials = MemoryCredentials()
        self._env = dict(env or {})
        self.log = MemoryLog(clock)
        self.readmodel = MemoryReadModel()
        self.credentials = MemoryCredentials()
        self._shards = range(settings.runtime.shard_count)
        self._lease_ms = settings.runtime.worker_lease_ms
        self._announce_ms = settings.runtime.announce_ms
        self._hints = MemoryHints()
        self._tasklog = MemoryTaskLog()
        self._objects = MemoryObjects()
        self._placement = Placement(shard_count=len(self._shards))
        self.results = ResultStore(
            self._objects,
            self._placement,
            context_max_bytes=settings.results.context_max_bytes,
            extracted_max_bytes=settings.results.extracted_max_bytes,
        )
        self._templates = Templates()
        self._ids = SnowflakeIds(1, clock)
        self.submit_ports = SubmitPorts(
            log=self.log,
            objects=self._objects,
            placement=self._placement,
            mint=self._ids.mint,
            clock=clock,
            producer=f"{PRODUCER}/client/memory",
        )

    def roles(self, registry: ToolRegistry) -> list[Role]:
        """One of each."""
        programs = Programs(self._objects, self._placement, self._templates)
        contexts = ContextStore(self._objects, self._placement)
        place = {"region": "local", "zone": "local", "node": "memory"}
        conductor = Conductor(
            ConductorPorts(
                log=self.log,
                hints=self._hints,
                programs=programs,
                contexts=contexts,
                results=self.results,
                ids=self._ids,
                clock=self.clock,
                env=self._env,
                submit=self.submit_ports,
            ),
            owner=FixedShards(self._shards),
            producer=f"{PRODUCER}/conductor/memory",
            near=Place(**place),
            lease_ms=self._lease_ms,
        )
        worker = Worker(
            WorkerIdentity(
                worker_id="memory/worker",
                incarnation="one",
                producer=f"{PRODUCER}/worker/memory",
                place=place,
                slots=8,
            ),
            WorkerPorts(
                log=self.log,
                hints=self._hints,
                tasklog=self._tasklog,
                results=self.results,
                programs=programs,
                contexts=contexts,
                credentials=self.credentials,
                registry=registry,
                templates=self._templates,
                ids=self._ids,
                clock=self.clock,
                env=self._env,
                submit=self.submit_ports,
            ),
            lease_ms=self._lease_ms,
            announce_ms=self._announce_ms,
            shard_count=len(self._shards),
        )
        keeper = Keeper(
            log=self.log,
            hints=self._hints,
            ids=self._ids,
            clock=self.clock,
            producer=f"{PRODUCER}/keeper/memory",
            lease_ms=self._lease_ms,
        )
        projector = Projector(
            self.log,
            self.readmodel,
            self._tasklog,
            self.clock,
            shards=self._shards,
            shard_count=len(self._shards),
        )
        materializer = Materializer(self.log, self.results, self.clock, shards=self._shards)
        return [conductor, worker, keeper, projector, materializer]

    async def execute(
        self, source: str, wait_s: float, workload: dict[str, Any] | None = None
    ) -> list[Recorded]:
        """Run a playbook to its end; the records of its execution."""
        asked = Submission(source=source, workload=workload or {})
        done = await submit_execution(self.submit_ports, self.scope, "default", asked)
        async with asyncio.timeout(wait_s):
            while True:
                found = [
                    recorded
                    for recorded in records(self.log)
                    if recorded.record.events[0].execution_id == done.execution_id
                ]
                if fold_all(found)[done.execution_id].status in TERMINAL_STATUSES:
                    return found
                await asyncio.sleep(POLL_S)


@asynccontextmanager
async def running_memory_set(env: Mapping[str, str] | None = None) -> AsyncIterator[MemorySet]:
    """A set whose roles run while the block does; ``env`` is what templates may read."""
    made = MemorySet(SystemClock(), env)
    registry = default_registry(python_processes=2, base_env=os.environ)
    stopping = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            for role in made.roles(registry):
                group.create_task(run_role(role, stopping))
            try:
                yield made
            finally:
                stopping.set()
    finally:
        await registry.close()
