"""Fetches what decisions need and keeps out of the log what must not be in it.

Owns the I/O around the pure ``decide``: the program, workloads and items kept outside the log,
whole results a condition asked for; and on the way out the contexts that are too large or too
secret for a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from actors.collections import put_collection
from actors.contexts import ContextStore
from actors.programs import Programs
from noetl_ray.clock import Clock
from noetl_ray.engine.decide import decide
from noetl_ray.engine.inputs import Claim, Decision, Inputs, ResultNeededError
from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import Event, PayloadRef, Record, seal
from noetl_ray.events.types import EventType
from noetl_ray.hints.port import Hints
from noetl_ray.ids import SnowflakeIds
from noetl_ray.results.redact import has_credentials, mask, mask_marked
from noetl_ray.results.store import ResultStore
from noetl_ray.shards.port import CheckpointStore
from noetl_ray.submit import SubmitPorts
from noetl_ray.wal.port import Log

if TYPE_CHECKING:
    from actors.fleet import Fleet
    from noetl_ray.engine.state import ExecutionState

CONTEXT_INLINE_MAX_BYTES = 48_000
CONTEXTS_INLINE_MAX_BYTES = 400_000
"""Contexts of one decision together, so that a wide fan-out fits one message."""
ITEMS_CACHED_MAX = 64
FACTS_MAX = 1_000
_MOVABLE = {
    EventType.COMMAND_ISSUED: "context",
    EventType.FRAME_DISPATCHED: "context",
    EventType.LOOP_STARTED: "items",
    EventType.PLAYBOOK_COMPLETED: "returned",
}
_MOVED: dict[str, Any] = {"context": {}, "items": None, "returned": {}}
"""What of an event may move out of the log, and what stands in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConductorPorts:
    """What a conductor works with."""

    log: Log
    hints: Hints
    programs: Programs
    contexts: ContextStore
    results: ResultStore
    ids: SnowflakeIds
    clock: Clock
    env: Mapping[str, str]
    submit: SubmitPorts
    frame_defaults: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: CheckpointStore | None = None
    """Where states are kept; None begins at the start of the log each time."""


class Deciding:
    """Decisions of one conductor."""

    def __init__(self, ports: ConductorPorts, fleet: Fleet, producer: str) -> None:
        self._p = ports
        self._fleet = fleet
        self._producer = producer
        self._workloads: dict[int, dict[str, Any]] = {}
        self._items: dict[str, list[Any]] = {}
        self._small: set[int] = set()

    def take_less(self, execution_id: int) -> None:
        """Consume one fact at a time from now on: a decision was too large for a message."""
        self._small.add(execution_id)

    def forget(self, execution_id: int) -> None:
        """An execution has ended."""
        self._workloads.pop(execution_id, None)
        self._small.discard(execution_id)

    async def decide(self, state: ExecutionState) -> Decision | None:
        """What follows from a state, once everything the decision needs is at hand."""
        digest = _playbook_digest(state)
        program = self._p.programs.cached(state.scope, digest)
        if program is None:
            program = await self._p.programs.get(state.scope, digest)
        claims: list[tuple[str, str]] = []
        inputs = Inputs(
            now_ms=self._p.clock.now_ms(),
            producer=self._producer,
            mint=self._p.ids.mint,
            assign=partial(self._assign, claims),
            env=self._p.env,
            frame_defaults=self._p.frame_defaults,
            facts_max=1 if state.execution_id in self._small else FACTS_MAX,
            loop_items=await self._loop_items(state),
            workload=await self._workload(state),
        )
        while True:
            try:
                return decide(state, program, inputs)
            except ResultNeededError as needed:
                for worker_id, command_id in claims:
                    self._fleet.release(worker_id, command_id)
                claims.clear()
                value = await self._whole_result(state, needed.block)
                resolved = {**inputs.resolved, needed.step: value}
                inputs = msgspec.structs.replace(inputs, resolved=resolved)

    def _assign(self, claims: list[tuple[str, str]], command_id: str) -> Claim | None:
        claim = self._fleet.choose(command_id)
        if claim is not None:
            claims.append((claim.worker_id, command_id))
        return claim

    async def _whole_result(self, state: ExecutionState, block: dict[str, Any]) -> Any:
        """A step's whole result for a condition that needs it, without its secrets (P27, P28).

        The block is the decision's own: of a loop that ends in it, the state has none yet.
        """
        return mask(await self._p.results.load(state.scope, block))

    async def _loop_items(self, state: ExecutionState) -> dict[str, list[Any]]:
        """Items of open loops whose collection is too large for the log."""
        found: dict[str, list[Any]] = {}
        for name, loop in state.loops.items():
            if loop.items is None and loop.items_ref is not None and loop.has_room_later:
                ref = msgspec.convert(loop.items_ref, PayloadRef)
                known = self._items.get(ref.sha256)
                if known is None:
                    known = (await self._p.contexts.load(state.scope, ref))["items"]
                    self._items[ref.sha256] = known
                    while len(self._items) > ITEMS_CACHED_MAX:
                        self._items.pop(next(iter(self._items)))
                found[name] = known
        return found

    async def _workload(self, state: ExecutionState) -> dict[str, Any] | None:
        """The merged workload, when the request keeps it outside the log."""
        ref = _workload_ref(state)
        if ref is None:
            return None
        known = self._workloads.get(state.execution_id)
        if known is None:
            known = await self._p.contexts.load(state.scope, ref)
            self._workloads[state.execution_id] = known
        return known

    async def externalize(self, state: ExecutionState, decision: Decision) -> Record:
        """Move contexts that are large or hold a secret out of the log (P6, P24, SEC-1)."""
        record = decision.record
        events = list(record.events)
        changed = False
        inline = 0
        for index, event in enumerate(events):
            if event.event_type is EventType.STAGE_OPENED:
                items = decision.collections.get(event.stage_id or "")
                if items is not None:
                    ref = await put_collection(self._p.contexts, state.scope, items)
                    events[index] = seal(msgspec.structs.replace(event, payload_ref=ref))
                    changed = True
                continue
            if event.event_type is EventType.STEP_EXIT and _may_hold_secrets(event.payload):
                events[index] = _without_secrets(event)
                changed = True
            key = _MOVABLE.get(event.event_type)
            if key is None:
                continue
            context = event.payload.get(key)
            if not context or (key == "context" and not any(context.values())):
                continue
            if key == "items":
                context = {"items": context}
            data = canonical_json(context)
            room = min(CONTEXT_INLINE_MAX_BYTES, CONTEXTS_INLINE_MAX_BYTES - inline)
            if len(data) <= room and not has_credentials(context):
                inline += len(data)
                continue
            ref = await self._p.contexts.put(state.scope, data)
            events[index] = seal(
                msgspec.structs.replace(
                    event, payload=event.payload | {key: _MOVED[key]}, payload_ref=ref
                )
            )
            changed = True
        return Record(events=tuple(events), consumed=record.consumed) if changed else record


def _may_hold_secrets(exit_: Mapping[str, Any]) -> bool:
    """What templates gave stands in `set`s and errors; the rest is the engine's own."""
    told = "set" in exit_ or "error" in exit_ or any("set" in arc for arc in exit_["arcs"])
    return told and has_credentials(exit_)


def _without_secrets(event: Event) -> Event:
    """A step's exit whose `set` keeps no credential: the log would hold it for ever (SEC-1)."""
    payload, marked = mask_marked(event.payload)
    warning = f"not kept, they look like credentials: {', '.join(sorted(marked))}"
    warnings = [*payload.get("warnings", ()), warning]
    return seal(msgspec.structs.replace(event, payload=payload | {"warnings": warnings}))


def _request(state: ExecutionState) -> Event | None:
    for events in state.pending.values():
        for event in events:
            if event.event_type is EventType.EXECUTION_REQUESTED:
                return event
    return None


def _playbook_digest(state: ExecutionState) -> str:
    if state.playbook is not None:
        return state.playbook.digest
    request = _request(state)
    return str(request.payload["playbook"]["digest"]) if request else ""


def _workload_ref(state: ExecutionState) -> PayloadRef | None:
    if state.workload_ref is not None:
        return msgspec.convert(state.workload_ref, PayloadRef)
    request = _request(state)
    return request.payload_ref if request else None
