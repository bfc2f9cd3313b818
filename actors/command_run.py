"""One command from its offer to its completion in the log: load, run, persist, publish.

Owns what a worker knows while it runs a command. The bytes of a result are durable before the event
that names them; what a task's credentials hold never reaches an event, a log line or a result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from actors.command_keychain import command_keychain
from actors.contexts import ContextStore
from actors.logbook import Logbook
from actors.programs import Programs
from actors.stamp import command_event, object_events
from noetl_ray.clock import Clock, iso_utc
from noetl_ray.credentials.port import Credential, CredentialStore
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.loops import iteration_names
from noetl_ray.engine.names import Names, plain_names, whole_value
from noetl_ray.errors import LogUnavailableError, NoetlError, StoreError
from noetl_ray.events.canonical import canonical_json, to_jsonable
from noetl_ray.events.envelope import Event, Record
from noetl_ray.events.types import EventType
from noetl_ray.hints.port import Hints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.result import ResultName, frame_coordinate
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.extracted import MASKED, extract
from noetl_ray.results.options import NO_OPTIONS, storage_options
from noetl_ray.results.redact import Redactor, is_secret_field, mask, secret_values
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import scope_of
from noetl_ray.tools.keychain import Keychain, KeychainCache
from noetl_ray.tools.pipeline import Pipeline, PipelineOutcome
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.registry import ToolRegistry
from noetl_ray.wal.port import Log
from noetl_ray.wal.subjects import command_subject
from noetl_ray.wal.tasklog import TaskLog

if TYPE_CHECKING:
    from actors.lease import WorkerLease
    from actors.messages import Offer
    from noetl_ray.dsl.model import Task
    from noetl_ray.engine.inputs import Program
    from noetl_ray.results.ref import Status

_log = logging.getLogger(__name__)

STORE_TRIES = 30
ATTEMPTS_KEPT = 20
"""Failed attempts recorded with a completion; the newest count."""
ERROR_BYTES_MAX = 8_192
SET_BYTES_MAX = 102_400

T = TypeVar("T")


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
    keychains: KeychainCache = field(default_factory=KeychainCache)


class CommandRun:
    """One command from its offer to its completion in the log."""

    def __init__(
        self,
        me: WorkerIdentity,
        ports: WorkerPorts,
        offer: Offer,
        lease: WorkerLease,
        nudged: Container[str],
    ) -> None:
        self._me = me
        self._lease = lease
        self._nudged = nudged
        self._p = ports
        self._offer = offer
        issued = offer.issued
        self._scope = scope_of(issued.tenant_id, issued.organization_id)
        self._secrets: set[str] = set()
        self._shown_secrets: set[str] = set()
        self._step: str = issued.payload["step"]
        self._visit: int = issued.payload["visit"]
        self._iteration: dict[str, Any] | None = issued.payload.get("iteration")
        self._loop_names: dict[str, Any] = {}
        self._keychain: Keychain | None = None
        self._storage = NO_OPTIONS
        self._artifacts = Artifacts(ports.results, self._scope, lambda: Redactor(self._secrets))
        self._logbook = Logbook(ports.tasklog, ports.clock, offer, self._scope, self._shown)

    async def run(self) -> None:
        """Run, persist, publish."""
        try:
            outcome = await self._pipeline()
        except asyncio.CancelledError:
            if self._offer.issued.command_id in self._nudged:
                await asyncio.shield(self._cancelled())
            raise
        outcome = within_limits(outcome)
        redactor = Redactor(self._secrets)
        value = redactor.value(to_jsonable(outcome.value))
        error = bounded(self._shown().value(outcome.error)) if outcome.error else None
        result = await self._persist(value, ok=outcome.ok)
        await self._publish(self._events(outcome, result, error))
        await self._logbook.close()

    async def _pipeline(self) -> PipelineOutcome:
        issued = self._offer.issued
        try:
            program, context, steps = await self._patiently(self._load)
        except NoetlError as failure:
            error = {
                "kind": failure.code,
                "code": failure.code,
                "message": failure.message,
                "retryable": failure.retryable,
                "step": self._step,
            }
            return PipelineOutcome(ok=False, value=None, error=error)
        ctx = dict(context.get("ctx", {}))
        keychain = self._keychain = command_keychain(
            self._p, issued, program.playbook, context, self._credential, self._secrets
        )
        names = Names(
            self._p.templates,
            execution_id=issued.execution_id,
            workload=context.get("workload", {}),
            ctx=ctx,
            steps=steps,
            env=self._p.env,
            keychain=keychain.view,
            now=lambda: iso_utc(self._p.clock.now_ms()),
        )
        if self._iteration is not None:
            self._loop_names = iteration_names(self._iteration, context.get("item"))
        step = program.playbook.steps[self._step]
        self._storage = storage_options(task.output for task in step.tasks)
        pipeline = Pipeline(
            step,
            names,
            ctx,
            registry=self._p.registry,
            templates=self._p.templates,
            clock=self._p.clock,
            context_for=self._context_for,
            iteration=self._loop_names,
            prepare=keychain.prepare,
        )
        return await pipeline.run()

    async def _load(self) -> tuple[Program, dict[str, Any], dict[str, Any]]:
        """The playbook and the values the command's templates read."""
        issued = self._offer.issued
        program = await self._p.programs.get(self._scope, issued.payload["playbook_digest"])
        context = issued.payload.get("context") or {}
        if issued.payload_ref is not None:
            # A context that holds a credential never lies in the log.
            context = await self._p.contexts.load(self._scope, issued.payload_ref)
            self._shown_secrets |= secret_values(context)
        steps: dict[str, Any] = {}
        for name, block in context.get("steps", {}).items():
            value = await self._p.results.load(self._scope, block)
            if MASKED in (block.get("truncated") or {}).values():
                self._shown_secrets |= secret_values(value)
            steps[name] = whole_value(block, value)
        return program, context, steps

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """A store out of reach is no failure of the step: try again for a while."""
        tries = 1
        while True:
            try:
                return await work()
            except StoreError as error:
                if not error.retryable or tries >= STORE_TRIES:
                    raise
                _log.warning("%s waits for a store: %s", self._offer.issued.command_id, error)
                await self._p.clock.sleep(min(0.1 * 2**tries, 5.0))
                tries += 1

    async def _context_for(
        self,
        task: Task,
        attempt: int,
        ordinal: int,
        timeout_s: float | None,
        names: Mapping[str, Any],
    ) -> ToolContext:
        await self._lease.ensure()
        wants_names = task.kind == "python" and "context" in str(task.config.get("code", ""))
        return ToolContext(
            execution_id=self._offer.issued.execution_id,
            step=self._step,
            task=task.label,
            attempt=attempt,
            idempotency_key=f"{self._offer.issued.command_id}/{task.label}/{ordinal - attempt + 1}",
            timeout_s=timeout_s,
            credential=self._credential,
            log=self._logbook.writer(task.label, attempt),
            artifacts=self._artifacts,
            conceal=self._secrets.add,
            names=plain_names(names) if wants_names else dict(self._loop_names),
        )

    async def _credential(self, name: str) -> Credential:
        entry = await self._keychain.credential(name) if self._keychain else None
        if entry is not None:
            return entry
        credential = await self._p.credentials.get(self._scope, name)
        for key, value in credential.data.items():
            if isinstance(value, str) and is_secret_field(key):
                self._secrets.add(value)
        return credential

    def _shown(self) -> Redactor:
        """For errors and prints; a result may pass a token on that the workload gave (P28)."""
        return Redactor(self._secrets | self._shown_secrets)

    async def _persist(self, value: Any, *, ok: bool) -> dict[str, Any]:
        issued = self._offer.issued
        name = ResultName(
            tenant=self._scope.tenant_id,
            project=issued.payload.get("project_id", "default"),
            execution_id=issued.execution_id,
            step=self._step,
            frame=frame_coordinate(self._visit),
            row=self._iteration["index"] if self._iteration else 0,
            attempt=self._offer.attempt,
            version=1,
        )
        status: Status = "ok" if ok else "error"
        return await self._patiently(
            lambda: self._p.results.persist(
                self._scope, name, value, status=status, options=self._storage
            )
        )

    def _events(
        self, outcome: PipelineOutcome, result: dict[str, Any], error: dict[str, Any] | None
    ) -> list[Event]:
        base: dict[str, Any] = {"step": self._step, "visit": self._visit}
        if self._iteration is not None:
            base["index"] = self._iteration["index"]
        if outcome.set or outcome.objects:
            # They lie in the log, so not even another name lets a secret of the result in.
            self._shown_secrets |= secret_values(to_jsonable(outcome.value))
        shown = self._shown()
        warnings = list(outcome.warnings)
        wanted: list[tuple[EventType, dict[str, Any]]] = [
            (
                EventType.TASK_ATTEMPT_FAILED,
                base
                | {
                    "task": failed.task,
                    "attempt": failed.attempt,
                    "delay_s": failed.delay_s,
                    "error": bounded(shown.value(failed.error)),
                },
            )
            for failed in outcome.failed_attempts[-ATTEMPTS_KEPT:]
        ]
        call = base | {"result": result, "attempt": self._offer.attempt, "runs": outcome.runs}
        rows = count_rows(outcome.value)
        if rows is not None:
            call["rows"] = rows
        if outcome.set:
            given = to_jsonable(outcome.set)
            kept = call["set"] = mask(shown.value(given))
            lost = [key for key in given if kept.get(key) != given[key]]
            warnings += [f"set {key} looks like a credential and is not kept" for key in lost]
        if warnings:
            call["warnings"] = shown.value(warnings)
        objects = object_events(outcome.objects, base, result.get("reference"), shown)
        if outcome.ok:
            wanted += [(EventType.CALL_DONE, call), *objects, (EventType.COMMAND_COMPLETED, base)]
        else:
            wanted += [(EventType.CALL_ERROR, call | {"error": error}), *objects]
            wanted.append((EventType.COMMAND_FAILED, base | {"error": error}))
        return self._chain(wanted)

    def _chain(self, wanted: list[tuple[EventType, dict[str, Any]]]) -> list[Event]:
        issued = self._offer.issued
        prev = self._offer.prev_event_id
        events: list[Event] = []
        now = self._p.clock.now_ms()
        for kind, payload in wanted:
            event = command_event(
                kind,
                payload,
                scope=self._scope,
                shard=self._offer.shard,
                execution_id=issued.execution_id,
                command_id=issued.command_id or "",
                attempt=self._offer.attempt,
                event_id=self._p.ids.mint(),
                now_ms=now,
                producer=self._me.producer,
                prev_event_id=prev,
                causation_id=issued.event_id,
            )
            prev = event.event_id
            events.append(event)
        return events

    async def _publish(self, events: list[Event]) -> None:
        """The work is done, so keep trying: only the log may say that it does not count."""
        record = Record(events=tuple(events))
        while True:
            try:
                await self._p.log.append(
                    subject_of(self._offer), record, expected_version=self._offer.version
                )
                return
            except LogUnavailableError as error:
                _log.warning("completion of %s waits: %s", events[0].command_id, error)
                await self._p.clock.sleep(0.5)

    async def _cancelled(self) -> None:
        await self._logbook.close()
        events = self._chain(
            [(EventType.COMMAND_CANCELLED, {"step": self._step, "visit": self._visit})]
        )
        try:
            await self._p.log.append(
                subject_of(self._offer),
                Record(events=tuple(events)),
                expected_version=self._offer.version,
            )
        except NoetlError as error:
            _log.info("cancel of %s not recorded: %s", events[0].command_id, error)


def subject_of(offer: Offer) -> str:
    """The command's own subject."""
    issued = offer.issued
    scope = scope_of(issued.tenant_id, issued.organization_id)
    return command_subject(offer.shard, scope, issued.execution_id, issued.command_id or "")


def bounded(error: dict[str, Any]) -> dict[str, Any]:
    """An error small enough for the log; what is too long is cut, its length is kept."""
    small, _ = extract(to_jsonable(error), ERROR_BYTES_MAX)
    return small if isinstance(small, dict) else {"message": str(small)}


def within_limits(outcome: PipelineOutcome) -> PipelineOutcome:
    """Refuse variables too large for the log; bodies belong in the step's result."""
    size = len(canonical_json(to_jsonable(outcome.set))) if outcome.set else 0
    if size <= SET_BYTES_MAX:
        return outcome
    error = {
        "kind": "schema",
        "code": "schema",
        "retryable": False,
        "message": f"the step's `set` holds {size} bytes, at most {SET_BYTES_MAX}; "
        "leave large values in the step's result",
    }
    return replace(outcome, ok=False, error=error, set={})


def count_rows(value: Any) -> int | None:
    """How many rows a result holds, for people who watch; None when it holds none."""
    if isinstance(value, dict):
        count = value.get("row_count")
        value = value.get("rows", count)
        if isinstance(count, int):
            return count
    return len(value) if isinstance(value, list) else None
