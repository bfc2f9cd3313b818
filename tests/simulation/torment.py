"""What happens to processes while a world is rough: deaths, pauses, doubles, losses of stores."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.shards import check_shards

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import World

STEPS_MAX = 120
"""Within how many of its own steps a process dies that is struck at any await."""
PAUSES_S = (0.5, 3.0, 8.0)
"""Shorter than a lease, about one, longer."""


async def torment(
    world: World, for_s: float, every_s: float, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Do something terrible at random moments for a while, or until nothing is left to disturb.

    What was begun (a new process in a dead one's place, a zombie) is in ``world.trouble``.
    """
    rng = world.loop.rng
    until = world.loop.time() + for_s
    while world.loop.time() < until and not world.violations and not is_over():
        await world.clock.sleep(rng.expovariate(1 / every_s))
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
        chance = rng.random()
        if chance < 0.4:
            world.crash_at(name, rng.randint(1, STEPS_MAX), lambda n=name: back(world, n))
        elif chance < 0.6:
            world.crash(name)
            back(world, name)
        elif chance < 0.8:
            await _pause(world, name, rng)
        # A worker taken for dead that lives may call until its lease ends: see guarantees.
        elif chance < 0.9 and not name.startswith("worker/"):
            world.trouble.append(world.loop.spawn("", _zombie(world, name, rng)))
        elif chance < 0.95:
            world.lose_read_model()
        else:
            for each in list(world.live):
                world.crash(each)
                back(world, each)


def back(world: World, name: str) -> None:
    """A new process in its place after a while, unless somebody was quicker."""

    async def later(process: str, after_s: float) -> None:
        await world.clock.sleep(after_s)
        if world.processes[name] == process:
            world.start(name)

    after_s = world.loop.rng.uniform(0.05, 4.0)
    world.trouble.append(world.loop.spawn("", later(world.processes[name], after_s)))


async def _pause(world: World, name: str, rng: random.Random) -> None:
    """Stopped as by SIGSTOP; nobody puts another in its place."""
    process = world.processes[name]
    world.loop.freeze(process)
    await world.clock.sleep(rng.choice(PAUSES_S))
    world.loop.thaw(process)


async def _zombie(world: World, name: str, rng: random.Random) -> None:
    """Another takes its place while it is frozen; it wakes late, acts on, and dies at last."""
    process = world.processes[name]
    world.loop.freeze(process)
    await world.clock.sleep(rng.uniform(0.5, 3))
    if world.processes[name] == process and name in world.live:
        world.doubled.add(name)
        world.start(name)
    await world.clock.sleep(rng.choice(PAUSES_S))
    world.loop.thaw(process)
    await world.clock.sleep(rng.uniform(0.2, 4))
    if world.processes[name] != process:
        world.end(process)
