"""``decide(state, program, inputs) -> Decision``: what follows from the facts that wait, as events.

Pure: the clock, the ids and the choice of a worker come in as inputs and go out in the events.
While it decides, every event is applied to a draft with the fold's own functions, so that the state
after an accepted append is the draft, and a replay of the record gives the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.clock import iso_utc
from noetl_ray.engine import ending
from noetl_ray.engine.children import take_child_fact
from noetl_ray.engine.context import command_context
from noetl_ray.engine.continuing import initialize
from noetl_ray.engine.envelope import Output, http_block, output_value
from noetl_ray.engine.fold import apply_control, consume
from noetl_ray.engine.fold_children import CHILD_FACTS
from noetl_ray.engine.inbox import take_from_inbox
from noetl_ray.engine.inputs import Decision, Inputs, Program, ResultNeededError
from noetl_ray.engine.joins import startable
from noetl_ray.engine.loops import iteration_of, result_bytes
from noetl_ray.engine.names import EventName, Names, extracted_value, whole_value
from noetl_ray.engine.results import StepResults
from noetl_ray.engine.routing import Routing
from noetl_ray.engine.stages import go_on, start_loop
from noetl_ray.engine.state import ExecutionState, running_steps, takeable_facts, wants_decision
from noetl_ray.engine.variables import assign_variable
from noetl_ray.engine.waiting import let_due_go_on
from noetl_ray.errors import NotInlineError, TemplateError
from noetl_ray.events.envelope import Event, Record, seal
from noetl_ray.events.types import FRAME_TERMINAL, INBOX_FACTS, AggregateType, EventType
from noetl_ray.wal.subjects import control_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.dsl.model import Step

EVENTS_PER_DECISION_SOFT_MAX = 128
EVENTS_PER_DECISION_HARD_MAX = 240
_ISSUES = frozenset({EventType.COMMAND_ISSUED, EventType.FRAME_DISPATCHED})
RESOLVE_BYTES_MAX = 67_108_864
"""A result larger than this is not fetched to answer a condition."""


def decide(state: ExecutionState, program: Program, inputs: Inputs) -> Decision | None:
    """What follows from the pending facts; None when nothing does."""
    if state.terminal or not wants_decision(state, inputs.now_ms):
        return None
    work = _Deciding(state, program, inputs)
    consumed: list[int] = []
    for position in takeable_facts(work.draft):
        consumed.append(position)
        work.take(position)
        full = len(work.events) >= EVENTS_PER_DECISION_SOFT_MAX
        if full or len(consumed) >= inputs.facts_max or work.draft.terminal:
            break
    work.settle()
    if not work.events:
        return None
    record = Record(events=tuple(work.events), consumed=tuple(consumed))
    return Decision(record=record, state=work.draft, collections=work.collections)


class _Deciding:
    """One decision under way: a draft and the events so far."""

    def __init__(self, state: ExecutionState, program: Program, inputs: Inputs) -> None:
        self.draft = state.draft()
        self.program = program
        self.inputs = inputs
        self.events: list[Event] = []
        self.collections: dict[str, list[Any]] = {}
        self._time = iso_utc(inputs.now_ms)
        self._subject = control_subject(state.shard, state.scope, state.execution_id)
        self._prev = state.control_event_id or state.root_event_id
        self._cause: int | None = None
        self._routing = Routing(program.playbook.steps, program.templates)

    def take(self, position: int) -> None:
        """Consume one fact and do what follows from it directly."""
        facts = self.draft.pending[position]
        fact = facts[0]
        self._cause = fact.event_id
        consume(self.draft, (position,))
        kind = fact.event_type
        if kind is EventType.EXECUTION_REQUESTED:
            if initialize(self, fact):
                self._enter(self.program.playbook.entry)
        elif kind in INBOX_FACTS:
            take_from_inbox(self, fact, position)
        elif kind in CHILD_FACTS:
            take_child_fact(self, fact, position)
        elif kind in FRAME_TERMINAL or "index" in fact.payload:
            if fact.payload["step"] in self.draft.loops:
                self._continue_loop(fact.payload["step"])
        else:
            status = "completed" if kind is EventType.CALL_DONE else "failed"
            self._leave(fact.payload["step"], status, fact.event_id)

    def settle(self) -> None:
        """Start what may start now, and end the execution when nothing is left."""
        draft = self.draft
        if draft.status == "PAUSED":
            return
        let_due_go_on(self, EVENTS_PER_DECISION_HARD_MAX)
        for name in list(draft.loops):
            self._continue_loop(name)
        while len(self.events) < EVENTS_PER_DECISION_HARD_MAX:
            if draft.terminal or not draft.held or draft.failed is not None:
                break
            step = startable(self.program.graph, draft.held, running_steps(draft))
            if step is None:
                break
            self._enter(step)
        if draft.terminal or running_steps(draft) or (draft.held and draft.failed is None):
            return
        ending.end(self)

    def emit(
        self,
        kind: EventType,
        payload: dict[str, Any],
        *,
        command_id: str | None = None,
        stage_id: str | None = None,
        frame_id: str | None = None,
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
                idempotency_key=f"{command_id}/issued" if kind in _ISSUES else None,
                prev_event_id=self._prev,
                command_id=command_id,
                stage_id=stage_id,
                frame_id=frame_id,
            )
        )
        self._prev = event.event_id
        self.events.append(event)
        apply_control(draft, event, 0)
        return event

    @property
    def workload(self) -> dict[str, Any]:
        """The merged input of the execution."""
        given = self.inputs.workload
        return self.draft.workload if given is None else given

    def _enter(self, name: str) -> None:
        """Enter a step: skip it, pass through it, or issue its command."""
        draft = self.draft
        step = self.program.playbook.steps[name]
        before = draft.steps.get(name)
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
        except TemplateError as error:
            self._fail(name, visit, error)
            return
        if step.loop is not None:
            self._start_loop(step, visit)
        elif step.tasks:
            self._issue(step, visit)
        else:
            self._leave(name, "completed", None)

    def _issue(self, step: Step, visit: int, iteration: dict[str, Any] | None = None) -> None:
        """Issue the command of a step, or of one iteration of its loop."""
        draft = self.draft
        reads = self.program.reads.of(step.name, self.workload)
        context = command_context(draft, self.workload, reads)
        command_id = f"{draft.execution_id}-{step.name}-{visit}"
        payload: dict[str, Any] = {
            "step": step.name,
            "visit": visit,
            "attempt": 1,
            "playbook_digest": self.program.playbook.digest,
            "project_id": draft.project_id,
            "context": context,
        }
        if draft.depth:
            payload["depth"] = draft.depth
        if iteration is not None:
            # A dot cannot stand in for the dash: step `a` item 1-2 is not step `a-1` visit 2.
            command_id = f"{command_id}.{iteration['index']}"
            context["item"] = iteration.pop("item")
            payload["iteration"] = iteration
        claim = self.inputs.assign(command_id)
        payload["claim"] = None if claim is None else msgspec.to_builtins(claim)
        self.emit(EventType.COMMAND_ISSUED, payload, command_id=command_id)

    def _start_loop(self, step: Step, visit: int) -> None:
        """Fix the collection of a loop, then issue what its window allows."""
        try:
            start_loop(self, step, visit, self._names({}))
        except TemplateError as error:
            self._fail(step.name, visit, error)
            return
        self._continue_loop(step.name)

    def _continue_loop(self, name: str) -> None:
        """Issue iterations while there is room; leave the step when all are back."""
        step = self.program.playbook.steps[name]
        if self.draft.loops[name].stage is not None:
            ended = go_on(self, step, EVENTS_PER_DECISION_HARD_MAX)
            if ended is not None:
                self._leave(name, ended, None)
            return
        while len(self.events) < EVENTS_PER_DECISION_HARD_MAX and self.draft.failed is None:
            loop = self.draft.loops[name]
            if not loop.has_room:
                break
            items = loop.items if loop.items is not None else self.inputs.loop_items[name]
            self._issue(step, loop.visit, iteration_of(loop, items))
        loop = self.draft.loops[name]
        stopped = loop.failed > 0 or self.draft.failed is not None
        if loop.in_flight == 0 and (stopped or loop.issued == loop.total):
            stats = {"total": loop.total, "success": loop.done, "failed": loop.failed}
            self.emit(EventType.LOOP_DONE, {"step": name, "visit": loop.visit, "stats": stats})
            self._leave(name, "failed" if loop.failed else "completed", None)

    def _leave(self, name: str, status: str, cause: int | None) -> None:
        """Leave a step: its `set`, then its arcs."""
        step = self.program.playbook.steps[name]
        state = self.draft.steps[name]
        output = self._output(name, status)
        done = "loop.done" if step.loop is not None else "call.done"
        event = {
            "name": EventName("call.error" if status == "failed" else done),
            "step": name,
            "payload": {key: output[key] for key in ("status", "result", "error")},
            "timestamp": self._time,
        }
        locals_ = {"output": output, "outcome": output, "event": event}
        try:
            names = self._names(locals_)
            values: dict[str, Any] = {}
            if (step.set or step.vars) and status == "completed":
                mine = {**locals_, "result": output["data"], "data": output["data"]}
                values = self._routing.values(step.vars, self._names(mine)) if step.vars else {}
                values |= self._routing.values(step.set, names)
                names = self._names(locals_, values)
            arcs, handled = self._routing.arcs(step, names, failed=status == "failed")
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
        self._ask_for_result(error)
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

    def _ask_for_result(self, error: TemplateError) -> None:
        """Stop the decision where a whole result would answer what a template asked."""
        if isinstance(error, NotInlineError) and error.step:
            state = self.draft.steps.get(error.step)
            if state is None or state.result is None:
                return
            fits = result_bytes(state.result) <= RESOLVE_BYTES_MAX
            if fits and error.step not in self.inputs.resolved:
                raise ResultNeededError(error.step, state.result)

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
            payload["result"] = ending.told(result)
        warnings = self._routing.warnings()
        if warnings:
            payload["warnings"] = warnings
        if status == "failed":
            payload["error"] = error or self.draft.steps[name].error
            payload["handled"] = handled
        self.emit(EventType.STEP_EXIT, payload)

    def _admitted(self, step: Step) -> bool:
        if not step.admit:
            return True
        names = self._names({})
        for rule in step.admit:
            if rule.when is None or self._truth(rule.when, names):
                return rule.do != "fail"
        return True

    def _truth(self, template: Any, names: Names) -> bool:
        return self.program.templates.truth(template, names)

    def _output(self, name: str, status: str) -> Output:
        state = self.draft.steps[name]
        data: Any = None
        if state.result is not None:
            known = self.inputs.resolved
            if name in known:
                data = output_value(whole_value(state.result, known[name]))
            else:
                data = output_value(extracted_value(state.result, name))
        return Output(
            status="error" if status == "failed" else "ok",
            data=data,
            error=state.error,
            ref=(state.result or {}).get("reference"),
            meta={"attempt": 1},
            http=http_block(data, state.error),
        )

    def _names(self, locals_: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> Names:
        draft = self.draft
        ctx = draft.ctx
        if values:
            ctx = dict(draft.ctx)
            for key, value in values.items():
                assign_variable(ctx, draft.workload, key, value)
        return Names(
            self.program.templates,
            execution_id=draft.execution_id,
            workload=self.workload,
            ctx=ctx,
            steps=StepResults(draft.steps, self.inputs.resolved),
            env=self.inputs.env,
            locals_=locals_,
            now=lambda: self._time,
        )
