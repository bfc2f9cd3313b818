"""How each role of the runtime is built in a simulated process: one function a role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.callbacks import Callbacks
from actors.conductor import Conductor
from actors.contexts import ContextStore
from actors.deciding import ConductorPorts
from actors.keeper import Keeper
from actors.materializer import Materializer
from actors.ownership import LeasedShards
from actors.programs import Programs
from actors.projector import Projector
from actors.role import Role
from actors.shard_owner import FixedShards
from actors.worker import Worker
from actors.worker_ports import WorkerIdentity, WorkerPorts
from noetl_ray.credentials.memory import MemoryCredentials
from noetl_ray.dsl.template import Templates
from noetl_ray.tools.callback import CallbackTool
from noetl_ray.tools.noop import NoopTool
from noetl_ray.tools.playbook import PlaybookTool
from noetl_ray.tools.registry import ToolRegistry
from noetl_ray.tools.wait import WaitTool
from placement.offer import Place
from tests.simulation.outside import EffectTool
from tests.simulation.queue import QueueTool
from tests.simulation.wires import ProcessHints, ProcessLog

if TYPE_CHECKING:
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.testing.simloop import SimClock
    from tests.simulation.world import World

SHARDS = 4
LEASE_MS = 5_000
SHARD_LEASE_S = 4.0
PROJECTOR_WINDOW_MS = 250
TEMPLATES = Templates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """What one process has for itself."""

    name: str
    process: str
    log: ProcessLog
    hints: ProcessHints
    clock: SimClock
    producer: str


def conductor(world: World, mine: Mine) -> Role:
    """A conductor that shares the shards by leases, or drives all of them beside the others."""
    ports = ConductorPorts(
        log=mine.log,
        hints=mine.hints,
        programs=Programs(world.objects, world.placement, TEMPLATES),
        contexts=ContextStore(world.objects, world.placement),
        results=world.results,
        ids=world.ids(mine.clock),
        clock=mine.clock,
        env={},
        submit=world.submit_as(mine.producer, mine.log, mine.clock),
        frame_defaults={"collection_threshold": 10, "max_attempts": 500},
        checkpoints=world.checkpoints,
    )
    return Conductor(
        ports,
        owner=_owner(world, mine, ports.ids),
        producer=mine.producer,
        near=Place(),
        lease_ms=LEASE_MS,
    )


def _owner(world: World, mine: Mine, ids: SnowflakeIds) -> LeasedShards | FixedShards:
    if not world.leases:
        # The fence alone must keep them apart (P3).
        return FixedShards(range(SHARDS), mine.process)
    return LeasedShards(
        world.owners,
        mine.log,
        ids,
        mine.clock,
        name=mine.name,
        incarnation=mine.process,
        producer=mine.producer,
        shard_count=SHARDS,
        lease_s=SHARD_LEASE_S,
        heartbeat_s=SHARD_LEASE_S / 3,
    )


def worker(world: World, mine: Mine) -> Role:
    """A worker whose tools reach the simulated world outside."""
    registry = ToolRegistry()
    plain = (NoopTool(), PlaybookTool(), WaitTool(), CallbackTool())
    for tool in (*plain, EffectTool(world), QueueTool(world, mine.process)):
        registry.register(tool)
    return Worker(
        WorkerIdentity(
            worker_id=mine.name,
            incarnation=mine.process,
            producer=mine.producer,
            place={},
            slots=3,
        ),
        WorkerPorts(
            log=mine.log,
            hints=mine.hints,
            tasklog=world.tasklog,
            results=world.results,
            programs=Programs(world.objects, world.placement, TEMPLATES),
            contexts=ContextStore(world.objects, world.placement),
            credentials=MemoryCredentials(),
            registry=registry,
            templates=TEMPLATES,
            ids=world.ids(mine.clock),
            clock=mine.clock,
            env={},
            submit=world.submit_as(mine.producer, mine.log, mine.clock),
            callbacks=Callbacks(tokens=world.tokens),
        ),
        lease_ms=LEASE_MS,
        announce_ms=1000,
        shard_count=SHARDS,
    )


def keeper(world: World, mine: Mine) -> Role:
    """The one that notices silence."""
    return Keeper(
        log=mine.log,
        hints=mine.hints,
        ids=world.ids(mine.clock),
        clock=mine.clock,
        producer=mine.producer,
        lease_ms=LEASE_MS,
    )


def projector(world: World, mine: Mine) -> Role:
    """The one that writes the read model the world has now."""
    return Projector(
        mine.log,
        world.readmodel,
        world.tasklog,
        mine.clock,
        batch_window_ms=PROJECTOR_WINDOW_MS,
        shards=range(SHARDS),
        shard_count=SHARDS,
    )


def materializer(world: World, mine: Mine) -> Role:
    """The one that guarantees result objects."""
    return Materializer(mine.log, world.results, mine.clock, shards=range(SHARDS))


BUILDERS: dict[str, Callable[[World, Mine], Role]] = {
    "conductor": conductor,
    "worker": worker,
    "keeper": keeper,
    "projector": projector,
    "materializer": materializer,
}
"""By the part of a process's name before the slash."""
