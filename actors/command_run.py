"""One command from its offer to its completion in the log: load, run, persist, publish.

Owns what a worker knows while it runs a command. The bytes of a result are durable before the event
that names them; what a task's credentials hold never reaches an event, a log line or a result.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from actors.barrier import Barrier
from actors.callbacks import asking_of
from actors.calls import Calls, answer_of
from actors.command_keychain import command_keychain
from actors.completion import completion, within_limits
from actors.holding import Holding
from actors.logbook import Logbook
from actors.patience import patiently
from actors.task_records import TaskRecords
from noetl_ray.clock import iso_utc
from noetl_ray.dsl.pycode import code_reads
from noetl_ray.engine.loops import iteration_names
from noetl_ray.engine.names import Names, plain_names, whole_value
from noetl_ray.errors import LogError, NoetlError, ToolError
from noetl_ray.events.canonical import to_jsonable
from noetl_ray.events.types import EventType
from noetl_ray.locator.result import ResultName, frame_coordinate, step_coordinate
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.extracted import MASKED
from noetl_ray.results.options import NO_OPTIONS, StorageOptions, storage_options
from noetl_ray.results.redact import Redactor, is_secret_field, secret_values
from noetl_ray.scope import scope_of
from noetl_ray.tools.outcome import PipelineOutcome
from noetl_ray.tools.pipeline import Adopt, Pipeline
from noetl_ray.tools.port import Parked, PlaybookCall, ToolContext, ToolResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping

    from actors.lease import WorkerLease
    from actors.messages import Offer
    from actors.worker_ports import WorkerIdentity, WorkerPorts
    from noetl_ray.credentials.port import Credential
    from noetl_ray.dsl.model import Task
    from noetl_ray.engine.inputs import Program
    from noetl_ray.results.ref import Status
    from noetl_ray.tools.keychain import Keychain
    from noetl_ray.tools.locals import Progress

_log = logging.getLogger(__name__)

EARLIER_HOLDERS_MAX = 4
"""Holders whose results the barrier looks for; older ones are in the log or count as doubt."""
SUCCESS, FAILURE = 1, 2
"""Versions of a command's result."""

T = TypeVar("T")


class CommandRun:
    """One command from its offer to its completion in the log."""

    def __init__(
        self,
        me: WorkerIdentity,
        ports: WorkerPorts,
        offer: Offer,
        lease: WorkerLease,
        nudged: Container[str],
        advanced: Callable[[int], None] = lambda _version: None,
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
        self._redacting = 0, Redactor(())
        self._step: str = issued.payload["step"]
        self._visit: int = issued.payload["visit"]
        self._iteration: dict[str, Any] | None = issued.payload.get("iteration")
        self._loop_names: dict[str, Any] = {}
        self._keychain: Keychain | None = None
        self._storage = NO_OPTIONS
        self._answer: ToolResult | ToolError | None = None
        self._calls = Calls(
            ports.submit,
            scope=self._scope,
            depth=issued.payload.get("depth", 0),
            redactor=self._redactor,
        )
        self._artifacts = Artifacts(ports.results, self._scope, self._redactor)
        self._base: dict[str, Any] = {"step": self._step, "visit": self._visit}
        if self._iteration is not None:
            self._base["index"] = self._iteration["index"]
        self._logbook = Logbook(ports.tasklog, ports.clock, offer, self._scope, self._shown)
        self._holding = Holding(
            offer, ports.log, ports.ids, ports.clock, producer=me.producer, advanced=advanced
        )
        self._records = TaskRecords(
            ports.log,
            ports.results,
            ports.contexts,
            self._holding,
            scope=self._scope,
            base=self._base,
            persist=self._persist_task,
            redactor=self._redactor,
            shown=self._shown,
            learn=self._shown_secrets.update,
        )

    async def run(self) -> None:
        """Run, persist, publish."""
        try:
            outcome = await self._pipeline()
        except asyncio.CancelledError:
            if self._offer.issued.command_id in self._nudged:
                await asyncio.shield(self._cancelled())
            raise
        except Parked as parked:
            # The slot is free from here on; whoever gets the answer goes on from this record.
            await self._logbook.close()
            await self._records.park(parked)
            return
        outcome = within_limits(outcome)
        value = self._redactor().value(to_jsonable(outcome.value))
        # A failure's body lies beside, so that whatever lies at version 1 was a success (SEB-5).
        name = self._name(None, self._offer.attempt, SUCCESS if outcome.ok else FAILURE)
        result = await self._persist(name, value, self._storage, ok=outcome.ok)
        if outcome.set or outcome.objects:
            # They lie in the log, so not even another name lets a secret of the result in.
            self._shown_secrets |= secret_values(to_jsonable(outcome.value))
        await self._holding.append(
            completion(
                outcome,
                self._base,
                result=result,
                attempt=self._offer.attempt,
                shown=self._shown(),
            )
        )
        await self._logbook.close()

    def take_apart(self) -> None:
        """Let go of everything once it has run.

        The parts know each other; a garbage collector that has to find out that nobody else knows
        them costs more than a small command does.
        """
        vars(self).clear()

    async def _pipeline(self) -> PipelineOutcome:
        try:
            program, context, steps = await self._patiently(self._load)
            progress = await self._patiently(self._recorded)
        except LogError:
            raise
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
        names, keychain = self._names(program, context, ctx, steps)
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
            record=self._records.write,
            progress=progress,
            adopt=self._adopt(len(step.tasks) == 1),
            answer=self._answer,
            parks=True,
            asking=asking_of(self._p.callbacks, self._offer, step, self._secrets.add),
        )
        return await pipeline.run()

    def _adopt(self, single: bool) -> Adopt | None:
        """The barrier; a first holder has none (P19)."""
        book, last = self._p.barriers, self._offer.attempt - 1
        if not book.on or last < 1:
            return None
        attempts = range(last, max(last - EARLIER_HOLDERS_MAX, 0), -1)
        earlier = [self._name(None, attempt, SUCCESS) for attempt in attempts]
        barrier = Barrier(self._p.results, book, scope=self._scope, earlier=earlier, single=single)
        return barrier.adopt

    def _names(
        self,
        program: Program,
        context: dict[str, Any],
        ctx: dict[str, Any],
        steps: dict[str, Any],
    ) -> tuple[Names, Keychain]:
        """What templates can name here, and the keychain they may read."""
        issued = self._offer.issued
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
        return names, keychain

    async def _recorded(self) -> Progress | None:
        """Where an earlier holder's pipeline stood; a first dispatch asks nobody (P19)."""
        if not self._offer.recorded:
            return None
        event, progress = await self._records.read(self._offer.recorded)
        if event.event_type is EventType.TASK_PARKED:
            self._answer = await answer_of(
                event.payload["wait"],
                self._offer.answer,
                log=self._p.log,
                results=self._p.results,
                contexts=self._p.contexts,
                scope=self._scope,
                learn=self._shown_secrets.update,
            )
            return progress
        if self._offer.attempt > 1:
            self._p.barriers.note("skipped", event.payload.get("kind", "task"))
        return progress

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
        return await patiently(self._p.clock, self._offer.issued.command_id, work)

    async def _context_for(
        self,
        task: Task,
        attempt: int,
        turn: int,
        timeout_s: float | None,
        names: Mapping[str, Any],
    ) -> ToolContext:
        await self._lease.ensure()
        key = f"{self._offer.issued.command_id}/{task.label}/{turn}"
        return self._tool_context(task, attempt, timeout_s, names, key, self._loop_names)

    def _tool_context(
        self,
        task: Task,
        attempt: int,
        timeout_s: float | None,
        names: Mapping[str, Any],
        idempotency_key: str,
        iteration: Mapping[str, Any],
    ) -> ToolContext:
        shown = dict(iteration)
        if task.kind == "python":
            shown |= plain_names(names, code_reads(task.config))
        return ToolContext(
            execution_id=self._offer.issued.execution_id,
            step=self._step,
            task=task.label,
            attempt=attempt,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
            credential=self._credential,
            log=self._logbook.writer(task.label, attempt),
            artifacts=self._artifacts,
            scope=self._scope,
            still_ours=self._lease.ensure,
            conceal=self._secrets.add,
            pin_playbook=None if self._offer.issued.stage_id else self._pin,
            names=shown,
        )

    async def _pin(self, call: PlaybookCall) -> dict[str, Any]:
        return await self._patiently(partial(self._calls.pin, call))

    async def _credential(self, name: str) -> Credential:
        entry = await self._keychain.credential(name) if self._keychain else None
        return entry if entry is not None else await self._from_store(name)

    async def _from_store(self, name: str) -> Credential:
        """A credential of the store; what it holds is never shown from then on."""
        credential = await self._p.credentials.get(self._scope, name)
        for key, value in credential.data.items():
            if isinstance(value, str) and is_secret_field(key):
                self._secrets.add(value)
        return credential

    def _redactor(self) -> Redactor:
        known, made = self._redacting
        if known != len(self._secrets):
            # Secrets are only ever added.
            made = Redactor(self._secrets)
            self._redacting = len(self._secrets), made
        return made

    def _shown(self) -> Redactor:
        """For errors and prints; a result may pass a token on that the workload gave (P28)."""
        return Redactor(self._secrets | self._shown_secrets)

    def _name(self, task: str | None, attempt: int, version: int = 1) -> ResultName:
        issued = self._offer.issued
        return ResultName(
            tenant=self._scope.tenant_id,
            project=issued.payload.get("project_id", "default"),
            execution_id=issued.execution_id,
            step=step_coordinate(self._step, task),
            frame=frame_coordinate(self._visit),
            row=self._iteration["index"] if self._iteration else 0,
            attempt=attempt,
            version=version,
        )

    async def _persist(
        self, name: ResultName, value: Any, options: StorageOptions, *, ok: bool = True
    ) -> dict[str, Any]:
        status: Status = "ok" if ok else "error"
        now_ms = self._p.clock.now_ms()
        return await self._patiently(
            lambda: self._p.results.persist(
                self._scope, name, value, status=status, options=options, now_ms=now_ms
            )
        )

    async def _persist_task(self, label: str, run: int, value: Any) -> dict[str, Any]:
        """Each holder writes beside the ones before it: their bytes may differ (P17)."""
        name = self._name(label, run, self._offer.attempt)
        return await self._persist(name, value, NO_OPTIONS)

    async def _cancelled(self) -> None:
        await self._logbook.close()
        ended = (EventType.COMMAND_CANCELLED, {"step": self._step, "visit": self._visit}, None)
        try:
            await self._holding.append([ended], once=True)
        except NoetlError as error:
            _log.info("cancel of %s not recorded: %s", self._offer.issued.command_id, error)
