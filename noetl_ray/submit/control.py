"""What an owner asks of an execution under way: cancel, pause, resume. Each waits in its inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.submit.execution import open_execution
from noetl_ray.wal.subjects import inbox_subject

if TYPE_CHECKING:
    from noetl_ray.scope import Scope
    from noetl_ray.submit.ports import SubmitPorts

REASON_CHARS_MAX = 2_000


async def cancel_execution(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    reason: str,
    *,
    project_id: str = "default",
    idempotency_key: str | None = None,
    cascade: bool = True,
) -> int:
    """Leave a cancel in the execution's inbox; it takes effect when a decision consumes it.

    Args:
        ports: Where to append.
        scope: Whose execution.
        execution_id: Which one.
        reason: Why, for people.
        project_id: The execution's project, which its shard depends on.
        idempotency_key: The key it was submitted with, when it was: a request not yet decided on
            lies on a subject only the key names.
        cascade: Whether executions it started are to stop too.

    Raises:
        NotFoundError: there is no such execution.
        ConflictError: it has ended.
    """
    known = (project_id, idempotency_key)
    said: dict[str, Any] = {"reason": reason[:REASON_CHARS_MAX]}
    if not cascade:
        said["cascade"] = False
    kind = EventType.EXECUTION_CANCEL_REQUESTED
    return await _ask(ports, scope, execution_id, known, kind, said)


async def pause_execution(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    reason: str,
    *,
    project_id: str = "default",
    idempotency_key: str | None = None,
) -> int:
    """Ask that nothing new of an execution begins; what runs finishes. See `cancel_execution`."""
    known = (project_id, idempotency_key)
    said = {"reason": reason[:REASON_CHARS_MAX]}
    kind = EventType.EXECUTION_PAUSE_REQUESTED
    return await _ask(ports, scope, execution_id, known, kind, said)


async def resume_execution(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    *,
    project_id: str = "default",
    idempotency_key: str | None = None,
) -> int:
    """Let a paused execution go on. See `cancel_execution`."""
    known = (project_id, idempotency_key)
    kind = EventType.EXECUTION_RESUME_REQUESTED
    return await _ask(ports, scope, execution_id, known, kind, {})


async def _ask(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    known: tuple[str, str | None],
    kind: EventType,
    said: dict[str, Any],
) -> int:
    """Leave a wish of the execution's owner in its inbox."""
    shard, previous = await open_execution(ports, scope, execution_id, *known)
    subject = inbox_subject(shard, scope, execution_id)
    event_id = ports.mint()
    record = ports.record(
        scope,
        subject,
        kind,
        said,
        aggregate=(AggregateType.INBOX, f"inbox/{execution_id}"),
        idempotency_key=f"{execution_id}/{kind.value.split('.')[1]}/{event_id}",
        execution_id=execution_id,
        event_id=event_id,
        prev_event_id=previous.event_id,
    )
    return await ports.log.append(subject, record, expected_version=None)
