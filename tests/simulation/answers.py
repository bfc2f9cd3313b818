"""The world outside: whoever was asked for an answer gives it, some time later, until it is taken.

And the owner of executions, who pauses them and lets them go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ConflictError, NoetlError, NotFoundError
from noetl_ray.submit import pause_execution, resume_execution
from noetl_ray.submit.callbacks import answer_callback
from noetl_ray.submit.tokens import token_digest

if TYPE_CHECKING:
    from tests.simulation.world import World

ANSWER_S_MAX = 5.0
TRIES_MAX = 500


async def give_answer(world: World, token: str, answer: Any) -> None:
    """Answer, again and again while the log is out of reach; too late is too late."""
    await world.clock.sleep(world.loop.rng.uniform(0, ANSWER_S_MAX))
    for _ in range(TRIES_MAX):
        try:
            target = world.tokens.read(token)
            await answer_callback(world.submit_ports, target, token_digest(token), answer)
        except (ConflictError, NotFoundError):
            return
        except NoetlError:
            await world.clock.sleep(0.5)
        else:
            if world.loop.rng.random() < 0.5:
                return
            # Somebody presses the button twice.
            await world.clock.sleep(world.loop.rng.uniform(0, 2))


async def pause_and_resume(world: World, execution_id: int) -> None:
    """Pause an execution for a while; what was asked is asked again until it is heard."""
    if await _ask(world, pause_execution, execution_id, "a look"):
        await world.clock.sleep(world.loop.rng.uniform(0.5, 8))
        await _ask(world, resume_execution, execution_id)


async def _ask(world: World, wish: Any, execution_id: int, *more: str) -> bool:
    for _ in range(TRIES_MAX):
        try:
            await wish(world.submit_ports, world.scope, execution_id, *more)
        except (ConflictError, NotFoundError):
            return False
        except NoetlError:
            await world.clock.sleep(0.5)
        else:
            return True
    return False
