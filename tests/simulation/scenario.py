"""One seed: random playbooks, a calm run for reference, a rough run with crashes.

And the invariants.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from noetl_ray.engine.state import ExecutionState
from noetl_ray.readmodel.objects import newest_objects
from noetl_ray.readmodel.records import BusinessObjectRow
from noetl_ray.replay.reading import read_execution
from noetl_ray.replay.surfaces import first_difference, rows_of_records, surfaces_of
from noetl_ray.submit import Submission, register_playbook, submit_execution
from noetl_ray.testing.simloop import SimLoop, run_simulated
from tests.simulation.generate import CHILDREN, random_children, random_playbook
from tests.simulation.invariants import check_log, folded, objects_said, records, trace
from tests.simulation.shards import check_checkpoints, check_epochs
from tests.simulation.world import CALM, ROUGH, SHARDS, FaultPlan, World

ROUGH_S = 25.0
CALM_LIMIT_S = 600.0


def run_seed(seed: int) -> list[str]:
    """Everything that went wrong under a seed; empty when all held."""
    rng = random.Random(seed)
    books = [random_playbook(rng) for _ in range(rng.randint(1, 3))]
    children: list[str] = []
    if rng.random() < 0.35:
        children = random_children(rng)
        books[0] = random_playbook(rng, calls=CHILDREN)
    calm = run_simulated(seed, lambda loop: _run(loop, books, CALM, False, children))
    rough = run_simulated(seed, lambda loop: _run(loop, books, ROUGH, True, children))
    wrong = [f"calm: {w}" for w in calm["wrong"]] + [f"rough: {w}" for w in rough["wrong"]]
    for index, (one, two) in enumerate(zip(calm["traces"], rough["traces"], strict=False)):
        if one["status"] == "COMPLETED" and one != two:
            wrong.append(f"playbook {index}: calm {one} rough {two}")
        if one["status"] != two["status"]:
            wrong.append(f"playbook {index}: calm {one['status']} rough {two['status']}")
    return wrong


async def _run(
    loop: SimLoop,
    books: list[str],
    faults: FaultPlan,
    crashes: bool,
    children: Sequence[str] = (),
) -> dict[str, Any]:
    # Half of the rough runs are without leases: the fence alone keeps two conductors apart (P3).
    leases = not crashes or loop.rng.random() < 0.5
    world = World(loop, CALM, conductors=2 if crashes else 1, leases=leases)
    world.start_all()
    await world.clock.sleep(0.5)
    for child in children:
        await register_playbook(world.submit_ports, world.scope, child)
    ids: list[int] = []
    for book in books:
        done = await submit_execution(
            world.submit_ports, world.scope, "default", Submission(source=book)
        )
        ids.append(done.execution_id)
    if crashes:
        world.faults = faults
        await _torment(world)
        world.faults = CALM
    ended = await world.settle(ids, within_s=CALM_LIMIT_S)
    wrong = list(world.violations)
    if not ended:
        states = folded(world.log)
        wrong.append(f"not ended: {[(i, states[i].status if i in states else None) for i in ids]}")
    else:
        await world.clock.sleep(10.0)
        wrong += check_log(world.log)
        wrong += check_shards(world)
        wrong += await _check_read_model(world, [*folded(world.log)])
    states = folded(world.log)
    world.stop()
    return {
        "wrong": wrong,
        "traces": [_trace(world, states, i) for i in ids if i in states],
        "steps": loop.steps,
    }


def _trace(world: World, states: dict[int, ExecutionState], execution_id: int) -> dict[str, object]:
    """A run's trace, what it said about business objects, and the same of all it called."""
    state = states[execution_id]
    said = sorted(
        (row.step, row.visit, row.task, row.object_id, row.status)
        for row in objects_said(world.log)
        if row.execution_id == state.execution_id
    )
    called = [i for i, other in states.items() if other.parent_execution_id == execution_id]
    below = sorted((_trace(world, states, child) for child in called), key=repr)
    return {**trace(state), "objects": said, "children": below}


async def _torment(world: World) -> None:
    """Kill or freeze processes at random moments for a while."""
    rng = world.loop.rng
    until = world.loop.time() + ROUGH_S
    while world.loop.time() < until:
        await world.clock.sleep(rng.expovariate(0.6))
        world.violations += check_shards(world)
        if rng.random() < 0.05:
            # Derived stores may go at any moment (PRIN-2).
            world.owners.wipe()
            world.checkpoints.wipe()
        name = rng.choice(world.wanted)
        if name not in world.live:
            continue
        if rng.random() < 0.05:
            world.notice(name)
        if rng.random() < 0.25:
            process = world.processes[name]
            world.loop.freeze(process)
            await world.clock.sleep(rng.choice([0.5, 3.0, 12.0]))
            world.loop.thaw(process)
        else:
            world.crash(name)
            await world.clock.sleep(rng.uniform(0.05, 4.0))
            world.start(name)


def check_shards(world: World) -> list[str]:
    """Checkpoints and leases, as they are now."""
    return check_checkpoints(world.checkpoints, records(world.log), range(SHARDS)) + check_epochs(
        records(world.log)
    )


async def _check_read_model(world: World, ids: list[int]) -> list[str]:
    """The projector's rows equal a fold of the log."""
    wrong: list[str] = []
    states = folded(world.log)
    for execution_id in ids:
        row = await world.readmodel.execution(world.scope, execution_id)
        state = states[execution_id]
        if row is None or row.status != state.status or row.event_count != state.event_count:
            wrong.append(f"read model of {execution_id}: {row} but the log says {state.status}")
        live = await world.readmodel.whole_execution(world.scope, execution_id)
        again = rows_of_records(await read_execution(world.log, world.scope, execution_id))
        if live is None or again is None:
            wrong.append(f"read model of {execution_id} has no state")
        else:
            apart = first_difference(surfaces_of(again), surfaces_of(live))
            wrong += [f"invariant 1, read model of {execution_id}: {apart}"] if apart else []
    said = objects_said(world.log)
    kept = await world.readmodel.business_object_history(world.scope, limit=10_000)
    if sorted(kept, key=_version) != sorted(said, key=_version):
        wrong.append(f"read model has {len(kept)} statements about objects, the log {len(said)}")
    now = await world.readmodel.business_objects(world.scope, limit=10_000)
    if sorted(now, key=_version) != sorted(newest_objects(said), key=_version):
        wrong.append("read model's objects are not the newest statements")
    return wrong


def _version(row: BusinessObjectRow) -> int:
    return row.version
