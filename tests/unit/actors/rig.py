"""Roles over memory adapters in virtual time: one process each, faults where a test wants them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from actors.barrier import BarrierBook
from actors.callbacks import Callbacks
from actors.conductor import Conductor
from actors.contexts import ContextStore
from actors.deciding import ConductorPorts
from actors.keeper import Keeper
from actors.ownership import LeasedShards
from actors.programs import Programs
from actors.role import Role
from actors.shard_owner import FixedShards, ShardOwner
from actors.worker import Worker
from actors.worker_ports import WorkerIdentity, WorkerPorts
from noetl_ray.credentials.memory import MemoryCredentials
from noetl_ray.credentials.port import Credential
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.envelope import Event, Record, encode_record
from noetl_ray.events.types import EventType
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement as Cell
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.replay import replay
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.shards.memory import MemoryCheckpoints, MemoryOwners
from noetl_ray.submit import Submission, SubmitPorts, submit_execution
from noetl_ray.submit.tokens import CallbackTokens
from noetl_ray.testing.simloop import SimClock, SimLoop, run_simulated
from noetl_ray.tools.artifact import ArtifactTool
from noetl_ray.tools.callback import CallbackTool
from noetl_ray.tools.noop import NoopTool
from noetl_ray.tools.playbook import PlaybookTool
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.registry import ToolRegistry
from noetl_ray.tools.wait import WaitTool
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.tasklog_memory import MemoryTaskLog
from placement.offer import Place

SHARDS = 2
LEASE_MS = 8_000
PRODUCER = "noetl://tenant/default/org/default/test/1"
TEMPLATES = Templates()
ONE = "workflow: [{step: a, tool: {kind: http, url: u, takes: %s}}]"


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a simulated loop; its first argument is a fresh rig."""

    def run(**given: Any) -> None:
        run_simulated(7, lambda loop: test(Rig(loop), **given))  # type: ignore[arg-type,return-value]

    parameters = list(inspect.signature(test).parameters.values())[1:]
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def book(body: str, name: str = "p") -> str:
    return (
        f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {name}}}\n{body}"
    )


class WatchedLog(MemoryLog):
    """The memory log, which notes how many appends of a subject are under way."""

    def __init__(self, clock: SimClock, faults: Any) -> None:
        super().__init__(clock, faults=faults)
        self.flying: dict[str, int] = {}
        self.flying_max: dict[str, int] = {}

    async def append(self, subject: str, record: Record, *, expected_version: int | None) -> int:
        self.flying[subject] = self.flying.get(subject, 0) + 1
        self.flying_max[subject] = max(self.flying_max.get(subject, 0), self.flying[subject])
        try:
            return await super().append(subject, record, expected_version=expected_version)
        finally:
            self.flying[subject] -= 1


class ActTool:
    """The outside world: waits, then does what the rig's ``act`` says."""

    kind = "http"
    side_effects = True
    meta_key = "http"
    text_keys = frozenset({"url"})

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        self._rig.calls.append(context)
        await self._rig.clock.sleep(float(config.get("takes", 0)))
        self._rig.finished += 1
        data = self._rig.act(config, context)
        return ToolResult(data=await data if inspect.isawaitable(data) else data)

    async def close(self) -> None:
        """Nothing is held."""


class ProcessHints:
    """The hint port of one process: handlers run in that process, whoever sends."""

    def __init__(self, rig: Rig, process: str) -> None:
        self._rig = rig
        self._process = process

    async def send(self, subject: str, data: bytes) -> None:
        await self._rig.hints.send(subject, data)

    async def listen(self, subject: str, handler: Any) -> Any:
        return await self._rig.hints.listen(subject, self._rig.loop.within(self._process, handler))

    async def close(self) -> None:
        """The shared table stays."""


class Rig:
    """One small cluster."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.log = WatchedLog(self.clock, self)
        self.hints = MemoryHints(faults=self)
        self.objects = MemoryObjects()
        self.checkpoints = MemoryCheckpoints()
        self.owners = MemoryOwners()
        self.tasklog = MemoryTaskLog()
        self.credentials = MemoryCredentials()
        self.cell = Cell(shard_count=SHARDS)
        self.results = ResultStore(self.objects, self.cell, offload_bytes=None)
        self.scope = Scope()
        self.calls: list[ToolContext] = []
        self.finished = 0
        self.act: Callable[[dict[str, Any], ToolContext], Any] = lambda c, _: c.get("value", {})
        self.sent: list[tuple[str, bytes]] = []
        self.lose: Callable[[str], bool] = lambda _subject: False
        self.on_append: Callable[[str, Record], Awaitable[None]] | None = None
        self.on_ack: Callable[[str, Record], Awaitable[None]] | None = None
        self.barriers = BarrierBook()
        self.tokens = CallbackTokens(b"k" * 32)
        self.processes: dict[str, str] = {}
        self._generator = 0
        self.submit_ports = SubmitPorts(
            log=self.log,
            objects=self.objects,
            placement=self.cell,
            mint=self.ids().mint,
            clock=self.clock,
            producer=PRODUCER,
        )

    # Faults, as the adapters ask for them

    async def before_append(self, subject: str, record: Record) -> None:
        if self.on_append is not None:
            await self.on_append(subject, record)

    async def after_append(self, subject: str, record: Record, _position: int) -> None:
        if self.on_ack is not None:
            await self.on_ack(subject, record)

    async def delay_delivery(self) -> None:
        """Records come at once."""

    def deliveries(self, subject: str, data: bytes) -> list[float]:
        self.sent.append((subject, data))
        return [] if self.lose(subject) else [0.0]

    # Roles

    def ids(self) -> SnowflakeIds:
        self._generator += 1
        return SnowflakeIds(self._generator, self.clock)

    def programs(self) -> Programs:
        return Programs(self.objects, self.cell, TEMPLATES)

    def contexts(self) -> ContextStore:
        return ContextStore(self.objects, self.cell)

    def leases(self, name: str, incarnation: str = "i1", **more: Any) -> LeasedShards:
        """An owner in the shared table: a lease of 6 s, a heartbeat each 2 s."""
        given = {"table": self.owners, "shard_count": 8, "lease_s": 6.0, "heartbeat_s": 2.0}
        return LeasedShards(
            log=self.log,
            ids=self.ids(),
            clock=self.clock,
            name=name,
            incarnation=incarnation,
            producer=PRODUCER,
            **(given | more),
        )

    def conductor(self, name: str = "c", owner: ShardOwner | None = None) -> Conductor:
        ports = ConductorPorts(
            log=self.log,
            hints=ProcessHints(self, name),
            programs=self.programs(),
            contexts=self.contexts(),
            results=self.results,
            ids=self.ids(),
            clock=self.clock,
            env={},
            checkpoints=self.checkpoints,
            submit=self.submit_ports,
        )
        return Conductor(
            ports,
            owner=owner or FixedShards(range(SHARDS), name),
            producer=PRODUCER,
            near=Place(),
            lease_ms=LEASE_MS,
        )

    def worker_ports(self, name: str = "w1") -> WorkerPorts:
        registry = ToolRegistry(plugins=[])
        registry.register(NoopTool())
        registry.register(PlaybookTool())
        registry.register(WaitTool())
        registry.register(CallbackTool())
        registry.register(ActTool(self))
        registry.register(ArtifactTool())
        return WorkerPorts(
            log=self.log,
            hints=ProcessHints(self, name),
            tasklog=self.tasklog,
            results=self.results,
            programs=self.programs(),
            contexts=self.contexts(),
            credentials=self.credentials,
            registry=registry,
            templates=TEMPLATES,
            ids=self.ids(),
            clock=self.clock,
            env={},
            submit=self.submit_ports,
            barriers=self.barriers,
            callbacks=Callbacks(tokens=self.tokens, url="http://gate"),
        )

    def identity(self, worker_id: str = "w1", incarnation: str = "i1", slots: int = 2) -> Any:
        return WorkerIdentity(
            worker_id=worker_id, incarnation=incarnation, producer=PRODUCER, place={}, slots=slots
        )

    def worker(
        self,
        worker_id: str = "w1",
        incarnation: str = "i1",
        slots: int = 2,
        process: str | None = None,
    ) -> Worker:
        return Worker(
            self.identity(worker_id, incarnation, slots),
            self.worker_ports(process or worker_id),
            lease_ms=LEASE_MS,
            announce_ms=1000,
            shard_count=SHARDS,
        )

    def keeper(self, name: str = "k") -> Keeper:
        return Keeper(
            log=self.log,
            hints=ProcessHints(self, name),
            ids=self.ids(),
            clock=self.clock,
            producer=PRODUCER,
            lease_ms=LEASE_MS,
        )

    def start(self, process: str, role: Role) -> Any:
        """Run a role for ever in a process of its own."""

        async def host() -> None:
            await role.start()
            while True:
                await role.step()

        return self.loop.spawn(process, host())

    def cluster(self, *, workers: int = 1, slots: int = 2) -> None:
        """A conductor, a keeper, and workers w1, w2 …"""
        self.start("c", self.conductor())
        self.start("k", self.keeper())
        for number in range(1, workers + 1):
            self.start(f"w{number}", self.worker(f"w{number}", slots=slots))

    # What a test does and sees

    async def submit(self, body: str, **more: Any) -> int:
        asked = Submission(source=book(body), **more)
        done = await submit_execution(self.submit_ports, self.scope, "default", asked)
        return done.execution_id

    async def credential(self, name: str, **data: Any) -> None:
        await self.credentials.put(self.scope, Credential(name=name, type="generic", data=data))

    def records(self) -> list[Recorded]:
        return [r for r in self.log._records if r is not None]

    def events(self, *kinds: EventType) -> list[Event]:
        found = [event for r in self.records() for event in r.record.events]
        return [e for e in found if not kinds or e.event_type in kinds]

    def bytes(self) -> bytes:
        """Everything the log holds."""
        return b"\n".join(encode_record(r.record) for r in self.records())

    def state(self, execution_id: int) -> ExecutionState:
        return replay(self.records())[execution_id]

    async def until(
        self, true: Callable[[], Any], within_s: float = 120, look_s: float = 0.05
    ) -> None:
        deadline = self.loop.time() + within_s
        while not true():
            assert self.loop.time() < deadline, (
                f"not within {within_s} s: {inspect.getsource(true)}"
            )
            await self.clock.sleep(look_s)

    async def ended(
        self, execution_id: int, within_s: float = 120, look_s: float = 0.05
    ) -> ExecutionState:
        def over() -> bool:
            state = replay(self.records()).get(execution_id)
            return state is not None and state.terminal

        await self.until(over, within_s, look_s)
        return self.state(execution_id)
