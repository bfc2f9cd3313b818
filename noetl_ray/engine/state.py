"""The folded state of one execution: what is needed to decide, nothing that can be derived.

State holds open commands, step outcomes, variables and the facts not yet consumed by a decision
(P4). It is plain data of JSON shape, so that a checkpoint, the read model and a replay can hold the
same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from noetl_ray.engine.frames import StageState
from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import Event
from noetl_ray.events.types import TAKEN_WHEN_PAUSED, EventType
from noetl_ray.scope import Scope, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ExecutionStatus = Literal["PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]
StepStatus = Literal["running", "completed", "failed", "skipped", "cancelled"]

LOOP_TIER = "loop"
"""A result block that lists the blocks of a loop's iterations instead of a value."""
MANIFEST_TIER = "manifest"
"""A result block that says where the results of a framed loop's ranges lie."""
LOOP_TIERS = frozenset({LOOP_TIER, MANIFEST_TIER})

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


class Wait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a parked command waits for that a time ends; nobody holds it meanwhile (SEB-7)."""

    kind: str
    """``retry``, ``timer`` or ``callback``."""
    until_ms: int
    task: str
    key: str = ""
    """The digest of the token that answers it; the token itself is nowhere in the log."""
    about: str = ""


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
    recorded: int = 0
    """Where the newest record of its pipeline lies, 0 when there is none (P18)."""
    frame: bool = False
    """Whether it is a frame: it has a lease of its own and is tried again a few times only."""
    lease_until_ms: int = 0
    """When a frame counts as abandoned unless its holder says otherwise."""
    parked: bool = False
    """Its pipeline waits for something and nobody holds it; a decision lets it go on."""
    wait: Wait | None = None
    """What it waits for until when; None for a child, which says itself when it ends."""
    answer: int = 0
    """Where what its parked task waited for lies in the log, 0 when nothing came (P13)."""


class ChildState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sub-playbook that a parked command waits for; its id is this execution's decision (P13)."""

    execution_id: int
    command_id: str
    event_id: int
    """The event that decided it; what the child's request and end link to."""
    asked: int
    """Where the task that wants it is recorded: playbook, workload, what it is to give back."""
    deadline_ms: int = 0
    """When the parent stops waiting; 0 for never."""


class LoopState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A loop under way: one command per item, at most ``window`` at a time.

    A loop over a cursor or a large collection has a ``stage``: its commands are frames.
    """

    visit: int
    total: int
    iterator: str
    window: int
    items: list[Any] | None = None
    items_ref: dict[str, Any] | None = None
    """Where the items are when they are too large for the log."""
    issued: int = 0
    done: int = 0
    failed: int = 0
    error: dict[str, Any] | None = None
    results: dict[str, dict[str, Any]] = {}
    """Result blocks by index, as text: keys of JSON are."""
    rows: int | None = None
    stage: StageState | None = None

    @property
    def in_flight(self) -> int:
        """Iterations issued and not yet back."""
        return self.issued - self.done - self.failed

    @property
    def has_room_later(self) -> bool:
        """Whether iterations are left to issue by their items."""
        return self.stage is None and not self.failed and self.issued < self.total

    @property
    def has_room(self) -> bool:
        """Whether another iteration or frame may be issued now."""
        if self.stage is not None:
            if self.stage.total and self.items_ref is None:
                # The collection is on its way to the store; its ranges have no place yet.
                return False
            return not self.failed and self.stage.may_go_on
        return not self.failed and self.issued < self.total and self.in_flight < self.window


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
    loops: dict[str, LoopState] = {}
    children: dict[str, ChildState] = {}
    """Open sub-playbooks by execution id, as text: keys of JSON are."""
    due: dict[str, int] = {}
    """Parked commands by when a decision lets them go on at the latest, in milliseconds."""
    pending: dict[int, tuple[Event, ...]] = {}
    failures_handled: int = 0
    failed: dict[str, Any] | None = None
    """The first failure no arc took; nothing new starts after it."""
    cancel_reason: str | None = None
    cancel_cascade: bool = True
    """Whether a cancel goes on to sub-playbooks."""
    final_step: str | None = None
    error: dict[str, Any] | None = None
    parent_execution_id: int | None = None
    parent: dict[str, Any] | None = None
    """Of a sub-playbook: the parent's command and event, and which step's result it waits for."""
    depth: int = 0
    """How many executions stand above this one."""
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
    trimmed: bool = False
    """Only its end was in the log: the records before are in the archive."""

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
        copy.loops = dict(self.loops)
        copy.children = dict(self.children)
        copy.due = dict(self.due)
        copy.pending = dict(self.pending)
        return copy


def loop_result(results: list[Any], stats: dict[str, int]) -> dict[str, Any]:
    """The value of a loop step from those of its iterations, in the order of the collection."""
    return {
        "results": results,
        "stats": dict(stats),
        "count": len(results),
        "last_result": results[-1] if results else None,
    }


def takeable(state: ExecutionState, fact: Event) -> bool:
    """Whether a decision may take a waiting fact now.

    A paused execution only hears its owner. An answer that came before its command waits for it
    stays until then, or until the command has ended.
    """
    if fact.event_type in TAKEN_WHEN_PAUSED:
        return True
    if fact.event_type is EventType.CALLBACK_RECEIVED:
        command = state.commands.get(fact.payload["command_id"])
        if command is not None and not awaits(command, fact.payload["key"]):
            return False
    return state.status != "PAUSED"


def awaits(command: CommandState, key: str) -> bool:
    """Whether a command waits for the answer of this key."""
    return command.wait is not None and command.wait.key == key


def takeable_facts(draft: ExecutionState) -> Iterator[int]:
    """Positions of facts to take, oldest first; whoever asks on has consumed the one before.

    A fact may open the way for those before it, as a resume does.
    """
    waiting = sorted(draft.pending)
    while waiting:
        left = []
        for position in waiting:
            if takeable(draft, draft.pending[position][0]):
                yield position
            else:
                left.append(position)
        if len(left) == len(waiting):
            return
        waiting = left


def next_due_ms(state: ExecutionState) -> int | None:
    """When a command of it is to go on; None when none waits for a time."""
    if not state.due or state.status == "PAUSED":
        return None
    return min(state.due.values())


def wants_decision(state: ExecutionState, now_ms: int = 0) -> bool:
    """Whether something waits that only a decision can move."""
    if any(takeable(state, facts[0]) for facts in state.pending.values()):
        return True
    if state.status == "PAUSED":
        return False
    if state.held or (state.due and min(state.due.values()) <= now_ms):
        return True
    return bool(state.loops) and any(loop.has_room for loop in state.loops.values())


def running_steps(state: ExecutionState) -> list[str]:
    """Names of steps that have been entered and have not been left."""
    return [name for name, step in state.steps.items() if step.status == "running"]


def encode_state(state: ExecutionState) -> bytes:
    """The canonical bytes of a state: what is kept and what its checksum is made over."""
    if not state.pending:
        return canonical_json(state)
    # Canonical JSON sorts keys and therefore wants text ones; pending facts are keyed by position.
    return canonical_json(msgspec.to_builtins(state, str_keys=True))


_decoder = msgspec.json.Decoder(ExecutionState)


def parse_state(data: bytes) -> ExecutionState:
    """The inverse of :func:`encode_state`."""
    return _decoder.decode(data)
