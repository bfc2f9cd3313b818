"""Keychain values on a worker: found when a task needs them, kept while they are good, never shown.

Owns resolving and caching. An entry is resolved only when a task's templates or `auth` can reach
it; one that fails, fails that task alone. Values live in this process and nowhere else: everything
resolved is handed to ``conceal``, so that no result, error or printed line carries it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from noetl_ray.credentials.port import Credential
from noetl_ray.engine.context import keychain_reads
from noetl_ray.engine.names import Names
from noetl_ray.errors import NoetlError, ToolError
from noetl_ray.tools.keychain_kinds import Fetched, KeychainSources, fetch

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.dsl.model import KeychainEntry, Step, Task
    from noetl_ray.dsl.template import Templates

ENTRIES_MAX = 4_096
KEEP_S = 300.0
"""How long a value without an end of its own is kept: a credential that was replaced is noticed."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    fields: dict[str, Any] = field(repr=False)
    auth_type: str
    secrets: frozenset[str] = field(repr=False)
    until: float
    """On the monotonic clock; renewed from then on."""
    renewable: bool = True


class KeychainCache:
    """Resolved entries of the executions a worker serves; one resolving at a time per entry."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._max = entries_max

    def find(self, key: tuple[str, str]) -> _Kept | None:
        """What is kept, good or not."""
        return self._kept.get(key)

    def keep(self, key: tuple[str, str], kept: _Kept) -> None:
        """Keep a value; the longest kept one goes when there are too many."""
        self._kept.pop(key, None)
        self._kept[key] = kept
        while len(self._kept) > self._max:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            lock = self._locks.get(oldest)
            if lock is not None and not lock.locked():
                del self._locks[oldest]

    def drop(self, key: tuple[str, str]) -> None:
        """Forget a value that was refused somewhere."""
        self._kept.pop(key, None)

    def lock(self, key: tuple[str, str]) -> asyncio.Lock:
        """Held while an entry is resolved, so that a crowd asks once."""
        return self._locks.setdefault(key, asyncio.Lock())


class KeychainView(Mapping[str, Any]):
    """``keychain`` as templates see it: what has been resolved for the task, nothing else."""

    def __init__(self) -> None:
        self.values_by_name: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        """The fields of an entry."""
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        """The names resolved so far."""
        return iter(self.values_by_name)

    def __len__(self) -> int:
        """How many."""
        return len(self.values_by_name)


class Prepare(Protocol):
    """Called before each task run, before its templates are rendered."""

    def __call__(self, task: Task, step: Step, *, refused: bool = False) -> Awaitable[None]:
        """See :meth:`Keychain.prepare`."""
        ...


class Keychain:
    """The keychain of one playbook, for one command."""

    def __init__(
        self,
        entries: Collection[KeychainEntry],
        *,
        execution: str,
        workload: Mapping[str, Any],
        templates: Templates,
        clock: Clock,
        sources: KeychainSources,
        cache: KeychainCache,
        conceal: Callable[[Collection[str]], None],
    ) -> None:
        """Bind the entries.

        Args:
            entries: In the order of the playbook.
            execution: Scope and execution; values are shared below it.
            workload: What entries may read, beside the environment.
            templates: Renders.
            clock: For expiry.
            sources: Where values come from.
            cache: Shared by the commands of this process.
            conceal: Told every secret a task gets to see.
        """
        self._entries = {entry.name: entry for entry in entries}
        self._execution = execution
        self._workload = workload
        self._templates = templates
        self._clock = clock
        self._sources = sources
        self._cache = cache
        self._conceal = conceal
        self.view = KeychainView()
        self._used: set[str] = set()

    async def prepare(self, task: Task, step: Step, *, refused: bool = False) -> None:
        """Resolve what the task's templates read.

        Args:
            task: About to run.
            step: Whose ``input`` it also reads.
            refused: The last run was refused (kind ``auth``): what it used is resolved anew.

        Raises:
            ToolError: of kind ``auth``, naming the entry.
        """
        if not self._entries:
            return
        if refused:
            for name in self._used:
                self._cache.drop((self._execution, name))
        parts = [task.config, task.input, task.set, task.timeout, task.output, step.input]
        parts += [[rule.when, rule.set, rule.attempts, rule.delay] for rule in task.rules]
        for name in keychain_reads(self._templates, parts, self._workload, self._entries):
            kept = await self._resolve(name)
            self.view.values_by_name[name] = kept.fields

    async def credential(self, name: str) -> Credential | None:
        """An entry as ``auth: name`` means it; None when the playbook has no such entry."""
        if name not in self._entries:
            return None
        kept = await self._resolve(name)
        return Credential(name=name, type=kept.auth_type, data=dict(kept.fields))

    async def _resolve(self, name: str) -> _Kept:
        key = (self._execution, name)
        self._used.add(name)
        kept = self._good(key, name)
        if kept is None:
            async with self._cache.lock(key):
                kept = self._good(key, name)
                if kept is None:
                    kept = await self._fetch(self._entries[name])
                    self._cache.keep(key, kept)
        self._conceal(kept.secrets)
        return kept

    def _good(self, key: tuple[str, str], name: str) -> _Kept | None:
        kept = self._cache.find(key)
        if kept is None or self._clock.monotonic() < kept.until:
            return kept
        if kept.renewable:
            return None
        msg = f"the token of the keychain entry {name!r} has expired and auto_renew is false"
        raise ToolError(msg, "auth", False, {"keychain": name})

    async def _fetch(self, entry: KeychainEntry) -> _Kept:
        """Resolve what the entry reads, render it, get its values."""
        secrets: set[str] = set()
        until = self._clock.monotonic() + KEEP_S
        view = KeychainView()
        earlier = list(self._entries)[: list(self._entries).index(entry.name)]
        for name in keychain_reads(self._templates, [entry.config], self._workload, earlier):
            below = await self._resolve(name)
            view.values_by_name[name] = below.fields
            secrets |= below.secrets
            until = min(until, below.until)
        started = self._clock.monotonic()
        try:
            config = self._templates.value(entry.config, self._names(view))
            fetched = await fetch(entry.name, entry.kind, config, self._sources)
        except NoetlError as error:
            raise self._failed(entry, error, secrets) from None
        if fetched.lasts_s is not None:
            # A token that was given stays good, whatever becomes of what it was asked for with.
            until = started + fetched.lasts_s
        return self._kept(fetched, frozenset(secrets), until)

    def _kept(self, fetched: Fetched, secrets: frozenset[str], until: float) -> _Kept:
        return _Kept(
            fields=fetched.fields,
            auth_type=fetched.auth_type,
            secrets=secrets | fetched.secrets,
            until=until,
            renewable=fetched.renewable,
        )

    def _names(self, view: KeychainView) -> Names:
        return Names(
            self._templates,
            execution_id=self._sources.execution_id,
            workload=self._workload,
            ctx={},
            steps={},
            env=self._sources.env,
            keychain=view,
        )

    def _failed(self, entry: KeychainEntry, error: NoetlError, secrets: set[str]) -> ToolError:
        # The reason may quote what was sent: it is shown redacted, and only with the task's error.
        self._conceal(secrets)
        _logger.warning("keychain entry %s (%s) cannot be resolved", entry.name, entry.kind)
        msg = f"the keychain entry {entry.name!r} ({entry.kind}) cannot be resolved: "
        return ToolError(
            msg + error.message,
            "auth",
            error.retryable,
            {"keychain": entry.name, "keychain_kind": entry.kind},
        )


def was_refused(output: Mapping[str, Any] | None) -> bool:
    """Whether a task run ended because what it used was not accepted."""
    error = output["error"] if output is not None else None
    return error is not None and error.get("kind") == "auth"
