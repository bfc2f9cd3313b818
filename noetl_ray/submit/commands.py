"""Giving a command to a worker by name: the append of a claim, as the dispatcher makes it (P16).

Safety is the log's: the claim states the version it saw. The issue is found by the position the
caller names, so that a claim reads the log alone (P14). Who claims must be a worker that joined;
the conductor then offers the command to it, and takes it back when that worker is lost (P22).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl_ray.errors import ConflictError, NotFoundError, VersionConflictError
from noetl_ray.events.types import COMMAND_TERMINAL, AggregateType, EventType
from noetl_ray.wal.subjects import command_subject, parse_event_subject, worker_subject

if TYPE_CHECKING:
    from noetl_ray.events.envelope import Event
    from noetl_ray.scope import Scope
    from noetl_ray.submit.ports import SubmitPorts
    from noetl_ray.wal.port import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Who has a command now, and the version a completion must expect."""

    worker_id: str
    incarnation: str
    attempt: int
    version: int


async def claim_command(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    command_id: str,
    *,
    issued_position: int,
    worker_id: str,
    incarnation: str,
    lease_ms: int,
) -> Claimed:
    """Claim a command nobody has for a worker that has joined.

    Raises:
        NotFoundError: no such command was issued at that position in this scope.
        ConflictError: somebody has it, it has ended, or the worker has not joined.
    """
    shard, issued = await _issued(ports, scope, execution_id, command_id, issued_position)
    await check_joined(ports, worker_id, incarnation)
    subject = command_subject(shard, scope, execution_id, command_id)
    last = await ports.log.last(subject)
    previous, attempt = _free(command_id, issued, last)
    record = ports.record(
        scope,
        subject,
        EventType.COMMAND_CLAIMED,
        {
            "worker_id": worker_id,
            "incarnation": incarnation,
            "lease_ms": lease_ms,
            "attempt": attempt,
        },
        aggregate=(AggregateType.COMMAND, f"command/{command_id}"),
        idempotency_key=f"{command_id}/{attempt}/{EventType.COMMAND_CLAIMED.value}",
        execution_id=execution_id,
        prev_event_id=previous.event_id,
        command_id=command_id,
    )
    expected = last.position if last else 0
    try:
        position = await ports.log.append(subject, record, expected_version=expected)
    except VersionConflictError:
        msg = f"command {command_id} was taken meanwhile; look again"
        raise ConflictError(msg) from None
    return Claimed(worker_id=worker_id, incarnation=incarnation, attempt=attempt, version=position)


async def _issued(
    ports: SubmitPorts, scope: Scope, execution_id: int, command_id: str, position: int
) -> tuple[int, Event]:
    recorded = await ports.log.get(position)
    parsed = parse_event_subject(recorded.subject) if recorded else None
    if recorded is not None and parsed is not None and parsed.scope == scope:
        for event in recorded.record.events:
            if (
                event.event_type is EventType.COMMAND_ISSUED
                and event.command_id == command_id
                and event.execution_id == execution_id
            ):
                return parsed.shard, event
    msg = f"no command {command_id!r} of execution {execution_id} was issued at {position}"
    raise NotFoundError(msg)


async def check_joined(ports: SubmitPorts, worker_id: str, incarnation: str) -> None:
    """Raise ConflictError unless this incarnation of a worker has joined."""
    last = await ports.log.last(worker_subject(worker_id))
    event = last.record.events[-1] if last else None
    if (
        event is None
        or event.event_type is not EventType.WORKER_JOINED
        or event.payload["incarnation"] != incarnation
    ):
        msg = f"worker {worker_id!r} has not joined as incarnation {incarnation!r}"
        raise ConflictError(msg)


def _free(command_id: str, issued: Event, last: Recorded | None) -> tuple[Event, int]:
    """What a claim links to and which attempt it makes, when nobody has the command."""
    holder = issued.payload.get("claim")
    if last is None and not holder:
        return issued, 1
    event = last.record.events[-1] if last else issued
    if event.event_type is EventType.COMMAND_RELEASED:
        return event, int(event.payload.get("attempt", 2))
    if event.event_type in COMMAND_TERMINAL:
        msg = f"command {command_id} has ended with {event.event_type}"
        raise ConflictError(msg)
    who = event.payload.get("worker_id") or (holder or {}).get("worker_id") or "a worker"
    msg = f"command {command_id} is held by {who}"
    raise ConflictError(msg)
