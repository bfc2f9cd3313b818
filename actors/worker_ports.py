"""What a worker is and what it works with, as values: identity and ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.barrier import BarrierBook
from actors.callbacks import Callbacks
from actors.collections import CollectionReader
from actors.contexts import ContextStore
from actors.programs import Programs
from noetl_ray.clock import Clock
from noetl_ray.credentials.port import CredentialStore
from noetl_ray.dsl.template import Templates
from noetl_ray.hints.port import Hints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.results.store import ResultStore
from noetl_ray.submit import SubmitPorts
from noetl_ray.tools.keychain import KeychainCache
from noetl_ray.tools.registry import ToolRegistry
from noetl_ray.wal.port import Log
from noetl_ray.wal.tasklog import TaskLog


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Who a worker is and where."""

    worker_id: str
    incarnation: str
    producer: str
    place: dict[str, str]
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """What a worker works with."""

    log: Log
    hints: Hints
    tasklog: TaskLog
    results: ResultStore
    programs: Programs
    contexts: ContextStore
    credentials: CredentialStore
    registry: ToolRegistry
    templates: Templates
    ids: SnowflakeIds
    clock: Clock
    env: Mapping[str, str]
    submit: SubmitPorts
    keychains: KeychainCache = field(default_factory=KeychainCache)
    barriers: BarrierBook = field(default_factory=BarrierBook)
    callbacks: Callbacks = field(default_factory=Callbacks)
    collections: CollectionReader = field(init=False)

    def __post_init__(self) -> None:
        """Let all frames of the worker share what it read of collections."""
        object.__setattr__(self, "collections", CollectionReader(self.contexts))
