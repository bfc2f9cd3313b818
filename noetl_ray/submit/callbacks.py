"""Answers to callbacks: each lies in its execution's inbox, once, under the digest of its token.

The version check of that subject makes an answer idempotent for as long as the log exists. Whether
an answer still counts is a decision's to say (P10); what is known to be too late is refused here,
so that whoever answers learns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl_ray.clock import iso_utc
from noetl_ray.errors import (
    ConflictError,
    InternalError,
    NotFoundError,
    UsageError,
    VersionConflictError,
)
from noetl_ray.events.canonical import canonical_json, digest
from noetl_ray.events.types import COMMAND_TERMINAL, AggregateType, EventType
from noetl_ray.payloads.content import put_payload
from noetl_ray.replay.history import replay
from noetl_ray.replay.reading import read_execution
from noetl_ray.results.redact import has_credentials
from noetl_ray.submit.execution import open_execution
from noetl_ray.submit.tokens import CallbackTarget
from noetl_ray.wal.subjects import command_subject, keyed_inbox_subject

if TYPE_CHECKING:
    from noetl_ray.engine.state import CommandState
    from noetl_ray.events.envelope import Event, PayloadRef
    from noetl_ray.scope import Scope
    from noetl_ray.submit.ports import SubmitPorts

INLINE_BYTES_MAX = 16_384
ANSWER_BYTES_MAX = 16 * 1024 * 1024
MEDIA_ANSWER = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of an answer. ``duplicate`` says that the same one was given before."""

    execution_id: int
    command_id: str
    task: str
    position: int
    duplicate: bool = False


async def answer_callback(
    ports: SubmitPorts, target: CallbackTarget, key: str, answer: Any
) -> Answered:
    """Leave an answer in the inbox of the execution that waits for it.

    Raises:
        NotFoundError: there is no such execution.
        ConflictError: another answer was given, or nothing waits for one any more.
        UsageError: the answer is too large, or none that can be kept.
    """
    scope, execution_id = target.scope, target.execution_id
    data = _bytes_of(answer)
    shard = ports.shard(scope, target.project_id, execution_id)
    subject = keyed_inbox_subject(shard, scope, execution_id, f"callback/{key}")
    said = digest([answer])
    earlier = await ports.log.last(subject)
    if earlier is not None:
        return _repeated(target, earlier.record.events[0], earlier.position, said)
    _, previous = await open_execution(ports, scope, execution_id, target.project_id, None)
    await _check_still_waits(ports, shard, target, key)
    payload: dict[str, Any] = {"key": key, "command_id": target.command_id, "task": target.task}
    reference: PayloadRef | None = None
    if len(data) > INLINE_BYTES_MAX or has_credentials({"answer": answer}):
        reference = await put_payload(ports.objects, ports.placement, scope, data, MEDIA_ANSWER)
    else:
        payload["data"] = answer
    record = ports.record(
        scope,
        subject,
        EventType.CALLBACK_RECEIVED,
        payload,
        aggregate=(AggregateType.INBOX, f"inbox/{execution_id}"),
        idempotency_key=f"callback/{key}",
        execution_id=execution_id,
        prev_event_id=previous.event_id,
        payload_ref=reference,
        meta={"said": said},
    )
    try:
        position = await ports.log.append(subject, record, expected_version=0)
    except VersionConflictError:
        first = await ports.log.last(subject)
        if first is None:
            msg = f"{subject} refused a first append and holds nothing"
            raise InternalError(msg) from None
        return _repeated(target, first.record.events[0], first.position, said)
    return Answered(
        execution_id=execution_id,
        command_id=target.command_id,
        task=target.task,
        position=position,
    )


async def find_wait(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    step: str,
    *,
    project_id: str,
    index: int | None = None,
) -> tuple[CallbackTarget, str]:
    """Which wait of a step an answer by name means, and the digest of its token.

    Raises:
        NotFoundError: there is no such execution, or nothing of the step waits for an answer.
        ConflictError: it has ended.
        UsageError: several commands of the step wait; an index says which.
    """
    await open_execution(ports, scope, execution_id, project_id, None)
    state = replay(await read_execution(ports.log, scope, execution_id))[execution_id]
    waits = [c for c in state.commands.values() if c.wait is not None and c.wait.key]
    of_step = [c for c in waits if c.step == step]
    if not of_step:
        others = ", ".join(sorted({c.step for c in waits}))
        hint = f"; steps that do: {others}" if others else ""
        msg = f"step {step!r} of execution {execution_id} waits for no answer{hint}"
        raise NotFoundError(msg)
    if index is not None:
        of_step = [c for c in of_step if _index_of(c) == index]
    if len(of_step) != 1:
        known = ", ".join(str(_index_of(c)) for c in waits if c.step == step)
        msg = f"{step!r} waits for answers in several iterations; give an index: {known}"
        raise UsageError(msg)
    (command,) = of_step
    assert command.wait is not None
    target = CallbackTarget(
        scope=scope,
        project_id=project_id,
        execution_id=execution_id,
        command_id=command.command_id,
        task=command.wait.task,
        round=0,
    )
    return target, command.wait.key


def _bytes_of(answer: Any) -> bytes:
    try:
        data = canonical_json({"data": answer})
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"the answer has no JSON form: {error}"
        raise UsageError(msg) from None
    if len(data) > ANSWER_BYTES_MAX:
        msg = (
            f"an answer holds at most {ANSWER_BYTES_MAX} bytes, not {len(data)}; "
            "keep large data in a store and answer with its name"
        )
        raise UsageError(msg)
    return data


async def _check_still_waits(
    ports: SubmitPorts, shard: int, target: CallbackTarget, key: str
) -> None:
    """Refuse what is known to be too late; an answer may well come before the wait begins."""
    subject = command_subject(shard, target.scope, target.execution_id, target.command_id)
    last = await ports.log.last(subject)
    for event in last.record.events if last is not None else ():
        if event.event_type in COMMAND_TERMINAL:
            msg = f"task {target.task!r} waits no longer: its step has ended"
            raise ConflictError(msg)
        wait = event.payload.get("wait") if event.event_type is EventType.TASK_PARKED else None
        if wait and wait["key"] == key and ports.clock.now_ms() >= wait["until_ms"]:
            msg = f"too late: an answer was waited for until {iso_utc(wait['until_ms'])}"
            raise ConflictError(msg)


def _repeated(target: CallbackTarget, first: Event, position: int, said: str) -> Answered:
    if first.meta.get("said") != said:
        msg = f"task {target.task!r} was answered before, with something else; the first one counts"
        raise ConflictError(msg)
    return Answered(
        execution_id=target.execution_id,
        command_id=target.command_id,
        task=target.task,
        position=position,
        duplicate=True,
    )


def _index_of(command: CommandState) -> int:
    """Which iteration a command runs; 0 where there is no loop."""
    _, dot, index = command.command_id.rpartition(".")
    return int(index) if dot and index.isdigit() else 0
