"""What the HTTP API is given, and who is asking.

Owns the dependencies every router takes and the reading of a caller's scope. It refuses to reach
for anything else: no router opens a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import Request  # noqa: TC002 - FastAPI reads the annotation at run time

from noetl_ray.clock import Clock
from noetl_ray.config.settings import Settings
from noetl_ray.credentials.port import CredentialStore
from noetl_ray.errors import UsageError
from noetl_ray.hints.port import Hints
from noetl_ray.readmodel.port import Queries
from noetl_ray.replay.snapshots import SnapshotStore
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.submit import SubmitPorts
from noetl_ray.submit.tokens import CallbackTokens
from noetl_ray.web.frame_board import FrameBoard
from noetl_ray.web.journal_board import JournalBoard
from noetl_ray.web.metrics import Metrics
from noetl_ray.web.shard_board import ShardBoard
from noetl_ray.web.tier_board import TierBoard
from noetl_ray.web.waiting import Waiters

if TYPE_CHECKING:
    from noetl_ray.readmodel.records import ProjectionKey, ProjectionRecord

TENANT_HEADER = "x-noetl-tenant"
ORGANIZATION_HEADER = "x-noetl-organization"
ID_DIGITS_MAX = 19


class States(SnapshotStore, Protocol):
    """Where folded states and snapshots can be read; a part of the projection store."""

    async def load_projection(self, key: ProjectionKey) -> ProjectionRecord | None:
        """The projection of that name, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeps:
    """Everything the API works with."""

    settings: Settings
    submit: SubmitPorts
    queries: Queries
    results: ResultStore
    credentials: CredentialStore
    clock: Clock
    hints: Hints | None = None
    """Where ends of executions are told of; without it they are noticed by looking."""
    states: States | None = None
    """Needed only for the ``variables`` of a status."""
    tiers: TierBoard = field(default_factory=TierBoard)
    """What was heard of the tiers of all hosts."""
    frames: FrameBoard = field(init=False)
    """What was heard of the frames of all conductors."""
    journals: JournalBoard = field(init=False)
    """What was heard of the journals of all hosts."""
    shards: ShardBoard | None = None
    """What was heard of the shards of all conductors."""
    callbacks: CallbackTokens | None = None
    """Reads tokens of callbacks; without it only people answer."""
    health: Callable[[], Awaitable[dict[str, Any]]] | None = None
    """More facts for the health page; a raised error makes it unhealthy."""

    def __post_init__(self) -> None:
        """Let the boards that forget read this clock."""
        object.__setattr__(self, "frames", FrameBoard(self.clock.monotonic))
        object.__setattr__(self, "journals", JournalBoard(self.clock.monotonic))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One request's view: the dependencies and the scope it may see."""

    deps: GatewayDeps
    scope: Scope
    waiters: Waiters
    metrics: Metrics

    @property
    def project_id(self) -> str:
        """The project new executions belong to."""
        return self.deps.settings.runtime.project_id


async def caller_of(request: Request) -> Caller:
    """Read the scope from the headers; the settings' own where there are none.

    Async although it awaits nothing: a plain function would take a thread for every request.
    """
    deps: GatewayDeps = request.app.state.deps
    runtime = deps.settings.runtime
    scope = Scope(
        tenant_id=request.headers.get(TENANT_HEADER) or runtime.tenant_id,
        organization_id=request.headers.get(ORGANIZATION_HEADER) or runtime.organization_id,
    )
    return Caller(
        deps=deps,
        scope=scope,
        waiters=request.app.state.waiters,
        metrics=request.app.state.metrics,
    )


def execution_id_of(text: str) -> int:
    """An execution id from a path or body.

    Raises:
        UsageError: it is not a decimal number that fits BIGINT.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= ID_DIGITS_MAX):
        msg = f"{text[:40]!r} is not an execution id"
        raise UsageError(msg)
    number = int(text)
    if not 0 < number < 1 << 63:
        msg = f"{text[:40]!r} is not an execution id"
        raise UsageError(msg)
    return number
