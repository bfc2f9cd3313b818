"""One seed: random playbooks, a calm run for reference, a rough run with crashes.

And the invariants.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from noetl_ray.errors import LogUnavailableError, NoetlError, StoreUnavailableError
from noetl_ray.submit import Submission, cancel_execution, register_playbook, submit_execution
from noetl_ray.testing.simloop import SimLoop, run_simulated
from tests.simulation.answers import pause_and_resume
from tests.simulation.derived import check_read_model
from tests.simulation.faults import CALM, ROUGH
from tests.simulation.generate import CHILDREN, random_children, random_playbook
from tests.simulation.invariants import objects_said, records, trace
from tests.simulation.shards import check_shards
from tests.simulation.torment import torment
from tests.simulation.world import LOOK_S, World

ROUGH_S = 15.0
STRIKE_EVERY_S = 0.8
SUBMITTED_WITHIN_S = 3.0
LIMIT_S = 4_000.0
AFTER_S = 6.0
"""How long everything is watched after its end: hints are up to five seconds late."""
CANCELLED = 0.08
PAUSED = 0.15
TOLD_TWICE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What somebody wants: a playbook, perhaps under a key and asked twice, perhaps cancelled."""

    source: str
    key: str | None = None
    cancel_after_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Run:
    """What came of a run."""

    wrong: list[str]
    traces: list[dict[str, object] | None]
    digest: str = ""
    """Over every stored record: the same seed must give the same bytes."""
    virtual_s: float = 0.0
    steps: int = 0
    ids: list[int] = field(default_factory=list)


def orders_of(rng: random.Random) -> tuple[list[Order], list[str]]:
    """One to three playbooks and what is done with them, and playbooks that the first calls."""
    count = rng.randint(1, 3)
    children = random_children(rng) if rng.random() < 0.35 else []
    calls = CHILDREN if children else ()
    orders = [
        Order(
            source=random_playbook(rng, calls=() if index else calls),
            key=f"key-{index}" if rng.random() < TOLD_TWICE else None,
            cancel_after_s=rng.uniform(0, 10) if rng.random() < CANCELLED else None,
        )
        for index in range(count)
    ]
    return orders, children


def run_seed(seed: int) -> list[str]:
    """Everything that went wrong under a seed; empty when all held."""
    orders, children = orders_of(random.Random(seed))
    return compare(seed, orders, children)


def compare(seed: int, orders: list[Order], children: Sequence[str] = ()) -> list[str]:
    """What went wrong in a calm and in a rough run, and how their outcomes differ."""
    calm: Run = run_simulated(seed, lambda loop: run_orders(loop, orders, children, rough=False))
    if calm.wrong:
        return [f"calm: {each}" for each in calm.wrong]
    rough: Run = run_simulated(seed, lambda loop: run_orders(loop, orders, children, rough=True))
    wrong = [f"rough: {each}" for each in rough.wrong]
    for index, (order, one, two) in enumerate(zip(orders, calm.traces, rough.traces, strict=True)):
        if order.cancel_after_s is not None or one is None or two is None:
            continue
        if one["status"] != two["status"]:
            wrong.append(f"playbook {index}: calm {one['status']} rough {two['status']}")
        elif one["status"] == "COMPLETED":
            apart = {key: (one[key], two[key]) for key in one if one[key] != two[key]}
            wrong += [f"playbook {index}, {key}: {_apart(*pair)}" for key, pair in apart.items()]
    return wrong


async def run_orders(
    loop: SimLoop, orders: list[Order], children: Sequence[str] = (), *, rough: bool
) -> Run:
    """Run playbooks to their end in a world of their own and look at what it has come to."""
    # Half of the rough runs are without leases: the fence alone keeps two conductors apart (P3).
    leases = not rough or loop.rng.random() < 0.5
    world = World(loop, conductors=2 if rough else 1, leases=leases)
    if not rough:
        # What only derives from the log is held against it in the rough run.
        world.wanted = ["conductor/0", "worker/0", "worker/1", "keeper/0"]
    world.start_all()
    await world.clock.sleep(0.5)
    for child in children:
        await register_playbook(world.submit_ports, world.scope, child)
    if rough:
        world.faults = ROUGH
        striking = loop.spawn("", torment(world, ROUGH_S, STRIKE_EVERY_S, lambda: over))
    over = False
    ids = list(await asyncio.gather(*(_submit(world, order, rough=rough) for order in orders)))
    if rough:
        while not striking.done():
            over = world.ledger.have_ended(ids)
            await world.clock.sleep(LOOK_S)
        world.faults = CALM
    ended = await world.settle(ids, within_s=LIMIT_S)
    wrong = list(world.violations)
    states = world.ledger.states
    if ended:
        await asyncio.gather(*world.trouble)
        await world.clock.sleep(AFTER_S if rough else 1.0)
        wrong = [*world.violations, *world.ledger.at_end(), *check_shards(world)]
        if rough:
            wrong += await check_read_model(world, [*states])
    elif not wrong:
        wrong.append(f"not ended: {[(i, states[i].status if i in states else None) for i in ids]}")
    world.stop()
    return Run(
        wrong=wrong,
        traces=[_trace(world, i) if i in states else None for i in ids],
        digest=_digest(world),
        virtual_s=loop.time(),
        steps=loop.steps,
        ids=ids,
    )


async def _submit(world: World, order: Order, *, rough: bool) -> int:
    """Ask for an execution as a client does; one with a key may be asked for twice at once."""
    await world.clock.sleep(world.loop.rng.uniform(0, SUBMITTED_WITHIN_S))
    asked = Submission(source=order.source, idempotency_key=order.key)
    if rough and order.key:
        one, two = await asyncio.gather(_ask(world, asked), _ask(world, asked))
        if one != two:
            world.violations.append(f"key {order.key} made {one} and {two}")
    else:
        one = await _ask(world, asked)
    if rough and world.loop.rng.random() < PAUSED:
        world.trouble.append(world.loop.spawn("", pause_and_resume(world, one)))
    if rough and order.cancel_after_s is not None:
        world.trouble.append(world.loop.spawn("", _cancel(world, one, order.cancel_after_s)))
    return one


async def _ask(world: World, asked: Submission) -> int:
    while True:
        try:
            done = await submit_execution(world.submit_ports, world.scope, "default", asked)
        except (LogUnavailableError, StoreUnavailableError):
            # Whoever gave no key may have made one execution more than it knows of.
            await world.clock.sleep(0.5)
        else:
            return done.execution_id


async def _cancel(world: World, execution_id: int, after_s: float) -> None:
    await world.clock.sleep(after_s)
    for _ in range(5):
        try:
            await cancel_execution(world.submit_ports, world.scope, execution_id, "no longer")
        except (LogUnavailableError, StoreUnavailableError):
            await world.clock.sleep(0.5)
        except NoetlError:
            return
        else:
            return


def _digest(world: World) -> str:
    seen = hashlib.sha256()
    for each in records(world.log):
        seen.update(f"{each.position} {each.subject} {each.time_ms}".encode())
        for event in each.record.events:
            seen.update(event.envelope_checksum.encode())
    return seen.hexdigest()


def _trace(world: World, execution_id: int) -> dict[str, object]:
    """A run's trace, what it said about business objects, and the same of all it called."""
    states = world.ledger.states
    said = sorted(
        (row.step, row.visit, row.task, row.object_id, row.status)
        for row in objects_said(world.log)
        if row.execution_id == execution_id
    )
    called = [i for i, other in states.items() if other.parent_execution_id == execution_id]
    below = sorted((_trace(world, child) for child in called), key=repr)
    return {**trace(states[execution_id]), "objects": said, "children": below}


def _apart(calm: object, rough: object) -> str:
    """Where two parts of a trace differ; only that of mappings and lists."""
    if isinstance(calm, dict) and isinstance(rough, dict):
        keys = [key for key in calm | rough if calm.get(key) != rough.get(key)]
        return "; ".join(f"{key}: calm {calm.get(key)} rough {rough.get(key)}" for key in keys)
    if isinstance(calm, list) and isinstance(rough, list):
        gone, new = list(calm), []
        for each in rough:
            if each in gone:
                gone.remove(each)
            else:
                new.append(each)
        return f"only calm {gone}, only rough {new}"
    return f"calm {calm} rough {rough}"
