"""Claiming, keeping and ending frames from outside: the same appends as the runtime's (FRM-7..10).

The way for an operator, or a worker that speaks only HTTP, when frames cannot be given out as they
are. Safety is the log's: each append states the version it saw on the frame's own subject, so two
claimers get one frame once and a late commit finds the end that is there. Refuses to run anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.handover import OUTSIDE, handover, lease_ran_out, stage_of
from noetl_ray.engine.inputs import Claim
from noetl_ray.engine.policy import FramePolicy
from noetl_ray.errors import ConflictError, UsageError, VersionConflictError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import FRAME_TERMINAL, AggregateType, EventType
from noetl_ray.submit.commands import check_joined
from noetl_ray.wal.subjects import frame_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.engine.state import CommandState, ExecutionState
    from noetl_ray.events.envelope import Event
    from noetl_ray.submit.ports import SubmitPorts

CLAIM_MAX = 64
_SAID_BY_HOLDER = frozenset(
    {EventType.FRAME_STARTED, EventType.FRAME_HEARTBEAT, EventType.FRAME_ROWS_DONE}
)


class FrameEndedError(ConflictError):
    """The frame has its end already; ``terminal_event_id`` says which (FRM-10)."""

    code = "frame_already_terminal"

    def __init__(self, frame_id: str, ended: Event) -> None:
        super().__init__(f"frame {frame_id} has ended with {ended.event_type}")
        self.terminal_event_id = ended.event_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedFrame:
    """A frame somebody outside has now."""

    frame_id: str
    attempt: int
    lease_until_ms: int
    frame_policy: FramePolicy
    cursor: dict[str, Any]
    """Slot and index, and over a collection the range of its items."""
    dsl_ref: str
    context: dict[str, Any]


async def claim_frames(
    ports: SubmitPorts,
    state: ExecutionState,
    stage_id: str,
    *,
    worker_id: str,
    incarnation: str | None,
    count: int,
    lease_seconds: float | None,
) -> list[ClaimedFrame]:
    """Take pending frames of a stage, and those whose lease has run out, as many as asked for.

    A worker that has joined gives its incarnation and is offered what it took; one that has not
    works by itself, and only its lease says how long the frames are its own.

    Raises:
        ConflictError: the worker has not joined as that incarnation.
        UsageError: a number is out of range.
    """
    if not 1 <= count <= CLAIM_MAX:
        msg = f"requested_count is {count}; give it a number from 1 to {CLAIM_MAX}"
        raise UsageError(msg)
    if lease_seconds is not None and not 1 <= lease_seconds <= 86_400:
        msg = f"lease_seconds is {lease_seconds:g}; give it a number from 1 to 86400"
        raise UsageError(msg)
    if incarnation is not None:
        await check_joined(ports, worker_id, incarnation)
    now = ports.clock.now_ms()
    claimed: list[ClaimedFrame] = []
    for frame in sorted(state.commands.values(), key=lambda each: each.command_id):
        stage = stage_of(state, frame) if frame.frame else None
        if stage is None or stage.stage_id != stage_id or len(claimed) >= count:
            continue
        if frame.worker_id is not None and not lease_ran_out(frame, now):
            continue
        given = await _claim(ports, state, frame, worker_id, incarnation, lease_seconds)
        if given is not None:
            claimed.append(given)
    return claimed


async def _claim(
    ports: SubmitPorts,
    state: ExecutionState,
    frame: CommandState,
    worker_id: str,
    incarnation: str | None,
    lease_seconds: float | None,
) -> ClaimedFrame | None:
    """One claim; None when somebody else was first, or the frame has been tried often enough."""
    stage = stage_of(state, frame)
    issued = await _issued(ports, frame)
    if stage is None or issued is None or "reduce" in issued.payload:
        # A reduce goes on from a result block, which only the runtime makes.
        return None
    now = ports.clock.now_ms()
    claim = Claim(worker_id=worker_id, incarnation=incarnation or OUTSIDE, lease_ms=0)
    released = f"{frame.worker_id} let the lease run out" if frame.worker_id else None
    wanted = handover(stage, frame, claim, released, now)
    if lease_seconds is not None and wanted[-1][0] is EventType.FRAME_DISPATCHED:
        wanted[-1][1]["lease_until_ms"] = now + int(lease_seconds * 1000)
    try:
        await _append(ports, state, frame, wanted, frame.last_event_id, frame.version)
    except VersionConflictError:
        return None
    kind, told = wanted[-1]
    if kind is not EventType.FRAME_DISPATCHED:
        return None
    keys = ("slot", "frame_index", "range", "total", "items_ref", "max_rows")
    return ClaimedFrame(
        frame_id=frame.command_id,
        attempt=told["attempt"],
        lease_until_ms=told["lease_until_ms"],
        frame_policy=stage.policy,
        cursor={key: issued.payload[key] for key in keys if key in issued.payload},
        dsl_ref=issued.payload["playbook_digest"],
        context=issued.payload.get("context") or {},
    )


async def beat_frame(
    ports: SubmitPorts,
    state: ExecutionState,
    frame_id: str,
    *,
    worker_id: str,
    lease_seconds: float | None,
    row_count: int,
) -> int:
    """Say that a frame's holder lives; until when it is its own. The first word starts the frame.

    Raises:
        FrameEndedError: it has ended.
        ConflictError: it is another's, or nobody's.
    """
    frame, last = await _held(ports, state, frame_id, worker_id)
    stage = stage_of(state, frame)
    seconds = lease_seconds or (stage.policy.lease_seconds if stage is not None else 120)
    until = ports.clock.now_ms() + int(seconds * 1000)
    told: dict[str, Any] = {"worker_id": worker_id, "attempt": frame.attempt}
    told["lease_until_ms"] = until
    kind = EventType.FRAME_HEARTBEAT
    if last.event_type not in _SAID_BY_HOLDER:
        kind = EventType.FRAME_STARTED
        told |= {"step": frame.step, "visit": frame.visit, "row_count": row_count}
    await _append_held(ports, state, frame, [(kind, told)], last)
    return until


async def end_frame(
    ports: SubmitPorts,
    state: ExecutionState,
    frame_id: str,
    *,
    worker_id: str,
    row_count: int,
    failed: int,
    output_ref: Mapping[str, Any] | None,
    cursor: Mapping[str, Any] | None,
    error: Mapping[str, Any] | None,
) -> int:
    """End a frame: committed, or failed with its error. The id of the event that did it.

    Raises:
        FrameEndedError: it has ended.
        ConflictError: it is another's, or nobody's.
        UsageError: what is said about its output cannot be.
    """
    frame, last = await _held(ports, state, frame_id, worker_id)
    issued = await _issued(ports, frame)
    stage = stage_of(state, frame)
    if issued is None or stage is None:
        msg = f"frame {frame_id} is not open"
        raise ConflictError(msg)
    _check_output(output_ref)
    end: dict[str, Any] = {
        "step": frame.step,
        "visit": frame.visit,
        "slot": issued.payload["slot"],
        "frame_index": issued.payload["frame_index"],
        "attempt": frame.attempt,
        "row_count": row_count,
        "cursor": dict(cursor or {}),
    }
    if error is not None:
        end |= {
            "attempts": frame.attempt,
            "error": {"kind": "outside", "retryable": False, "step": frame.step, **error},
            "frame_policy": msgspec.to_builtins(stage.policy),
            "last_worker": worker_id,
        }
        kind = EventType.FRAME_FAILED
    else:
        kind = EventType.FRAME_COMMITTED
        end |= {"processed": row_count, "failed": failed, "next_max_rows": 0}
        if output_ref is not None:
            end["output_ref"] = dict(output_ref)
        if "range" in issued.payload:
            end |= _of_range(issued, row_count, output_ref)
    record = await _append_held(ports, state, frame, [(kind, end)], last)
    return record.events[-1].event_id


def _of_range(
    issued: Event, row_count: int, output_ref: Mapping[str, Any] | None
) -> dict[str, Any]:
    first, count = issued.payload["range"]
    if not 0 <= row_count <= count:
        msg = f"row_count is {row_count}; the frame has {count} items from {first} on"
        raise UsageError(msg)
    if row_count and not (output_ref and {"sha256", "bytes"} <= set(output_ref)):
        msg = "a frame over a collection needs output_ref with sha256 and bytes of its part"
        raise UsageError(msg)
    return {"range": [first, count]}


def _check_output(output_ref: Mapping[str, Any] | None) -> None:
    """What is told must lie somewhere durable, nested references too (FRM-17)."""
    stack: list[Any] = [output_ref]
    while stack:
        found = stack.pop()
        if isinstance(found, list):
            stack += found
        if not isinstance(found, dict):
            continue
        if found.get("ipc") and not any(found.get(key) for key in ("ref", "uri", "locator")):
            msg = "output_ref names shared memory alone; name a durable copy as ref or uri"
            raise UsageError(msg)
        stack += found.values()


async def _held(
    ports: SubmitPorts, state: ExecutionState, frame_id: str, worker_id: str
) -> tuple[CommandState, Event]:
    """An open frame of this worker, and what was last said of it."""
    subject = frame_subject(state.shard, state.scope, state.execution_id, frame_id)
    last = await ports.log.last(subject)
    ended = [e for e in last.record.events if e.event_type in FRAME_TERMINAL] if last else []
    if ended:
        raise FrameEndedError(frame_id, ended[0])
    frame = state.commands.get(frame_id)
    if frame is None or not frame.frame:
        msg = f"frame {frame_id} is not open"
        raise ConflictError(msg)
    if frame.worker_id != worker_id or last is None or last.position != frame.version:
        who = frame.worker_id or "nobody"
        msg = f"frame {frame_id} is held by {who}, not by {worker_id}; claim it"
        raise ConflictError(msg)
    return frame, last.record.events[-1]


async def _issued(ports: SubmitPorts, frame: CommandState) -> Event | None:
    recorded = await ports.log.get(frame.issued_position)
    for event in recorded.record.events if recorded else ():
        if event.event_id == frame.issued_event_id:
            return event
    return None


async def _append_held(
    ports: SubmitPorts,
    state: ExecutionState,
    frame: CommandState,
    wanted: list[tuple[EventType, dict[str, Any]]],
    last: Event,
) -> Record:
    try:
        return await _append(ports, state, frame, wanted, last.event_id, frame.version)
    except VersionConflictError:
        # Taken away or ended meanwhile: say which.
        subject = frame_subject(state.shard, state.scope, state.execution_id, frame.command_id)
        now = await ports.log.last(subject)
        for event in now.record.events if now else ():
            if event.event_type in FRAME_TERMINAL:
                raise FrameEndedError(frame.command_id, event) from None
        msg = f"frame {frame.command_id} moved on meanwhile; look again"
        raise ConflictError(msg) from None


async def _append(
    ports: SubmitPorts,
    state: ExecutionState,
    frame: CommandState,
    wanted: list[tuple[EventType, dict[str, Any]]],
    prev: int,
    version: int,
) -> Record:
    stage = stage_of(state, frame)
    subject = frame_subject(state.shard, state.scope, state.execution_id, frame.command_id)
    events: list[Event] = []
    for kind, payload in wanted:
        attempt = payload.get("attempt", frame.attempt)
        (event,) = ports.record(
            state.scope,
            subject,
            kind,
            payload,
            aggregate=(AggregateType.FRAME, f"frame/{frame.command_id}"),
            idempotency_key=f"{frame.command_id}/{attempt}/{kind.value}",
            execution_id=state.execution_id,
            prev_event_id=prev,
            command_id=frame.command_id,
            stage_id=stage.stage_id if stage is not None else None,
        ).events
        events.append(event)
        prev = event.event_id
    record = Record(events=tuple(events))
    await ports.log.append(subject, record, expected_version=version)
    return record
