"""Facts from outside about an execution: each waits in its inbox, never on control (P10).

An outsider may say anything under a name of its own, and nothing under a name of the runtime's.
With an idempotency key the fact lies on a subject the key names and expects version 0, so that the
log refuses the second one however late it comes. A batch is one record: all of it or nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ConflictError, InternalError, UsageError, VersionConflictError
from noetl_ray.events.canonical import canonical_json, digest
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.results.redact import mask
from noetl_ray.submit.execution import KEY_CHARS_MAX, open_execution
from noetl_ray.wal.subjects import inbox_subject, keyed_inbox_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.events.envelope import Event
    from noetl_ray.scope import Scope
    from noetl_ray.submit.ports import SubmitPorts

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}", re.ASCII)
BATCH_MAX = 250
DATA_BYTES_MAX = 65_536
BATCH_BYTES_MAX = 600_000
_OURS = frozenset(kind.value for kind in EventType)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideFact:
    """What an outsider says: a name of its own and data of JSON shape."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Where facts lie now. ``duplicate`` says that the key was used before, for the same."""

    position: int
    event_ids: tuple[int, ...]
    duplicate: bool = False
    batch_id: int | None = None


async def tell(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    facts: Sequence[OutsideFact],
    *,
    batch: bool,
    key: str | None = None,
    project_id: str = "default",
    idempotency_key: str | None = None,
) -> Told:
    """Append facts to an execution's inbox in one record.

    Args:
        ports: Where to append.
        scope: Whose execution.
        execution_id: Which one.
        facts: What is said, in order.
        batch: Whether to put them between ``batch.accepted`` and ``batch.completed``.
        key: The same key tells the same once.
        project_id: The execution's project, which its shard depends on.
        idempotency_key: The key the execution was submitted with, when it was.

    Raises:
        NotFoundError: there is no such execution.
        ConflictError: it has ended, or the key was used for something else.
        UsageError: the facts are none that can be kept.
    """
    _check(facts, key)
    shard, previous = await open_execution(ports, scope, execution_id, project_id, idempotency_key)
    subject = inbox_subject(shard, scope, execution_id)
    if key is not None:
        subject = keyed_inbox_subject(shard, scope, execution_id, key)
    said = digest([[fact.name, fact.data] for fact in facts])
    wanted = [
        (EventType.EXTERNAL_RECEIVED, {"name": fact.name, "data": mask(fact.data)})
        for fact in facts
    ]
    if batch:
        count = {"count": len(facts)}
        wanted = [
            (EventType.BATCH_ACCEPTED, count),
            *wanted,
            (EventType.BATCH_COMPLETED, count),
        ]
    events = _chain(ports, scope, subject, execution_id, wanted, previous, key, said)
    record = Record(events=tuple(events))
    try:
        position = await ports.log.append(
            subject, record, expected_version=None if key is None else 0
        )
    except VersionConflictError:
        return await _earlier(ports, subject, said, key or "", batch=batch)
    return _told(record.events, position, batch=batch)


def _check(facts: Sequence[OutsideFact], key: str | None) -> None:
    if not 0 < len(facts) <= BATCH_MAX:
        msg = f"1..{BATCH_MAX} events at once, not {len(facts)}"
        raise UsageError(msg)
    if key is not None and not 0 < len(key) <= KEY_CHARS_MAX:
        msg = f"an idempotency key has 1..{KEY_CHARS_MAX} characters, not {len(key)}"
        raise UsageError(msg)
    total = 0
    for number, fact in enumerate(facts):
        if fact.name in _OURS:
            msg = f"event {number}: {fact.name} is written by the runtime alone; use another name"
            raise UsageError(msg)
        if not NAME.fullmatch(fact.name):
            msg = (
                f"event {number}: the name {fact.name[:40]!r} must begin with a letter and hold at "
                "most 100 letters, digits and _ . : -"
            )
            raise UsageError(msg)
        size = len(canonical_json(fact.data))
        total += size
        if size > DATA_BYTES_MAX or total > BATCH_BYTES_MAX:
            msg = (
                f"event {number}: at most {DATA_BYTES_MAX} bytes of data per event and "
                f"{BATCH_BYTES_MAX} at once; keep large data in a store and send its name"
            )
            raise UsageError(msg)


def _chain(
    ports: SubmitPorts,
    scope: Scope,
    subject: str,
    execution_id: int,
    wanted: Sequence[tuple[EventType, dict[str, Any]]],
    previous: Event,
    key: str | None,
    said: str,
) -> list[Event]:
    events: list[Event] = []
    prev = previous.event_id
    batch_id = ports.mint()
    for number, (kind, payload) in enumerate(wanted):
        event_id = batch_id if number == 0 else ports.mint()
        (event,) = ports.record(
            scope,
            subject,
            kind,
            payload if kind is EventType.EXTERNAL_RECEIVED else {**payload, "batch_id": batch_id},
            aggregate=(AggregateType.INBOX, f"inbox/{execution_id}"),
            idempotency_key=f"{key or f'{execution_id}/outside/{batch_id}'}/{number}",
            execution_id=execution_id,
            event_id=event_id,
            prev_event_id=prev,
            meta={} if number else {"said": said},
        ).events
        prev = event.event_id
        events.append(event)
    return events


async def _earlier(ports: SubmitPorts, subject: str, said: str, key: str, *, batch: bool) -> Told:
    """What this key told before, when it told the same."""
    recorded = await ports.log.last(subject)
    if recorded is None:
        msg = f"{subject} refused a first append and holds nothing"
        raise InternalError(msg)
    events = recorded.record.events
    if events[0].meta.get("said") != said:
        msg = f"idempotency key {key!r} was used for other events"
        raise ConflictError(msg)
    return replace(_told(events, recorded.position, batch=batch), duplicate=True)


def _told(events: Sequence[Event], position: int, *, batch: bool) -> Told:
    return Told(
        position=position,
        event_ids=tuple(
            event.event_id for event in events if event.event_type is EventType.EXTERNAL_RECEIVED
        ),
        batch_id=events[0].event_id if batch else None,
    )
