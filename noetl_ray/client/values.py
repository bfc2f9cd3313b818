"""What the client gives back: frozen values read from answers; ids are ints again.

Fields an answer lacks take their defaults, and fields unknown here are left out, so that client and
gateway may differ by a version.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED"})

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registered playbook version."""

    path: str
    version: int
    digest: str
    status: str = "registered"
    """``registered`` for a new version, ``unchanged`` for the newest one's own text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One item of a batch submit."""

    path: str | None = None
    playbook: str | None = field(default=None, repr=False)
    digest: str | None = None
    version: int | None = None
    workload: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    parent_execution_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookVersion:
    """One version in the catalog."""

    path: str
    version: int
    digest: str
    name: str | None = None
    registered_at: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookText(PlaybookVersion):
    """One version in the catalog with its text."""

    content: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessObject:
    """What one task said about a domain object."""

    type: str
    id: str
    version: int
    status: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    recorded_at: str | None = None
    event_id: int = 0
    execution_id: int = 0
    command_id: str = ""
    step: str | None = None
    visit: int | None = None
    task: str | None = None
    reference: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An accepted submit."""

    execution_id: int
    duplicate: bool = False
    playbook: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatus:
    """One step of an execution."""

    status: str
    visits: int = 1
    rows: int | None = None
    loop: dict[str, int] | None = None
    """Of a loop: how many items there are, and how many are done and failed."""
    frames: dict[str, int] | None = None
    """Of a framed loop: how many frames are done and under way, and how many rows failed."""
    waiting: tuple[dict[str, Any], ...] | None = None
    """What it waits for without holding a worker: task, kind, until, about; the soonest first."""
    entered_at: str | None = None
    exited_at: str | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution as the read model shows it."""

    execution_id: int
    status: str
    project_id: str = "default"
    path: str | None = None
    playbook_version: int | None = None
    digest: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    final_step: str | None = None
    error: dict[str, Any] | None = None
    steps: dict[str, StepStatus] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    event_count: int = 0
    last_position: int = 0
    parent_execution_id: int | None = None
    checksum: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.status == "COMPLETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStatus:
    """The short form of an execution."""

    execution_id: int
    status: str
    completed: bool
    """Whether it has ended, well or not."""
    failed: bool
    path: str | None = None
    current_step: str | None = None
    final_step: str | None = None
    steps: dict[str, StepStatus] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    running_steps: tuple[str, ...] = ()
    completed_steps: tuple[str, ...] = ()
    failed_steps: tuple[str, ...] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    started_at: str | None = None
    ended_at: str | None = None
    parent_execution_id: int | None = None
    children: tuple[dict[str, Any], ...] = ()
    """Executions this one asked for, newest first: id as text, path, status and times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of an execution."""

    position: int
    ordinal: int
    event_id: int
    event_type: str
    event_time: str
    execution_id: int
    aggregate_type: str
    payload: dict[str, Any]
    command_id: str | None = None
    prev_event_id: int | None = None
    causation_id: int | None = None
    producer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One printed line."""

    log_id: int
    step: str
    task: str
    attempt: int
    stream: str
    time: str
    text: str
    visit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Whether a text could be registered."""

    valid: bool
    message: str = ""
    path: str | None = None
    name: str | None = None
    digest: str | None = None
    steps: tuple[str, ...] = ()
    problems: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSummary:
    """What may be known of a credential."""

    name: str
    type: str
    description: str = ""
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the gateway is."""

    status: str
    version: str = ""
    log_position: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    """The whole answer."""


_INTS = frozenset(
    {"execution_id", "parent_execution_id", "event_id", "prev_event_id", "causation_id", "log_id"}
)


def read(kind: type[T], body: dict[str, Any]) -> T:
    """A value of that kind from an answer's object."""
    known: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in body:
            known[each.name] = _value(each.name, body[each.name])
    return kind(**known)


def _value(name: str, value: Any) -> Any:
    if name in _INTS and value is not None:
        return int(value)
    if name == "steps" and isinstance(value, dict):
        return {step: read(StepStatus, facts) for step, facts in value.items()}
    return tuple(value) if isinstance(value, list) else value
