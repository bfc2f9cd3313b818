"""A gateway over memory adapters, and executions that end when a test says so.

Owns no behaviour of its own: requests go through the real app, and the fixed story of
:class:`HistoryWriter` stands for the conductor and the worker. Refuses to run a playbook.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx
from fastapi import FastAPI

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import Settings
from noetl_ray.credentials.memory import MemoryCredentials
from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.readmodel.projecting import ExecutionKey, executions_of, project_records
from noetl_ray.readmodel.records import Checkpoint, LogRow, ProjectionBatch
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.submit import SubmitPorts
from noetl_ray.submit.tokens import CallbackTokens
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.testing.samples import SAMPLE_TIME, sample_event
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.subjects import command_subject
from noetl_ray.web import GatewayDeps, create_app
from noetl_ray.web.shard_board import ShardBoard

if TYPE_CHECKING:
    from noetl_ray.wal.tasklog import LogLine

HELLO = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: kit/hello}
workload: {greeting: hi}
workflow:
  - step: start
    tool: {kind: noop}
"""


@dataclass(slots=True, kw_only=True)
class GatewayKit:
    """The app and everything behind it."""

    settings: Settings = field(default_factory=Settings)
    scope: Scope = field(default_factory=Scope)
    clock: SystemClock = field(default_factory=SystemClock)
    tokens: CallbackTokens = field(default_factory=lambda: CallbackTokens(bytes(32)))
    model: MemoryReadModel = field(default_factory=MemoryReadModel)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    credentials: MemoryCredentials = field(default_factory=MemoryCredentials)
    log: MemoryLog = field(init=False)
    results: ResultStore = field(init=False)
    deps: GatewayDeps = field(init=False)
    app: FastAPI = field(init=False)
    _states: dict[ExecutionKey, ExecutionState] = field(init=False, default_factory=dict)
    _position: int = field(init=False, default=0)
    _histories: dict[int, HistoryWriter] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Put the app together."""
        self.log = MemoryLog(self.clock)
        self.results = ResultStore(self.objects, Placement(), offload_bytes=None)
        submit = SubmitPorts(
            log=self.log,
            objects=self.objects,
            placement=Placement(),
            mint=SnowflakeIds(1, self.clock).mint,
            clock=self.clock,
            producer="kit",
        )
        self.deps = GatewayDeps(
            settings=self.settings,
            submit=submit,
            queries=self.model,
            results=self.results,
            callbacks=self.tokens,
            credentials=self.credentials,
            clock=self.clock,
            states=self.model,
            shards=ShardBoard(self.clock),
        )
        self.app = create_app(self.deps)

    def http(self, **more: Any) -> httpx.AsyncClient:
        """A raw client of the app."""
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", **more)

    async def begin(self, execution_id: int) -> None:
        """The conductor takes the request and starts step ``start``."""
        shard = self.deps.submit.shard(self.scope, "default", execution_id)
        writer = HistoryWriter(self.log, scope=self.scope, shard=shard)
        # Each writer counts its event ids from 1; two executions must not share one.
        writer._ids = iter(range(1 + 1000 * len(self._histories), 1 << 40))  # type: ignore[assignment]
        self._histories[execution_id] = writer
        requested = [
            recorded.position
            async for recorded in self.log.read("noetl.events.>")
            if recorded.record.events[0].execution_id == execution_id
        ]
        await writer.begin(execution_id, *requested[:1])
        await self.project()

    async def end(self, execution_id: int, value: Any) -> None:
        """Step ``start`` gives a value and the execution completes."""
        writer = self._histories[execution_id]
        name = ResultName(
            tenant=self.scope.tenant_id, project="default", execution_id=execution_id, step="start"
        )
        result = await self.results.persist(self.scope, name, value)
        command_id = f"{execution_id}:start:1"
        event = sample_event(
            next(writer._ids),
            tenant_id=self.scope.tenant_id,
            organization_id=self.scope.organization_id,
            execution_id=execution_id,
            aggregate_type=AggregateType.COMMAND,
            event_type=EventType.CALL_DONE,
            command_id=command_id,
            idempotency_key=f"{command_id}/done",
            payload={"step": "start", "visit": 1, "result": result},
        )
        subject = command_subject(writer.shard, self.scope, execution_id, command_id)
        record = Record(events=(event,))
        position = await self.log.append(subject, record, expected_version=0)
        await writer.finish(execution_id, position)
        await self.project()

    async def run(self, execution_id: int, value: Any) -> None:
        """The whole story."""
        await self.begin(execution_id)
        await self.end(execution_id, value)

    async def project(self, lines: tuple[LogLine, ...] = ()) -> None:
        """Bring the read model up to the log's end, and add printed lines."""
        records = [r async for r in self.log.read("noetl.>", from_position=self._position + 1)]
        made = project_records(records, self._states)
        self._states |= {
            key: made.states[key] for key in executions_of(records) if key in made.states
        }
        executions, projections = made.execution_rows(updated_at=SAMPLE_TIME, lag_ms=0)
        end = records[-1].position if records else self._position
        mark = Checkpoint(
            consumer="kit", expected=self._position, position=end, projected_at=SAMPLE_TIME
        )
        batch = ProjectionBatch(
            checkpoints=(mark,),
            events=tuple(made.events),
            executions=executions,
            commands=made.command_rows(),
            playbooks=tuple(made.playbooks),
            objects=tuple(made.objects),
            workers=tuple(made.workers.values()),
            projections=projections,
            lines=tuple(
                LogRow(log_id=number, line=line) for number, line in enumerate(lines, start=1)
            ),
        )
        await self.model.commit(batch)
        self._position = end


def with_gateway(settings: Settings, **changes: Any) -> Settings:
    """Settings with another gateway section."""
    return replace(settings, gateway=replace(settings.gateway, **changes))
