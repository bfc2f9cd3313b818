"""Records of a pipeline between two tasks, on its command's own subject (P18).

Owns what such a record looks like and how a later holder reads it back. Values go through the
result store under the coordinate of their task (P17), so a large one is a reference; what is large
or secret in the rest lies outside the log. Whether a record is due is the pipeline's to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from actors.completion import bounded, failed_attempts
from noetl_ray.errors import InternalError
from noetl_ray.events.canonical import canonical_json, to_jsonable
from noetl_ray.events.types import TASK_RECORDS, EventType
from noetl_ray.results.extracted import MASKED
from noetl_ray.results.redact import Redactor, has_credentials, secret_values
from noetl_ray.tools.locals import Progress
from noetl_ray.tools.waiting import RETRY

if TYPE_CHECKING:
    from actors.contexts import ContextStore
    from actors.holding import Holding
    from noetl_ray.events.envelope import Event, PayloadRef
    from noetl_ray.results.store import ResultStore
    from noetl_ray.scope import Scope
    from noetl_ray.tools.port import Parked
    from noetl_ray.wal.port import Log

SCOPE_INLINE_MAX_BYTES = 32_000
ABOUT_CHARS_MAX = 300

Persist = Callable[[str, int, Any], Awaitable[dict[str, Any]]]
"""``(label, run, value) -> result block``; the value is durable when it returns."""


class TaskRecords:
    """The records of one command, as one holder writes and reads them."""

    def __init__(
        self,
        log: Log,
        results: ResultStore,
        contexts: ContextStore,
        holding: Holding,
        *,
        scope: Scope,
        base: Mapping[str, Any],
        persist: Persist,
        redactor: Callable[[], Redactor],
        shown: Callable[[], Redactor],
        learn: Callable[[set[str]], None],
    ) -> None:
        """Bind the records of a command.

        Args:
            log: Where earlier records lie.
            results: Where values of tasks are read from.
            contexts: Where a scope goes that is too large or too secret for the log.
            holding: What appends.
            scope: Whose command it is.
            base: What every event of the command says: step, visit, index.
            persist: Makes a task's value durable.
            redactor: Removes what the credentials used so far hold.
            shown: Removes that, and every other secret known, for what lies in the log.
            learn: Told secrets found in what was read back.
        """
        self._log = log
        self._results = results
        self._contexts = contexts
        self._holding = holding
        self._scope = scope
        self._base = dict(base)
        self._persist = persist
        self._redactor = redactor
        self._shown = shown
        self._learn = learn
        self._positions: dict[str, int] = {}
        """Where the newest value of each label is recorded."""

    async def park(self, parked: Parked) -> None:
        """Record that a task waits for something; nobody holds the command from then on.

        Raises:
            VersionConflictError: the command was taken away; whoever holds it waits itself.
        """
        progress = parked.progress
        assert progress is not None
        payload, reference = await self._said(progress)
        said = failed_attempts(progress.failed_attempts, self._base, self._shown())
        wait = parked.wait
        if wait.get("about"):
            wait = wait | {"about": self._shown().text(wait["about"])[:ABOUT_CHARS_MAX]}
        if wait["kind"] != RETRY:
            # A task that is tried again has not come to the end of its turn.
            payload = payload | {"turn": progress.turns}
        said.append((EventType.TASK_PARKED, payload | {"wait": wait}, reference))
        await self._holding.append(said, lets_go=True)

    async def write(self, progress: Progress) -> None:
        """Record that a task with side effects has come to its end.

        Raises:
            VersionConflictError: the command was taken away; nothing after this may run.
        """
        payload, reference = await self._said(progress)
        said = failed_attempts(progress.failed_attempts, self._base, self._shown())
        if progress.ok:
            said.append((EventType.TASK_DONE, payload, reference))
        else:
            error = progress.scope["output"]["error"]
            payload["error"] = bounded(self._shown().value(error))
            said.append((EventType.TASK_FAILED, payload, reference))
        position = await self._holding.append(said)
        self._positions |= dict.fromkeys(progress.changed, position)

    async def _said(self, progress: Progress) -> tuple[dict[str, Any], PayloadRef | None]:
        redactor = self._redactor()
        values: dict[str, Any] = {}
        for label in sorted(progress.changed):
            value = redactor.value(to_jsonable(progress.values[label]))
            self._learn(secret_values(value))
            values[label] = await self._persist(label, progress.runs, value)
        scope = redactor.value(to_jsonable(progress.scope))
        payload = self._base | {
            "task": progress.task,
            "turn": progress.turns - 1,
            "next": {
                "task": progress.index,
                "attempt": progress.attempt,
                "runs": progress.runs,
                "turns": progress.turns,
            },
            "at": {k: p for k, p in self._positions.items() if k not in progress.changed},
            "values": values,
            "scope": scope,
        }
        data = canonical_json({"values": values, "scope": scope})
        secret = has_credentials(scope) or self._shown().value(scope) != scope
        if len(data) <= SCOPE_INLINE_MAX_BYTES and not secret:
            return payload, None
        reference = await self._contexts.put(self._scope, data)
        return payload | {"values": {}, "scope": {}}, reference

    async def read(self, position: int) -> tuple[Event, Progress]:
        """The record at a position of the log, and the pipeline as it was then.

        Raises:
            InternalError: there is no such record; nothing may run on a guess.
            StoreError: a value is out of reach.
        """
        event = await self._event(position)
        told = await self._told(event)
        blocks = {label: (position, block) for label, block in told["values"].items()}
        for earlier in sorted(set(event.payload["at"].values())):
            then = await self._told(await self._event(earlier))
            for label, at in event.payload["at"].items():
                if at == earlier:
                    blocks[label] = (earlier, then["values"][label])
        values: dict[str, Any] = {}
        for label, (at, block) in blocks.items():
            self._positions[label] = at
            values[label] = await self._results.load(self._scope, block)
            if MASKED in (block.get("truncated") or {}).values():
                self._learn(secret_values(values[label]))
        following = event.payload["next"]
        return event, Progress(
            task=event.payload["task"],
            ok=event.event_type is not EventType.TASK_FAILED,
            index=following["task"],
            attempt=following["attempt"],
            runs=following["runs"],
            turns=following["turns"],
            values=values,
            scope=told["scope"],
        )

    async def _event(self, position: int) -> Event:
        recorded = await self._log.get(position)
        for event in recorded.record.events if recorded else ():
            if event.event_type in TASK_RECORDS:
                return event
        msg = f"no record of a task at position {position} of the log"
        raise InternalError(msg)

    async def _told(self, event: Event) -> dict[str, Any]:
        if event.payload_ref is None:
            return event.payload
        told = await self._contexts.load(self._scope, event.payload_ref)
        self._learn(secret_values(told["scope"]))
        return told
