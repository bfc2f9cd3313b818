"""Wires roles to ports from settings: the one place that knows which adapter serves which port.

A host opens its connections once and its roles share them, all on one event loop. Everything opened
here is closed here, in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from actors.assembly_conductor import build_conductor
from actors.barrier import BarrierBook
from actors.callbacks import Callbacks, callbacks_of
from actors.cluster_ports import remote_python, spark_tasks
from actors.contexts import ContextStore
from actors.gateway import Gateway, open_gateway, submit_ports
from actors.host_log import open_log, tell_journal
from actors.keeper import Keeper
from actors.materializer import Materializer
from actors.messages import GONE, Gone, encode
from actors.programs import Programs
from actors.projector import Projector
from actors.role import Role, run_role
from actors.snapshots import Snapshotter
from actors.tiers import open_tiers, tell_counts
from actors.worker import Worker
from actors.worker_ports import WorkerIdentity, WorkerPorts
from noetl_ray.clock import SystemClock
from noetl_ray.config.environ import environ, node_id
from noetl_ray.credentials.crypto import Sealer, load_key
from noetl_ray.credentials.nats_kv import NatsCredentials
from noetl_ray.dsl.template import Templates
from noetl_ray.errors import ConfigError, InternalError
from noetl_ray.hints.nats import NatsHints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.resource import role_locator
from noetl_ray.payloads.opening import open_objects
from noetl_ray.payloads.port import ObjectStore
from noetl_ray.readmodel.postgres_queries import PostgresQueries
from noetl_ray.readmodel.postgres_store import PostgresProjectionStore
from noetl_ray.replay.archive import Archive
from noetl_ray.results.repairing import Repairer
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.shards.checkpoints_nats import NatsCheckpoints
from noetl_ray.shards.owners_nats import NatsOwners
from noetl_ray.shards.port import CheckpointStore, OwnerTable
from noetl_ray.tools.limiter import limiter_of
from noetl_ray.tools.limiter_nats import NatsLimits
from noetl_ray.tools.python_memory import machine_bytes
from noetl_ray.tools.registry import default_registry
from noetl_ray.wal.connection import Connection, connect
from noetl_ray.wal.generators import GeneratorLease, lease_generator
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.tasklog_jetstream import JetStreamTaskLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.config.settings import Settings
    from noetl_ray.wal.journal import Journal


WATCH_S = 1.0

Telling = Callable[..., Coroutine[Any, Any, None]]
"""Tells others of this host until the event given as ``stopping`` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPorts:
    """What all roles of a host share."""

    connection: Connection
    log: JetStreamLog
    hints: NatsHints
    tasklog: JetStreamTaskLog
    objects: ObjectStore
    placement: Placement
    results: ResultStore
    contexts: ContextStore
    programs: Programs
    templates: Templates
    credentials: NatsCredentials
    callbacks: Callbacks
    ids: SnowflakeIds
    generator: GeneratorLease
    clock: SystemClock
    env: dict[str, str]
    checkpoints: CheckpointStore
    owners: OwnerTable


class HostRuntime:
    """The roles of one host, opened and ready to run."""

    def __init__(
        self,
        roles: Sequence[Role],
        stack: contextlib.AsyncExitStack,
        generator: GeneratorLease,
        hints: NatsHints,
        journal: Journal,
        telling: Sequence[Telling] = (),
    ) -> None:
        self._roles = tuple(roles)
        self._stack = stack
        self._generator = generator
        self._hints = hints
        self._journal = journal
        self._telling = tuple(telling)

    @property
    def gateway_url(self) -> str | None:
        """The address of the gateway, when it runs here and has started."""
        return next((role.url for role in self._roles if isinstance(role, Gateway)), None)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run all roles until told to stop; the first failure ends them all."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_generator(stopping))
                for telling in self._telling:
                    group.create_task(telling(stopping=stopping))
                for role in self._roles:
                    group.create_task(run_role(role, stopping))
        finally:
            await self._stack.aclose()

    async def _watch_generator(self, stopping: asyncio.Event) -> None:
        """End the process when its id generator went to another (P5)."""
        while not stopping.is_set():
            if self._generator.lost:
                msg = f"id generator {self._generator.number} was lost to another process"
                raise InternalError(msg)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    await stopping.wait()

    async def tell_gone(self, host: str, incarnation: str) -> None:
        """Let all hosts know that a process is dead (P22)."""
        await self._hints.send(GONE, encode(Gone(host=host, incarnation=incarnation)))

    def summary(self) -> dict[str, Any]:
        """What every role says of itself."""
        roles = {role.name: role.summary() for role in self._roles}
        return {**roles, "journal": msgspec.structs.asdict(self._journal.gauge())}


async def open_host(
    settings: Settings,
    roles: Sequence[str],
    *,
    host_name: str,
    incarnation: str,
) -> HostRuntime:
    """Open the connections of a host and build its roles.

    Args:
        settings: The whole tree.
        roles: Names of roles this host carries.
        host_name: Stable over restarts, such as ``hot/0``.
        incarnation: New for every process.
    """
    stack = contextlib.AsyncExitStack()
    try:
        ports = await _open_ports(settings, stack, owner=f"{host_name}/{incarnation}")
        made = [
            await _build(role, settings, ports, stack, host_name, incarnation) for role in roles
        ]
    except BaseException:
        await stack.aclose()
        raise
    assert ports.results.tiers is not None
    source, journal = f"{host_name}/{incarnation[:8]}", ports.log.journal
    telling = (
        partial(
            tell_counts, ports.results.tiers, ports.hints, source=source, node=node_id(settings)
        ),
        partial(tell_journal, journal, ports.hints, source=source),
    )
    return HostRuntime(made, stack, ports.generator, ports.hints, journal, telling)


async def _open_ports(
    settings: Settings, stack: contextlib.AsyncExitStack, *, owner: str
) -> SharedPorts:
    store = settings.event_store
    runtime = settings.runtime
    clock = SystemClock()
    connection = await connect(store.url, store.token or None)
    stack.push_async_callback(connection.close)
    log = await open_log(store, connection, clock)
    stack.push_async_callback(log.close)
    generator = await lease_generator(connection, owner)
    stack.push_async_callback(generator.close)
    checkpoints = await NatsCheckpoints.open(connection, durability=store.durability)
    stack.push_async_callback(checkpoints.close)
    hints = NatsHints(connection)
    stack.push_async_callback(hints.close)
    key = load_key(settings.credentials, Path(settings.data_dir))
    objects = open_objects(settings, clock, key)
    stack.push_async_callback(objects.close)
    placement = Placement(
        env=runtime.environment,
        region=runtime.region,
        cell=runtime.cell,
        shard_count=runtime.shard_count,
    )
    results = ResultStore(
        objects,
        placement,
        context_max_bytes=settings.results.context_max_bytes,
        extracted_max_bytes=settings.results.extracted_max_bytes,
        producer_stage=settings.results.producer_stage,
        tiers=open_tiers(settings, clock),
    )
    credentials = await NatsCredentials.open(store.url, store.token or None, Sealer(key))
    stack.push_async_callback(credentials.close)
    templates = Templates()
    everything = environ()
    return SharedPorts(
        connection=connection,
        log=log,
        hints=hints,
        tasklog=await JetStreamTaskLog.open(connection),
        objects=objects,
        placement=placement,
        results=results,
        contexts=ContextStore(objects, placement),
        programs=Programs(objects, placement, templates),
        templates=templates,
        credentials=credentials,
        callbacks=callbacks_of(settings, key),
        ids=SnowflakeIds(generator.number, clock),
        generator=generator,
        clock=clock,
        env={name: everything[name] for name in runtime.allowed_env if name in everything},
        checkpoints=checkpoints,
        owners=NatsOwners(connection),
    )


async def _build(
    role: str,
    settings: Settings,
    ports: SharedPorts,
    stack: contextlib.AsyncExitStack,
    host_name: str,
    incarnation: str,
) -> Role:
    runtime = settings.runtime
    node = node_id(settings)
    producer = role_locator(
        Scope(tenant_id=runtime.tenant_id, organization_id=runtime.organization_id),
        region=runtime.region,
        zone=runtime.zone,
        cluster=runtime.cluster_id,
        node=node,
        role=role,
        instance=f"{host_name}-{incarnation[:8]}",
    )
    match role:
        case "conductor":
            return await build_conductor(
                settings, ports, stack, producer, host_name=host_name, incarnation=incarnation
            )
        case "worker":
            return _worker(settings, ports, stack, host_name, incarnation, producer, node)
        case "keeper":
            return Keeper(
                log=ports.log,
                hints=ports.hints,
                ids=ports.ids,
                clock=ports.clock,
                producer=producer,
                lease_ms=runtime.worker_lease_ms,
                cluster=runtime.cluster_id,
            )
        case "projector":
            return await _projector(settings, ports, stack)
        case "materializer":
            return Materializer(
                ports.log,
                ports.results,
                ports.clock,
                shards=range(runtime.shard_count),
                enabled=settings.results.materializer_enabled,
                repairer=(
                    Repairer(ports.log, ports.results) if settings.results.dr_enabled else None
                ),
            )
        case "gateway":
            projections = settings.projection_stores
            queries = await PostgresQueries.open(projections.dsn, pool_max=projections.pool_max)
            stack.push_async_callback(queries.close)
            states = await PostgresProjectionStore.open(projections.dsn, pool_max=1)
            stack.push_async_callback(states.close)
            return open_gateway(settings, ports, queries, producer, states)
        case _:
            key = "roles"
            raise ConfigError(key, role, "is not a role")


async def _projector(
    settings: Settings, ports: SharedPorts, stack: contextlib.AsyncExitStack
) -> Projector:
    projections = settings.projection_stores
    store = await PostgresProjectionStore.open(projections.dsn, pool_max=projections.pool_max)
    stack.push_async_callback(store.close)
    archive = Archive(ports.objects, ports.placement)
    every = settings.snapshots.interval_events
    snapshots = Snapshotter(ports.log, store, ports.clock, every=every, archive=archive)
    stack.push_async_callback(snapshots.stop)
    return Projector(
        ports.log,
        store,
        ports.tasklog,
        ports.clock,
        hints=ports.hints,
        shards=range(settings.runtime.shard_count),
        shard_count=settings.runtime.shard_count,
        batch_size=projections.batch_size,
        batch_window_ms=projections.batch_window_ms,
        archive=archive,
        on_kept=snapshots.note,
    )


def _worker(
    settings: Settings,
    ports: SharedPorts,
    stack: contextlib.AsyncExitStack,
    host_name: str,
    incarnation: str,
    producer: str,
    node: str,
) -> Worker:
    runtime = settings.runtime
    files = Path(settings.data_dir).resolve() / "files"
    files.mkdir(parents=True, exist_ok=True)
    memory_bytes = runtime.python_memory_mb << 20 or machine_bytes() // 2
    registry = default_registry(
        python_processes=runtime.python_processes,
        base_env=environ(),
        limiter=limiter_of(
            settings.http.limits,
            NatsLimits(ports.connection),
            owner=f"{host_name}/{incarnation}",
            clock=ports.clock,
            wait_max_s=settings.http.limit_wait_s,
        ),
        script_root=files,
        data_root=files,
        python_memory_bytes=memory_bytes,
        remote=remote_python(settings, memory_bytes),
        spark=spark_tasks(settings),
    )
    stack.push_async_callback(registry.close)
    identity = WorkerIdentity(
        worker_id=f"{runtime.cluster_id}/{host_name}",
        incarnation=incarnation,
        producer=producer,
        place={"region": runtime.region, "zone": runtime.zone, "node": node},
        slots=runtime.worker_slots,
    )
    return Worker(
        identity,
        WorkerPorts(
            log=ports.log,
            hints=ports.hints,
            tasklog=ports.tasklog,
            results=ports.results,
            programs=ports.programs,
            contexts=ports.contexts,
            credentials=ports.credentials,
            registry=registry,
            templates=ports.templates,
            ids=ports.ids,
            clock=ports.clock,
            env=ports.env,
            submit=submit_ports(ports, producer),
            barriers=BarrierBook(on=runtime.side_effect_barrier),
            callbacks=ports.callbacks,
        ),
        lease_ms=runtime.worker_lease_ms,
        announce_ms=runtime.announce_ms,
        shard_count=runtime.shard_count,
    )
