"""The whole runtime in one process.

Memory adapters, virtual time, processes that die and come back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from actors.conductor import Conductor
from actors.contexts import ContextStore
from actors.deciding import ConductorPorts
from actors.keeper import Keeper
from actors.materializer import Materializer
from actors.ownership import LeasedShards
from actors.programs import Programs
from actors.projector import Projector
from actors.role import Role, run_role
from actors.shard_owner import FixedShards
from actors.worker import Worker
from actors.worker_ports import WorkerIdentity, WorkerPorts
from noetl_ray.credentials.memory import MemoryCredentials
from noetl_ray.dsl.template import Templates
from noetl_ray.errors import LogUnavailableError, StoreUnavailableError, ToolError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import COMMAND_TERMINAL, FRAME_TERMINAL, TASK_RECORDS, EventType
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.shards.memory import MemoryCheckpoints, MemoryOwners
from noetl_ray.submit import SubmitPorts
from noetl_ray.testing.simloop import SimClock, SimLoop
from noetl_ray.tools.noop import NoopTool
from noetl_ray.tools.playbook import PlaybookTool
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.registry import ToolRegistry
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.subjects import token
from noetl_ray.wal.tasklog_memory import MemoryTaskLog
from placement.offer import Place
from tests.simulation.queue import Queues, QueueTool

SHARDS = 4
LEASE_MS = 8_000
SHARD_LEASE_S = 6.0
TEMPLATES = Templates()


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How unkind the world is; all chances per event."""

    lost_publish: float = 0.0
    lost_ack: float = 0.0
    slow_log: float = 0.0
    slow_delivery: float = 0.0
    lost_hint: float = 0.0
    doubled_hint: float = 0.0
    late_hint: float = 0.0
    failing_store: float = 0.0
    failing_shards: float = 0.0
    """Chance of an outage, or a lost ack, of the table of owners and of the checkpoints."""


CALM = FaultPlan()
ROUGH = FaultPlan(
    lost_publish=0.03,
    lost_ack=0.04,
    slow_log=0.1,
    slow_delivery=0.15,
    lost_hint=0.1,
    doubled_hint=0.1,
    late_hint=0.15,
    failing_store=0.05,
    failing_shards=0.05,
)


class EffectTool:
    """The outside world: an effect that counts itself, takes time.

    And can fail the first few times.
    """

    kind: ClassVar[str] = "http"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "http"
    text_keys: ClassVar[frozenset[str]] = frozenset({"url"})

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Wait, do it, wait, say so."""
        world = self._world
        world.effect(context)
        await world.clock.sleep(float(config.get("takes_ms", 0)) / 1000)
        context.log("stdout", f"effect of {context.step}")
        if context.attempt <= int(config.get("fail_first", 0)):
            msg = "simulated failure"
            raise ToolError(msg, "server_error", True, {"status_code": 500})
        return ToolResult(data=config["value"], meta={"status": 200})

    async def close(self) -> None:
        """Nothing to let go of."""


class _RoleHints:
    """The hint port as one process has it: handlers run in that process, whoever sends."""

    def __init__(self, shared: MemoryHints, loop: SimLoop, process: str) -> None:
        self._shared = shared
        self._loop = loop
        self._process = process

    async def send(self, subject: str, data: bytes) -> None:
        await self._shared.send(subject, data)

    async def listen(self, subject: str, handler: Any) -> Any:
        return await self._shared.listen(subject, self._loop.within(self._process, handler))

    async def close(self) -> None:
        """The shared table stays."""


class World:
    """Ports, processes and what they did."""

    def __init__(
        self, loop: SimLoop, faults: FaultPlan = CALM, *, conductors: int = 1, leases: bool = True
    ) -> None:
        """Make the world.

        Args:
            loop: Time, and who is next.
            faults: How unkind it is.
            conductors: How many there are.
            leases: Whether they share the shards; else each drives all of them, and the fence
                alone keeps them apart (P3).
        """
        self.loop = loop
        self.leases = leases
        self.checkpoints = MemoryCheckpoints(fault=self._checkpoint_fault)
        self.owners = MemoryOwners(fault=self._owners_fault)
        self.faults = faults
        self.clock = SimClock(loop)
        self.log = MemoryLog(self.clock, faults=self)
        self.hints = MemoryHints(faults=self)
        self.objects = MemoryObjects(fault=self._store_fault)
        self.tasklog = MemoryTaskLog()
        self.readmodel = MemoryReadModel()
        self.placement = Placement(shard_count=SHARDS)
        self.results = ResultStore(
            self.objects, self.placement, context_max_bytes=1_500, offload_bytes=None
        )
        self.effects: Counter[str] = Counter()
        self.violations: list[str] = []
        self.queues = Queues()
        self.scope = Scope()
        self._generator = 1
        self._incarnations: Counter[str] = Counter()
        self.processes: dict[str, str] = {}
        self.live: dict[str, Role] = {}
        self.wanted = [
            *(f"conductor/{i}" for i in range(conductors)),
            "worker/0",
            "worker/1",
            "keeper/0",
            "projector/0",
            "materializer/0",
        ]
        self.submit_ports = self._submit("noetl://tenant/default/org/default/client/sim")

    # Faults, as the adapters ask for them

    async def before_append(self, subject: str, record: Record) -> None:
        if self._chance(self.faults.slow_log):
            await self.clock.sleep(self.loop.rng.uniform(0, 2))
        if self._chance(self.faults.lost_publish):
            msg = "lost on the way in"
            raise LogUnavailableError(msg)

    async def after_append(self, subject: str, record: Record, position: int) -> None:
        if self._chance(self.faults.slow_log):
            await self.clock.sleep(self.loop.rng.uniform(0, 2))
        if self._chance(self.faults.lost_ack):
            msg = "ack lost"
            raise LogUnavailableError(msg)

    async def delay_delivery(self) -> None:
        if self._chance(self.faults.slow_delivery):
            await self.clock.sleep(self.loop.rng.uniform(0, 1))

    def deliveries(self, subject: str, data: bytes) -> list[float]:
        if self._chance(self.faults.lost_hint):
            return []
        delay = self.loop.rng.uniform(0, 5) if self._chance(self.faults.late_hint) else 0.0
        return [delay, delay] if self._chance(self.faults.doubled_hint) else [delay]

    async def _store_fault(self, operation: str, key: str) -> None:
        await asyncio.sleep(0)
        if operation in ("put", "get", "info") and self._chance(self.faults.failing_store):
            msg = "simulated"
            raise StoreUnavailableError(msg)

    async def _checkpoint_fault(self, what: str) -> None:
        await asyncio.sleep(0)
        if self._chance(self.faults.slow_log):
            await self.clock.sleep(self.loop.rng.uniform(0, 2))
        if self._chance(self.faults.failing_shards):
            msg = f"simulated {what}"
            raise LogUnavailableError(msg)

    async def _owners_fault(self, what: str) -> None:
        await asyncio.sleep(0)
        if self._chance(self.faults.failing_shards):
            msg = f"simulated {what}"
            raise StoreUnavailableError(msg)

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self.loop.rng.random() < probability

    # Processes

    def start(self, name: str) -> None:
        """Start a new incarnation of a wanted process."""
        self._incarnations[name] += 1
        process = f"{name}#{self._incarnations[name]}"
        self.processes[name] = process
        role = self._build(name, process)
        self.live[name] = role
        self.loop.spawn(process, self._host(name, process, role))

    def start_all(self) -> None:
        for name in self.wanted:
            self.start(name)

    def crash(self, name: str) -> None:
        """Kill -9."""
        self.loop.kill(self.processes[name])
        self.queues.crashed(self.processes[name])
        self.live.pop(name, None)
        if self.loop.rng.random() < 0.5:
            self.notice(name)

    def notice(self, name: str) -> None:
        """Tell the conductors that a process is dead, as a supervisor does (P22); it may err."""
        for role in list(self.live.values()):
            if isinstance(role, Conductor) and isinstance(role._owner, LeasedShards):
                role._owner.gone(name, self.processes[name])

    async def _host(self, name: str, process: str, role: Role) -> None:
        """A role that raises ends its process; its host starts it anew, as Ray would."""
        try:
            await run_role(role, asyncio.Event())
        except Exception as error:
            if not isinstance(error, LogUnavailableError | StoreUnavailableError):
                self.violations.append(f"{process} broke: {error!r}")
        self.loop.kill(process)
        self.queues.crashed(process)
        self.loop.spawn("", self._restart(name))

    async def _restart(self, name: str) -> None:
        await self.clock.sleep(1.0)
        self.start(name)

    def _ids(self) -> SnowflakeIds:
        self._generator += 1
        return SnowflakeIds(self._generator, self.clock)

    def _registry(self, process: str) -> ToolRegistry:
        registry = ToolRegistry()
        for tool in (NoopTool(), PlaybookTool(), EffectTool(self), QueueTool(self, process)):
            registry.register(tool)
        return registry

    def _submit(self, producer: str) -> SubmitPorts:
        return SubmitPorts(
            log=self.log,
            objects=self.objects,
            placement=self.placement,
            mint=self._ids().mint,
            clock=self.clock,
            producer=producer,
        )

    def _build(self, name: str, process: str) -> Role:
        kind, _, number = name.partition("/")
        hints = _RoleHints(self.hints, self.loop, process)
        producer = f"noetl://tenant/default/org/default/{kind}/{number}"
        programs = Programs(self.objects, self.placement, TEMPLATES)
        contexts = ContextStore(self.objects, self.placement)
        if kind == "conductor":
            return self._conductor(name, process, producer, hints, programs, contexts)
        if kind == "worker":
            registry = self._registry(process)
            identity = WorkerIdentity(
                worker_id=name, incarnation=process, producer=producer, place={}, slots=3
            )
            return Worker(
                identity,
                WorkerPorts(
                    log=self.log,
                    hints=hints,
                    tasklog=self.tasklog,
                    results=self.results,
                    programs=programs,
                    contexts=contexts,
                    credentials=MemoryCredentials(),
                    registry=registry,
                    templates=TEMPLATES,
                    ids=self._ids(),
                    clock=self.clock,
                    env={},
                    submit=self._submit(producer),
                ),
                lease_ms=LEASE_MS,
                announce_ms=1000,
                shard_count=SHARDS,
            )
        if kind == "keeper":
            return Keeper(
                log=self.log,
                hints=hints,
                ids=self._ids(),
                clock=self.clock,
                producer=producer,
                lease_ms=LEASE_MS,
            )
        if kind == "projector":
            return Projector(
                self.log,
                self.readmodel,
                self.tasklog,
                self.clock,
                shards=range(SHARDS),
                shard_count=SHARDS,
            )
        return Materializer(self.log, self.results, self.clock, shards=range(SHARDS))

    def _conductor(
        self,
        name: str,
        process: str,
        producer: str,
        hints: _RoleHints,
        programs: Programs,
        contexts: ContextStore,
    ) -> Conductor:
        ports = ConductorPorts(
            log=self.log,
            hints=hints,
            programs=programs,
            contexts=contexts,
            results=self.results,
            ids=self._ids(),
            clock=self.clock,
            env={},
            submit=self._submit(producer),
            frame_defaults={"collection_threshold": 10, "max_attempts": 500},
            checkpoints=self.checkpoints,
        )
        return Conductor(
            ports,
            owner=self._owner(name, process, producer, ports.ids),
            producer=producer,
            near=Place(),
            lease_ms=LEASE_MS,
        )

    def _owner(
        self, name: str, process: str, producer: str, ids: SnowflakeIds
    ) -> LeasedShards | FixedShards:
        if not self.leases:
            return FixedShards(range(SHARDS), process)
        return LeasedShards(
            self.owners,
            self.log,
            ids,
            self.clock,
            name=name,
            incarnation=process,
            producer=producer,
            shard_count=SHARDS,
            lease_s=SHARD_LEASE_S,
            heartbeat_s=SHARD_LEASE_S / 3,
        )

    # What happened outside

    def effect(self, context: ToolContext) -> None:
        """An effect happens now.

        It must not if its completion is already in the log (invariant 2).
        """
        self.effects[context.idempotency_key] += 1
        command_id, *row, task, turn = context.idempotency_key.split("/")
        for subject, positions in self.log._subjects.items():
            if not subject.endswith((f".cmd-{token(command_id)}", f".frm-{token(command_id)}")):
                continue
            for position in positions:
                recorded = self.log._at(position)
                for event in recorded.record.events if recorded else ():
                    if event.event_type in COMMAND_TERMINAL | FRAME_TERMINAL:
                        self.violations.append(f"{command_id} ran again after its completion")
                    elif event.event_type is EventType.FRAME_ROWS_DONE and row:
                        if row[0] in {told["key"] for told in event.payload["rows"]}:
                            self.violations.append(f"row {row} of {command_id} ran again")
                    elif event.event_type in TASK_RECORDS and (
                        (event.payload["task"], str(event.payload["turn"])) == (task, turn)
                    ):
                        self.violations.append(f"{task} of {command_id} ran again after its record")

    async def settle(self, execution_ids: list[int], *, within_s: float) -> bool:
        """Wait until all executions have ended, and all they started, by the log."""
        from noetl_ray.engine.state import TERMINAL_STATUSES
        from tests.simulation.invariants import folded

        deadline = self.loop.time() + within_s
        while self.loop.time() < deadline:
            states = folded(self.log)
            ended = all(state.status in TERMINAL_STATUSES for state in states.values())
            if ended and all(i in states for i in execution_ids):
                return True
            await self.clock.sleep(2.0)
        return False

    async def quiesce(self) -> None:
        """Let the projector catch up."""
        for _ in range(200):
            position = (
                min(
                    [await self.readmodel.position(name) for name in self.readmodel._positions]
                    or [0]
                )
                if hasattr(self.readmodel, "_positions")
                else 0
            )
            if position >= await self.log.last_position():
                return
            await self.clock.sleep(0.5)

    def stop(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(KeyError):
                self.loop.kill(process)
