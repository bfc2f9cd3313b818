"""What every role is: something with a start, one turn of work, and an end.

A role's loop is a state and one ``step()``. ``run_role`` repeats it until the role is told to stop;
an error leaves the loop, so that whoever hosts the role can let the process die and start anew from
the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio


class Role(Protocol):
    """One of conductor, worker, projector, materializer, keeper, gateway."""

    name: str

    async def start(self) -> None:
        """Open what it needs and catch up with the log."""
        ...

    async def step(self) -> None:
        """One turn; waits a bounded time when there is nothing to do."""
        ...

    async def stop(self) -> None:
        """Let go in order. Never needed for correctness."""
        ...

    def summary(self) -> dict[str, Any]:
        """Small facts for health and people: positions, counts."""
        ...


async def run_role(role: Role, stopping: asyncio.Event) -> None:
    """Start a role and repeat its turn until told to stop."""
    await role.start()
    try:
        while not stopping.is_set():
            await role.step()
    finally:
        await role.stop()
