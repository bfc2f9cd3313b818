"""The folded state of one execution: what is needed to decide, nothing that can be derived.

State holds open commands, step outcomes, variables and the facts not yet consumed by a decision
(P4). It is plain data of JSON shape, so that a checkpoint, the read model and a replay can hold the
same bytes.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import Event
from noetl_ray.scope import Scope, scope_of

ExecutionStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
StepStatus = Literal["running", "completed", "failed", "skipped", "cancelled"]

TERMINAL_STATUSES: frozenset[str] = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


class PlaybookRef(msgspec.Struct, frozen=True, kw_only=True):
    """Which playbook an execution is pinned to (P12)."""

    path: str
    version: int
    digest: str


class StepState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest visit of a step. ``result`` is the ``payload.result`` block of its call event."""

    status: StepStatus
    visits: int
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    rows: int | None = None
    """How many rows the result holds, where it holds rows."""
    entered_at: str | None = None
    exited_at: str | None = None


class CommandState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open command. ``version`` is what the next append on its subject must expect (P16)."""

    command_id: str
    step: str
    visit: int
    issued_position: int
    issued_event_id: int
    last_event_id: int
    version: int = 0
    attempt: int = 1
    worker_id: str | None = None
    incarnation: str | None = None


class HeldToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that an arc has reached and that has not been entered yet."""

    step: str
    sources: tuple[str, ...] = ()


class ExecutionState(msgspec.Struct, kw_only=True):
    """Everything a decision about one execution may look at."""

    execution_id: int
    tenant_id: str
    organization_id: str
    project_id: str = "default"
    shard: int = 0
    status: ExecutionStatus = "PENDING"
    playbook: PlaybookRef | None = None
    workload: dict[str, Any] = {}
    workload_ref: dict[str, Any] | None = None
    ctx: dict[str, Any] = {}
    steps: dict[str, StepState] = {}
    commands: dict[str, CommandState] = {}
    held: dict[str, HeldToken] = {}
    pending: dict[int, tuple[Event, ...]] = {}
    failures_handled: int = 0
    failed: dict[str, Any] | None = None
    """The first failure no arc took; nothing new starts after it."""
    cancel_reason: str | None = None
    final_step: str | None = None
    error: dict[str, Any] | None = None
    parent_execution_id: int | None = None
    idempotency_key: str | None = None
    root_event_id: int = 0
    control_version: int = 0
    control_event_id: int = 0
    inbox_version: int = 0
    position: int = 0
    event_count: int = 0
    last_event_id: int = 0
    started_at: str | None = None
    ended_at: str | None = None

    @property
    def scope(self) -> Scope:
        """Whose execution it is."""
        return scope_of(self.tenant_id, self.organization_id)

    @property
    def terminal(self) -> bool:
        """Whether the execution has ended."""
        return self.status in TERMINAL_STATUSES

    def draft(self) -> ExecutionState:
        """A copy whose containers may be changed without touching this one."""
        copy: ExecutionState = msgspec.structs.replace(self)
        copy.ctx = dict(self.ctx)
        copy.steps = dict(self.steps)
        copy.commands = dict(self.commands)
        copy.held = dict(self.held)
        copy.pending = dict(self.pending)
        return copy


def running_steps(state: ExecutionState) -> list[str]:
    """Names of steps that have been entered and have not been left."""
    return [name for name, step in state.steps.items() if step.status == "running"]


def encode_state(state: ExecutionState) -> bytes:
    """The canonical bytes of a state: what is kept and what its checksum is made over."""
    # Canonical JSON sorts keys and therefore wants text ones; pending facts are keyed by position.
    return canonical_json(msgspec.to_builtins(state, str_keys=True))


_decoder = msgspec.json.Decoder(ExecutionState)


def parse_state(data: bytes) -> ExecutionState:
    """The inverse of :func:`encode_state`."""
    return _decoder.decode(data)
