"""The whole runtime in one process.

Memory adapters, virtual time, processes that die and come back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from actors.conductor import Conductor
from actors.ownership import LeasedShards
from actors.role import Role, run_role
from noetl_ray.errors import InternalError, LogUnavailableError, StoreUnavailableError
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.shards.memory import MemoryCheckpoints, MemoryOwners
from noetl_ray.submit import SubmitPorts
from noetl_ray.submit.tokens import CallbackTokens
from noetl_ray.testing.simloop import SimClock, SimLoop
from noetl_ray.tools.port import ToolContext
from noetl_ray.wal.port import Log
from noetl_ray.wal.tasklog_memory import MemoryTaskLog
from tests.simulation.faults import CALM, FaultPlan, Faults
from tests.simulation.ledger import Ledger
from tests.simulation.queue import Queues
from tests.simulation.roles import BUILDERS, LEASE_MS, SHARDS, Mine
from tests.simulation.wires import ProcessHints, ProcessLog, SimLog

LOOK_S = 0.5


__all__ = ["LEASE_MS", "LOOK_S", "SHARDS", "World"]


class World:
    """Ports, processes and what they did."""

    def __init__(
        self, loop: SimLoop, plan: FaultPlan = CALM, *, conductors: int = 1, leases: bool = True
    ) -> None:
        """Make the world.

        Args:
            loop: Time, and who is next.
            plan: How unkind it is.
            conductors: How many there are.
            leases: Whether they share the shards; else each drives all of them, and the fence
                alone keeps them apart (P3).
        """
        self.loop = loop
        self.leases = leases
        self.clock = SimClock(loop)
        self.unkind = Faults(loop, plan)
        self.ledger = Ledger()
        self.violations = self.ledger.violations
        self.log = SimLog(self.clock, self.unkind, self.ledger.stored)
        self.hints = MemoryHints(faults=self.unkind)
        self.checkpoints = MemoryCheckpoints(fault=self.unkind.of_checkpoints)
        self.owners = MemoryOwners(fault=self.unkind.of_owners)
        self.objects = MemoryObjects(fault=self.unkind.of_store)
        self.tasklog = MemoryTaskLog()
        self.readmodel = MemoryReadModel()
        self.placement = Placement(shard_count=SHARDS)
        self.results = ResultStore(
            self.objects, self.placement, context_max_bytes=1_500, offload_bytes=None
        )
        self.queues = Queues()
        self.strict_barrier = False
        """Whether an effect whose result is stored already is wrong: so when stores never fail and
        no two holders run at once."""
        self.scope = Scope()
        self.tokens = CallbackTokens(b"s" * 32)
        self._generator = 1
        self._incarnations: Counter[str] = Counter()
        self.processes: dict[str, str] = {}
        self._wires: dict[str, tuple[ProcessLog, ProcessHints]] = {}
        self.doubled: set[str] = set()
        """Names of which two processes lived at once; one may end over it."""
        self.live: dict[str, Role] = {}
        self.trouble: list[asyncio.Task[None]] = []
        """What is still to happen to processes: deaths announced, zombies that sleep."""
        self.wanted = [
            *(f"conductor/{i}" for i in range(conductors)),
            "worker/0",
            "worker/1",
            "keeper/0",
            "projector/0",
            "materializer/0",
        ]
        producer = "noetl://tenant/default/org/default/client/sim"
        self.submit_ports = self.submit_as(producer, self.log, self.clock)

    @property
    def faults(self) -> FaultPlan:
        """How unkind the world is now."""
        return self.unkind.plan

    @faults.setter
    def faults(self, plan: FaultPlan) -> None:
        self.unkind.plan = plan

    @property
    def effects(self) -> Counter[str]:
        """How often each effect has happened."""
        return self.ledger.effects

    def submit_as(self, producer: str, log: Log, clock: SimClock) -> SubmitPorts:
        """What it takes to ask for executions."""
        return SubmitPorts(
            log=log,
            objects=self.objects,
            placement=self.placement,
            mint=self.ids(clock).mint,
            clock=clock,
            producer=producer,
        )

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
        self.end(self.processes[name])
        self.live.pop(name, None)
        if self.loop.rng.random() < 0.5:
            self.notice(name)

    def notice(self, name: str) -> None:
        """Tell the conductors that a process is dead, as a supervisor does (P22); it may err."""
        for role in list(self.live.values()):
            if isinstance(role, Conductor) and isinstance(role._owner, LeasedShards):
                role._owner.gone(name, self.processes[name])

    def crash_at(self, name: str, steps: int, then: Callable[[], None]) -> None:
        """Kill a process once it has run so many more steps, whatever it is at by then."""
        process = self.processes[name]

        def strike() -> None:
            if self.processes[name] == process and name in self.live:
                self.crash(name)
                then()

        self.loop.doom(process, steps, strike)

    def lose_read_model(self) -> None:
        """Postgres comes back empty; whoever was connected is thrown out."""
        self.readmodel = MemoryReadModel()
        for name in self.wanted:
            if name.startswith("projector/") and name in self.live:
                self.crash(name)
                self.start(name)

    def end(self, process: str) -> None:
        """Whatever runs in this process is over, and others see its connections end."""
        self.loop.kill(process)
        self.queues.crashed(process)
        for wire in self._wires.pop(process, ()):
            wire.vanish()

    async def _host(self, name: str, process: str, role: Role) -> None:
        """A role that raises ends its process; its host starts it anew, as Ray would."""
        try:
            await run_role(role, asyncio.Event())
        except Exception as error:
            replaced = isinstance(error, InternalError) and name in self.doubled
            if not replaced and not isinstance(error, LogUnavailableError | StoreUnavailableError):
                self.violations.append(f"{process} broke: {error!r}")
        self.end(process)
        if self.processes[name] == process:
            self.live.pop(name, None)
            self.loop.spawn("", self._restart(name))

    async def _restart(self, name: str) -> None:
        process = self.processes[name]
        await self.clock.sleep(1.0)
        if self.processes[name] == process:
            self.start(name)

    def ids(self, clock: SimClock) -> SnowflakeIds:
        """Ids of a generator number nobody else has."""
        self._generator += 1
        return SnowflakeIds(self._generator, clock)

    def _build(self, name: str, process: str) -> Role:
        wires = ProcessLog(self.log, self.unkind), ProcessHints(self.hints, self.loop, process)
        self._wires[process] = wires
        kind, _, number = name.partition("/")
        mine = Mine(
            name=name,
            process=process,
            log=wires[0],
            hints=wires[1],
            clock=SimClock(self.loop, self.unkind.skew_ms()),
            producer=f"noetl://tenant/default/org/default/{kind}/{number}",
        )
        return BUILDERS[kind](self, mine)

    # What has come of it

    def effect(self, context: ToolContext) -> None:
        """An effect happens now."""
        self.ledger.effect(context.idempotency_key)
        if self.strict_barrier:
            command_id = context.idempotency_key.split("/")[0]
            execution, _, visit = command_id.rpartition("-")
            mark = f"execution={execution.split('-')[0]}/results/{context.step}/v{visit}."
            if any(mark in key for key in self.objects._objects):
                self.violations.append(f"invariant 2: {command_id} ran though its result is stored")

    async def settle(self, execution_ids: list[int], *, within_s: float) -> bool:
        """Wait until all executions, and all they started, have ended, or something is wrong."""
        deadline = self.loop.time() + within_s
        while self.loop.time() < deadline:
            if self.ledger.have_ended([*execution_ids, *self.ledger.states]):
                return True
            if self.violations:
                return False
            await self.clock.sleep(LOOK_S)
        return False

    def stop(self) -> None:
        """Nothing runs any more."""
        for process in self.processes.values():
            self.loop.kill(process)
