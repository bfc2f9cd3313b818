"""The tool port: one kind of task each.

A tool gets a rendered config and returns data or raises ToolError.

Rendering, policies, retries, result tiers and events are the pipeline's, not the tool's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from noetl_ray.credentials.port import Credential
from noetl_ray.scope import Scope

if TYPE_CHECKING:
    from noetl_ray.tools.locals import Progress


async def _nothing() -> None:
    """There is nobody to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookCall:
    """What a task asks for; ``path`` or ``digest`` names the playbook."""

    path: str | None
    digest: str | None
    version: int | None
    workload: dict[str, Any]
    return_step: str | None = None
    return_result: bool = False
    waits: bool = True
    timeout_s: float | None = None


class Parked(Exception):
    """Not an error: the task waits for something, and its pipeline with it, on nobody's slot.

    Raised by a tool; ``wait`` says for what and has a JSON form. The pipeline adds where it stands.
    """

    def __init__(self, wait: dict[str, Any]) -> None:
        super().__init__(wait)
        self.wait = wait
        self.progress: Progress | None = None


class Spool(Protocol):
    """A body on its way into the store."""

    async def write(self, chunk: bytes) -> None:
        """Take the next bytes."""
        ...

    async def finish(self, media_type: str) -> dict[str, Any]:
        """Store it and return its ``result_ref`` record."""
        ...

    async def discard(self) -> None:
        """Leave nothing behind."""
        ...


class ArtifactStore(Protocol):
    """Stored values of the scope a task runs in."""

    async def get(self, ref: Any) -> Any:
        """The value of a record, URI or name; ObjectMissingError when it is not there."""
        ...

    async def table(self, ref: Any) -> Any:
        """The same as an Arrow table."""
        ...

    async def put(self, name: str, value: Any) -> dict[str, Any]:
        """Store a value under a name and return its record."""
        ...

    async def list(self, prefix: str = "") -> list[dict[str, Any]]:
        """Records of the names below a prefix."""
        ...

    def spool(self) -> Spool:
        """A place for a body that is too large for memory."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of where it runs."""

    execution_id: int
    step: str
    task: str
    attempt: int
    idempotency_key: str
    """Stable over attempts and re-dispatches of this task run."""
    timeout_s: float | None
    credential: Callable[[str], Awaitable[Credential]]
    """Resolve a credential by name; raises NotFoundError."""
    log: Callable[[str, str], None]
    """``log(stream, line)``: what the task prints; redacted further on."""
    names: dict[str, Any] = field(default_factory=dict)
    """Names of the render context that user code may see, and those of a loop's iteration."""
    artifacts: ArtifactStore | None = None
    """Stored values; None where there is no store."""
    still_ours: Callable[[], Awaitable[None]] = _nothing
    """Awaited before acting on the world after a wait; raises LogError when the command is lost."""
    scope: Scope | None = None
    """Whose task it is; None where there is no scope, as in tests of a tool by itself."""
    pin_playbook: Callable[[PlaybookCall], Awaitable[dict[str, Any]]] | None = None
    """What to wait for when another playbook is called; None where nobody may wait."""
    conceal: Callable[[str], None] = lambda _text: None
    """Keep a text the tool made from a secret out of results, errors and prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a task run gave: ``data`` is R of dsl section 6.

    ``meta`` the kind's block (http, pg, py).
    """

    data: Any
    meta: dict[str, Any] = field(default_factory=dict)
    ref: dict[str, Any] | None = None
    """The record of what the tool put into the store instead of into ``data``."""


class Tool(Protocol):
    """One kind of task."""

    kind: ClassVar[str]
    side_effects: ClassVar[bool]
    meta_key: ClassVar[str]
    """Where ``ToolResult.meta`` goes in ``output``: ``http``, ``pg`` or ``py``."""
    text_keys: ClassVar[frozenset[str]]
    """Config keys rendered to text and never coerced (dsl section 3)."""

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Do the work once. Raises ToolError with a kind of dsl section 6.

        Lets CancelledError pass.
        """
        ...

    async def close(self) -> None:
        """Let go of pools and processes."""
        ...
