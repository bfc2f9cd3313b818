"""A host: roles that live and end together, and the wiring of each from settings."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from actors.assembly import HostRuntime, _build
from actors.callbacks import Callbacks
from actors.conductor import Conductor
from actors.keeper import Keeper
from actors.materializer import Materializer
from actors.worker import Worker
from actors.worker_ports import WorkerIdentity
from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import Settings
from noetl_ray.errors import ConfigError, InternalError
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.wal.journal import Journal
from tests.unit.actors.rig import Rig, simulated


class Counter:
    """A role that counts its turns, and breaks where told."""

    def __init__(self, name: str, breaks_at: int = 0) -> None:
        self.name = name
        self.turns = 0
        self.stopped = False
        self._breaks_at = breaks_at

    async def start(self) -> None:
        self.turns = 0

    async def step(self) -> None:
        self.turns += 1
        if self.turns == self._breaks_at:
            msg = f"{self.name} broke"
            raise RuntimeError(msg)
        await asyncio.sleep(1)

    async def stop(self) -> None:
        self.stopped = True

    def summary(self) -> dict[str, Any]:
        return {"turns": self.turns}


def runtime(*roles: Counter, lost: bool = False) -> tuple[HostRuntime, list[str], Any]:
    closed: list[str] = []
    stack = contextlib.AsyncExitStack()
    stack.callback(closed.append, "opened first")
    stack.callback(closed.append, "opened last")
    generator: Any = SimpleNamespace(number=5, lost=lost)
    host = HostRuntime(roles, stack, generator, MemoryHints(), Journal(SystemClock()))
    return host, closed, generator


@simulated
async def test_roles_run_until_told_and_everything_is_closed_in_reverse(rig: Rig) -> None:
    one, two = Counter("one"), Counter("two")
    host, closed, _ = runtime(one, two)
    stopping = asyncio.Event()
    running = asyncio.ensure_future(host.run(stopping))
    await rig.clock.sleep(10.5)
    said = host.summary()
    assert said.pop("journal")["events"] == 0
    assert said == {"one": {"turns": 11}, "two": {"turns": 11}}
    assert host.gateway_url is None
    stopping.set()
    await running
    assert one.stopped
    assert two.stopped
    assert closed == ["opened last", "opened first"]


@simulated
async def test_the_first_failure_ends_all_roles(rig: Rig) -> None:
    one, two = Counter("one"), Counter("two", breaks_at=3)
    host, closed, _ = runtime(one, two)
    with pytest.raises(ExceptionGroup) as failed:
        await host.run(asyncio.Event())
    assert "two broke" in str(failed.value.exceptions[0])
    assert one.stopped
    assert len(closed) == 2


@simulated
async def test_p5_a_host_whose_id_generator_went_to_another_ends(rig: Rig) -> None:
    one = Counter("one")
    host, closed, generator = runtime(one)
    running = asyncio.ensure_future(host.run(asyncio.Event()))
    await rig.clock.sleep(20)
    generator.lost = True
    with pytest.raises(ExceptionGroup) as failed:
        await running
    (error,) = failed.value.exceptions
    assert isinstance(error, InternalError)
    assert "generator 5" in str(error)
    assert closed


async def build(rig: Rig, role: str, host: str = "hot/0", **runtime_: Any) -> Any:
    settings = Settings()
    settings = replace(settings, runtime=replace(settings.runtime, **runtime_))
    ports: Any = SimpleNamespace(
        connection=None,
        log=rig.log,
        hints=rig.hints,
        tasklog=rig.tasklog,
        objects=rig.objects,
        placement=rig.cell,
        results=rig.results,
        contexts=rig.contexts(),
        programs=rig.programs(),
        templates=None,
        credentials=rig.credentials,
        callbacks=Callbacks(),
        ids=rig.ids(),
        clock=rig.clock,
        env={},
        checkpoints=rig.checkpoints,
        owners=rig.owners,
    )
    async with contextlib.AsyncExitStack() as stack:
        return await _build(role, settings, ports, stack, host, "incarnation-1")


@simulated
async def test_conductors_share_the_shards_by_leases(rig: Rig) -> None:
    first = await build(rig, "conductor", shard_count=4, conductors=2)
    assert isinstance(first, Conductor)
    await first.start()
    assert first.summary()["shards"] == [0, 1, 2, 3]
    second = await build(rig, "conductor", "conductor/1", shard_count=4, conductors=2)
    await second.start()
    for _ in range(12):
        await first.step()
        await second.step()
    assert (first.summary()["shards"], second.summary()["shards"]) == ([0, 1], [2, 3])
    assert first.summary()["owner"]["owners"] == {"local/conductor/1": 2, "local/hot/0": 2}
    await first.stop()
    for _ in range(12):
        await second.step()
    assert second.summary()["shards"] == [0, 1, 2, 3]
    await second.stop()


@simulated
async def test_a_worker_is_named_by_its_host_and_placed_by_its_settings(rig: Rig) -> None:
    worker = await build(
        rig, "worker", cluster_id="c9", region="eu", zone="eu-1", node_id="n1", worker_slots=7
    )
    assert isinstance(worker, Worker)
    me: WorkerIdentity = worker._me
    assert (me.worker_id, me.incarnation, me.slots) == ("c9/hot/0", "incarnation-1", 7)
    assert me.place == {"region": "eu", "zone": "eu-1", "node": "n1"}
    assert me.producer.startswith("noetl://tenant/default/")


@simulated
async def test_other_roles_are_built_and_strangers_refused(rig: Rig) -> None:
    assert isinstance(await build(rig, "keeper"), Keeper)
    assert isinstance(await build(rig, "materializer"), Materializer)
    with pytest.raises(ConfigError, match="roles = 'waiter': is not a role"):
        await build(rig, "waiter")
