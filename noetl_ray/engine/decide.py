"""``decide(state, program, inputs) -> Decision``: what follows from the facts that wait, as events.

Pure: the clock, the ids and the choice of a worker come in as inputs and go out in the events.
While it decides, every event is applied to a draft with the fold's own functions, so that the state
after an accepted append is the draft, and a replay of the record gives the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.clock import iso_utc
from noetl_ray.engine.context import command_context
from noetl_ray.engine.fold import apply_control, assign, consume
from noetl_ray.engine.inputs import Decision, Inputs, Program
from noetl_ray.engine.joins import startable
from noetl_ray.engine.names import EventName, Names, extracted_value
from noetl_ray.engine.results import StepResults
from noetl_ray.engine.state import ExecutionState, running_steps
from noetl_ray.errors import NotInlineError, TemplateError
from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import Event, Record, seal
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.wal.subjects import control_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.dsl.model import Arc, Step

EVENTS_PER_DECISION_SOFT_MAX = 128
EVENTS_PER_DECISION_HARD_MAX = 240
WARNINGS_MAX = 20
SET_VALUE_BYTES_MAX = 102_400
WARNING_CHARS_MAX = 300


def decide(state: ExecutionState, program: Program, inputs: Inputs) -> Decision | None:
    """What follows from the pending facts; None when nothing does."""
    if state.terminal or not (state.pending or state.held):
        return None
    work = _Deciding(state, program, inputs)
    consumed: list[int] = []
    for position in sorted(state.pending):
        consumed.append(position)
        work.take(position)
        if len(work.events) >= EVENTS_PER_DECISION_SOFT_MAX or work.draft.terminal:
            break
    work.settle()
    if not work.events:
        return None
    record = Record(events=tuple(work.events), consumed=tuple(consumed))
    return Decision(record=record, state=work.draft)


class _Deciding:
    """One decision under way: a draft and the events so far."""

    def __init__(self, state: ExecutionState, program: Program, inputs: Inputs) -> None:
        self.draft = state.draft()
        self.program = program
        self.inputs = inputs
        self.events: list[Event] = []
        self._time = iso_utc(inputs.now_ms)
        self._subject = control_subject(state.shard, state.scope, state.execution_id)
        self._prev = state.control_event_id or state.root_event_id
        self._cause: int | None = None
        self._warnings: list[str] = []

    def take(self, position: int) -> None:
        """Consume one fact and do what follows from it directly."""
        facts = self.draft.pending[position]
        fact = facts[0]
        self._cause = fact.event_id
        consume(self.draft, (position,))
        kind = fact.event_type
        if kind is EventType.EXECUTION_REQUESTED:
            self.emit(EventType.PLAYBOOK_INITIALIZED, {"playbook": fact.payload["playbook"]})
            self._enter(self.program.playbook.entry)
        elif kind is EventType.EXECUTION_CANCEL_REQUESTED:
            self.emit(
                EventType.EXECUTION_CANCELLED,
                {
                    "reason": self.draft.cancel_reason,
                    "final_step": self.draft.final_step,
                    "open_commands": sorted(self.draft.commands),
                },
            )
        else:
            ok = kind is EventType.CALL_DONE
            self._leave(fact.payload["step"], "completed" if ok else "failed", fact.event_id)

    def settle(self) -> None:
        """Start what may start now, and end the execution when nothing is left."""
        draft = self.draft
        while len(self.events) < EVENTS_PER_DECISION_HARD_MAX:
            if draft.terminal or not draft.held or draft.failed is not None:
                break
            step = startable(self.program.graph, draft.held, running_steps(draft))
            if step is None:
                break
            self._enter(step)
        if draft.terminal or running_steps(draft) or (draft.held and draft.failed is None):
            return
        if draft.failed is not None:
            self.emit(
                EventType.PLAYBOOK_FAILED,
                {"final_step": draft.final_step, "error": draft.failed},
            )
        else:
            self.emit(
                EventType.PLAYBOOK_COMPLETED,
                {"final_step": draft.final_step, "failures_handled": draft.failures_handled},
            )

    def emit(
        self, kind: EventType, payload: dict[str, Any], *, command_id: str | None = None
    ) -> Event:
        """Add an event to the decision and apply it to the draft."""
        draft = self.draft
        event = seal(
            Event(
                event_id=self.inputs.mint(),
                tenant_id=draft.tenant_id,
                organization_id=draft.organization_id,
                execution_id=draft.execution_id,
                stream_id=self._subject,
                aggregate_id=f"execution/{draft.execution_id}",
                aggregate_type=AggregateType.EXECUTION,
                event_type=kind,
                event_time=self._time,
                producer=self.inputs.producer,
                payload=payload,
                causation_id=self._cause,
                correlation_id=str(draft.execution_id),
                idempotency_key=f"{command_id}/issued" if command_id else None,
                prev_event_id=self._prev,
                command_id=command_id,
            )
        )
        self._prev = event.event_id
        self.events.append(event)
        apply_control(draft, event, 0)
        return event

    @property
    def _workload(self) -> dict[str, Any]:
        given = self.inputs.workload
        return self.draft.workload if given is None else given

    def _enter(self, name: str) -> None:
        """Enter a step: skip it, pass through it, or issue its command."""
        draft = self.draft
        step = self.program.playbook.steps[name]
        before = draft.steps.get(name)
        if before is not None and before.status == "running":
            # A step in flight is not started twice; the second token is absorbed.
            draft.held.pop(name, None)
            return
        visit = before.visits + 1 if before else 1
        token = draft.held.get(name)
        sources = list(token.sources) if token else []
        self.emit(EventType.STEP_ENTER, {"step": name, "visit": visit, "from": sources})
        try:
            if not self._admitted(step):
                self._exit_event(name, visit, "skipped", arcs=[])
                return
            if step.when is not None and not self._truth(step.when, self._names({})):
                self._leave(name, "skipped", None)
                return
            reads = self.program.reads.of(name, self._workload)
            context = command_context(draft, self._workload, reads)
        except TemplateError as error:
            self._fail(name, visit, error)
            return
        if not step.tasks:
            self._leave(name, "completed", None)
            return
        command_id = f"{draft.execution_id}-{name}-{visit}"
        claim = self.inputs.assign(command_id)
        self.emit(
            EventType.COMMAND_ISSUED,
            {
                "step": name,
                "visit": visit,
                "attempt": 1,
                "playbook_digest": self.program.playbook.digest,
                "project_id": draft.project_id,
                "context": context,
                "claim": None
                if claim is None
                else {
                    "worker_id": claim.worker_id,
                    "incarnation": claim.incarnation,
                    "lease_ms": claim.lease_ms,
                    "distance": claim.distance,
                },
            },
            command_id=command_id,
        )

    def _leave(self, name: str, status: str, cause: int | None) -> None:
        """Leave a step: its `set`, then its arcs."""
        step = self.program.playbook.steps[name]
        state = self.draft.steps[name]
        output = self._output(name, status)
        event = {"name": EventName("call.error" if status == "failed" else "call.done")}
        locals_ = {"output": output, "outcome": output, "event": event | {"step": name}}
        try:
            names = self._names(locals_)
            values: dict[str, Any] = {}
            if step.set and status == "completed":
                values = self._set(step.set, names)
                names = self._names(locals_, values)
            arcs, handled = self._arcs(step, names, failed=status == "failed")
        except TemplateError as error:
            self._fail(name, state.visits, error)
            return
        self._exit_event(
            name,
            state.visits,
            status,
            arcs=arcs,
            handled=handled,
            values=values,
            result=state.result if status != "skipped" else None,
        )

    def _fail(self, name: str, visit: int, error: TemplateError) -> None:
        self._exit_event(
            name,
            visit,
            "failed",
            arcs=[],
            error={
                "kind": "template",
                "message": error.message,
                "template": error.template,
                "retryable": False,
                "step": name,
            },
        )

    def _exit_event(
        self,
        name: str,
        visit: int,
        status: str,
        *,
        arcs: list[dict[str, Any]],
        handled: bool = False,
        values: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        payload: dict[str, Any] = {"step": name, "visit": visit, "status": status, "arcs": arcs}
        if values:
            payload["set"] = values
        if result is not None:
            payload["result"] = {
                "status": result["status"],
                "reference": result["reference"],
                "parent_ref": result.get("parent_ref"),
                "context": {},
            }
        if self._warnings:
            payload["warnings"], self._warnings = self._warnings[:WARNINGS_MAX], []
        if status == "failed":
            payload["error"] = error or self.draft.steps[name].error
            payload["handled"] = handled
        self.emit(EventType.STEP_EXIT, payload)

    def _arcs(self, step: Step, names: Names, *, failed: bool) -> tuple[list[dict[str, Any]], bool]:
        """The arcs taken, and whether any matched.

        After a failure only arcs with a condition count (section 11). An arc to a missing step
        (`end`, by the validator) matches and leads nowhere.
        """
        taken: list[dict[str, Any]] = []
        matched = False
        for arc in step.arcs:
            if failed and arc.when is None:
                continue
            if arc.when is not None and not self._matches(arc, names):
                continue
            matched = True
            if arc.step in self.program.playbook.steps:
                taken.append(self._taken(arc, names))
            if step.mode == "exclusive":
                break
        return taken, matched

    def _taken(self, arc: Arc, names: Names) -> dict[str, Any]:
        return (
            {"step": arc.step, "set": self._set(arc.set, names)} if arc.set else {"step": arc.step}
        )

    def _set(self, wanted: Mapping[str, Any], names: Names) -> dict[str, Any]:
        """All values of one `set` are rendered against the state before it."""
        values: dict[str, Any] = {}
        for key, template in wanted.items():
            try:
                value = self.program.templates.value(template, names, coerce=True)
            except NotInlineError:
                raise
            except TemplateError as error:
                self._warn(f"set {key}: {error.message}")
                continue
            size = len(canonical_json(value))
            if size > SET_VALUE_BYTES_MAX:
                msg = (
                    f"set {key} would put {size} bytes into the variables, at most "
                    f"{SET_VALUE_BYTES_MAX}; leave it in the step's result and read it from there"
                )
                raise NotInlineError(msg, str(template)[:200])
            values[key.removeprefix("ctx.").removeprefix("step.")] = value
        return values

    def _admitted(self, step: Step) -> bool:
        if not step.admit:
            return True
        names = self._names({})
        for rule in step.admit:
            if rule.when is None or self._truth(rule.when, names):
                return rule.do != "fail"
        return True

    def _matches(self, arc: Arc, names: Names) -> bool:
        """A condition that cannot be evaluated does not match, and the exit says so (section 3)."""
        try:
            return self._truth(arc.when, names)
        except NotInlineError:
            raise
        except TemplateError as error:
            self._warn(f"arc to {arc.step}: {error.message}")
            return False

    def _warn(self, text: str) -> None:
        self._warnings.append(text[:WARNING_CHARS_MAX])

    def _truth(self, template: Any, names: Names) -> bool:
        return self.program.templates.truth(template, names)

    def _output(self, name: str, status: str) -> dict[str, Any]:
        state = self.draft.steps[name]
        return {
            "status": "error" if status == "failed" else "ok",
            "data": extracted_value(state.result, name) if state.result else None,
            "error": state.error,
            "ref": (state.result or {}).get("reference"),
            "meta": {"attempt": 1},
        }

    def _names(self, locals_: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> Names:
        draft = self.draft
        ctx = draft.ctx
        if values:
            ctx = dict(draft.ctx)
            for key, value in values.items():
                assign(ctx, key, value)
        return Names(
            self.program.templates,
            execution_id=draft.execution_id,
            workload=self._workload,
            ctx=ctx,
            steps=StepResults(draft.steps),
            env=self.inputs.env,
            locals_=locals_,
        )
