"""The hint port: fire-and-forget messages between roles.

Core NATS on a cluster, memory in one process.

Used for offers to workers, announcements of workers, nudges of cancel. Nothing may depend on one
arriving; whoever sends a hint also has a way to send it again from the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from noetl_ray.wal.subjects import token

Handler = Callable[[str, bytes], Awaitable[None] | None]
"""Takes subject and data; a plain function where nothing is waited for, which costs no task."""

ANNOUNCE = "noetl.hints.workers"
"""Workers announce themselves here each second."""


ENDED = "noetl.hints.ended"
"""The projector says here that executions have ended and can be read."""

TIER_COUNTS = "noetl.hints.tiers"
"""Hosts say here what their tiers did."""

FRAME_BACKLOG = "noetl.hints.frames"
"""Conductors say here how many frames wait or are under way."""


JOURNALS = "noetl.hints.journals"
"""Hosts say here what they have sent to the log and not seen acknowledged."""

SHARDS = "noetl.hints.shards"
"""Conductors say here each second which shards they have, and what of them is not kept yet."""


def offer_subject(shard: int, worker_id: str) -> str:
    """The targeted command subject of PRIN-6."""
    return f"noetl.commands.{shard}.{token(worker_id)}"


class Hints(Protocol):
    """Sends and receives hints."""

    async def send(self, subject: str, data: bytes) -> None:
        """Send; returns at once, promises nothing."""
        ...

    async def listen(self, subject: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        """Call ``handler(subject, data)`` for each hint (``*`` and ``>`` allowed).

        Returns a stopper.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
