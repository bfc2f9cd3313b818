"""The playbook as validated data. Templates stay as they were written; nothing is rendered here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in the source a thing stands, both from 1."""

    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One policy rule; ``when`` None always matches.

    In ``Step.admit`` only two actions occur: ``continue`` lets the step run, ``fail`` skips it.
    """

    when: Any
    do: Literal["continue", "retry", "jump", "break", "fail"]
    attempts: Any = None
    backoff: str | None = None
    delay: Any = None
    to: str | None = None
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of a step. ``config`` is everything the tool itself reads."""

    label: str
    kind: str
    config: dict[str, Any]
    input: dict[str, Any] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    timeout: Any = None
    side_effects: bool | None = None
    output: dict[str, Any] = field(default_factory=dict)
    business_object: dict[str, Any] | None = None
    """Which domain object the result is about: type and id, perhaps status and attributes."""
    at: Place = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """One way out of a step; ``when`` None always matches."""

    step: str
    when: Any = None
    set: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    """The arc's ``args``, which its target may also read as ``args.*``; they are in ``set`` too."""
    at: Place = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce:
    """What makes one value of the partitions of a fan-out."""

    tasks: tuple[Task, ...]
    iterator: str = "part"
    stream: bool = True
    """Whether tasks run once per partition, with what came of those before, or once over all."""
    initial: Any = None
    """What a stream begins with."""
    frame: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """How often a step runs its tasks: once per item, per row of a cursor, or per partition."""

    items: Any = None
    """What `in` says, a template or data; None for a cursor."""
    iterator: str = "item"
    mode: Literal["sequential", "parallel", "cursor", "fanout"] = "sequential"
    max_in_flight: Any = None
    """A positive number or a template; None when nothing is said."""
    cursor: dict[str, Any] | None = None
    frame: dict[str, Any] = field(default_factory=dict)
    partitions: Any = None
    """How many partitions a fan-out makes; None when the size of one is given."""
    max_outstanding: Any = None
    """Partitions of a fan-out that may be under way or wait for its reduce."""
    reduce: Reduce | None = None
    at: Place = Place()

    @property
    def reducing(self) -> tuple[Task, ...]:
        """The tasks of the reduce, if there is one."""
        return self.reduce.tasks if self.reduce is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. ``tasks`` is empty for a step that only routes."""

    name: str
    tasks: tuple[Task, ...] = ()
    input: dict[str, Any] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)
    vars: dict[str, Any] = field(default_factory=dict)
    """Like `set`, with the step's result as `result` and `data` too."""
    arcs: tuple[Arc, ...] = ()
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    when: Any = None
    admit: tuple[Rule, ...] = ()
    timeout: Any = None
    desc: str = ""
    loop: Loop | None = None
    at: Place = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeychainEntry:
    """A named secret; ``config`` says how to get it, its values exist on workers only."""

    name: str
    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    at: Place = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """A whole playbook. ``digest`` is the SHA-256 of ``source``."""

    name: str
    path: str
    workload: dict[str, Any]
    steps: dict[str, Step]
    entry: str
    digest: str
    source: str = field(repr=False)
    description: str = ""
    keychain: tuple[KeychainEntry, ...] = ()
