"""Runs the engine alone: a list stands for the log, given outcomes stand for workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from noetl_ray.dsl.model import Arc, Playbook, Step, Task
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.decide import decide
from noetl_ray.engine.fold import fold
from noetl_ray.engine.inputs import Claim, Inputs, Program, accepted
from noetl_ray.engine.state import ExecutionState, encode_state
from noetl_ray.events.envelope import Event, Record, decode_record, encode_record, seal
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.scope import Scope
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.subjects import (
    command_subject,
    control_subject,
    inbox_subject,
    submit_subject,
)

TEMPLATES = Templates()
SCOPE = Scope()
EXECUTION = 7001
DIGEST = "d" * 64


def step(
    name: str, *arcs: Any, kind: str | None = "noop", mode: str = "exclusive", **more: Any
) -> Step:
    """A step with arcs given as names, (name, when) or Arc."""
    made = []
    for arc in arcs:
        if isinstance(arc, Arc):
            made.append(arc)
        elif isinstance(arc, tuple):
            made.append(Arc(step=arc[0], when=arc[1]))
        else:
            made.append(Arc(step=arc))
    tasks = () if kind is None else (Task(label=f"{name}_task", kind=kind, config={}),)
    return Step(name=name, tasks=tasks, arcs=tuple(made), mode=mode, **more)  # type: ignore[arg-type]


def playbook(*steps: Step, workload: dict[str, Any] | None = None) -> Playbook:
    """A playbook of steps, the first is the entry."""
    return Playbook(
        name="p",
        path="p",
        workload=workload or {},
        steps={s.name: s for s in steps},
        entry=steps[0].name,
        digest=DIGEST,
        source="",
    )


@dataclass
class Rig:
    """One execution."""

    playbook: Playbook
    workload: dict[str, Any] = field(default_factory=dict)
    log: list[Recorded] = field(default_factory=list)
    state: ExecutionState | None = None
    claim: Claim | None = None
    resolved: dict[str, Any] = field(default_factory=dict)
    frame_defaults: dict[str, Any] = field(default_factory=dict)
    _ids: int = 0

    def __post_init__(self) -> None:
        self.program = Program(self.playbook, TEMPLATES)

    def mint(self) -> int:
        self._ids += 1
        return self._ids

    def event(self, kind: EventType, payload: dict[str, Any], **more: Any) -> Event:
        return seal(
            Event(
                event_id=self.mint(),
                tenant_id="default",
                organization_id="default",
                execution_id=EXECUTION,
                stream_id=more.pop("stream_id"),
                aggregate_id="x",
                aggregate_type=more.pop("aggregate_type"),
                event_type=kind,
                event_time="2026-01-01T00:00:00.000Z",
                producer="noetl://tenant/default/org/default/test/1",
                payload=payload,
                idempotency_key=f"k{self._ids}",
                **more,
            )
        )

    def append(self, subject: str, *events: Event, consumed: tuple[int, ...] = ()) -> None:
        record = decode_record(encode_record(Record(events=events, consumed=consumed)))
        recorded = Recorded(position=len(self.log) + 1, subject=subject, time_ms=0, record=record)
        self.log.append(recorded)
        self.state = fold(self.state, recorded)

    def request(self) -> None:
        subject = submit_subject(3, SCOPE, EXECUTION)
        self.append(
            subject,
            self.event(
                EventType.EXECUTION_REQUESTED,
                {
                    "playbook": {"path": "p", "version": 1, "digest": DIGEST},
                    "workload": self.workload or self.playbook.workload,
                    "project_id": "default",
                },
                stream_id=subject,
                aggregate_type=AggregateType.SUBMISSION,
            ),
        )

    def cancel(self, reason: str = "why not") -> None:
        subject = inbox_subject(3, SCOPE, EXECUTION)
        self.append(
            subject,
            self.event(
                EventType.EXECUTION_CANCEL_REQUESTED,
                {"reason": reason},
                stream_id=subject,
                aggregate_type=AggregateType.INBOX,
            ),
        )

    def ask(self, kind: EventType) -> None:
        """The owner of the execution says something: pause or resume."""
        subject = inbox_subject(3, SCOPE, EXECUTION)
        said = self.event(
            kind, {"reason": "r"}, stream_id=subject, aggregate_type=AggregateType.INBOX
        )
        self.append(subject, said)

    def decide(self) -> bool:
        assert self.state is not None
        inputs = Inputs(
            now_ms=1_767_225_600_000,
            producer="noetl://tenant/default/org/default/test/1",
            mint=self.mint,
            assign=lambda _c: self.claim,
            resolved=self.resolved,
            frame_defaults=self.frame_defaults,
        )
        decision = decide(self.state, self.program, inputs)
        if decision is None:
            return False
        self.append(
            control_subject(3, SCOPE, EXECUTION),
            *decision.record.events,
            consumed=decision.record.consumed,
        )
        # What a conductor goes on with is what everybody else folds.
        assert encode_state(accepted(decision.state, self.log[-1])) == encode_state(self.state)
        return True

    def settle(self) -> None:
        while self.decide():
            pass

    def open(self) -> list[str]:
        """Steps whose commands are open."""
        assert self.state is not None
        pending = {e.command_id for events in self.state.pending.values() for e in events}
        return sorted(c.step for c in self.state.commands.values() if c.command_id not in pending)

    def finish(
        self,
        name: str,
        value: Any = None,
        *,
        error: dict[str, Any] | None = None,
        block: dict[str, Any] | None = None,
    ) -> None:
        """A worker completes the open command of a step."""
        assert self.state is not None
        pending = {e.command_id for events in self.state.pending.values() for e in events}
        command = next(
            c
            for c in self.state.commands.values()
            if c.step == name and c.command_id not in pending
        )
        subject = command_subject(3, SCOPE, EXECUTION, command.command_id)
        common = {
            "stream_id": subject,
            "aggregate_type": AggregateType.COMMAND,
            "command_id": command.command_id,
        }
        result = block or {
            "status": "error" if error else "ok",
            "tier": "inline",
            "reference": None,
            "extracted": value if value is not None else {},
        }
        base: dict[str, Any] = {"step": name, "visit": command.visit}
        tail = command.command_id.rsplit(".", 1)
        if len(tail) == 2:
            base["index"] = int(tail[1])
        if error:
            first = self.event(
                EventType.CALL_ERROR, base | {"result": result, "error": error}, **common
            )
            second = self.event(EventType.COMMAND_FAILED, base | {"error": error}, **common)
        else:
            first = self.event(EventType.CALL_DONE, base | {"result": result}, **common)
            second = self.event(EventType.COMMAND_COMPLETED, base, **common)
        self.append(subject, first, second)

    def run(self, outcomes: dict[str, Any] | None = None) -> list[str]:
        """Run to the end, completing open commands in name order; the steps that ran, in order."""
        ran: list[str] = []
        self.request()
        self.settle()
        for _ in range(500):
            waiting = self.open()
            if not waiting:
                break
            name = waiting[0]
            ran.append(name)
            outcome = (outcomes or {}).get(name)
            if callable(outcome):
                outcome = outcome(self)
            if isinstance(outcome, Exception):
                self.finish(name, error={"kind": "unknown", "message": str(outcome)})
            else:
                self.finish(name, outcome)
            self.settle()
        return ran

    def types(self) -> list[str]:
        return [e.event_type.value for r in self.log for e in r.record.events]
