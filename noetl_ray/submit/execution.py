"""Requests for executions: submit, submit many, run again. Each is one append (P10, P11).

A submit with an idempotency key lies on a subject the key alone names and expects version 0; so
the log itself refuses the second one, hours later too, and the first one's execution id is given
back. The control subject is never written here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.dsl.merge import merge_workload
from noetl_ray.errors import (
    ConflictError,
    InternalError,
    NoetlError,
    NotFoundError,
    ObjectMissingError,
    UsageError,
    VersionConflictError,
)
from noetl_ray.events.canonical import canonical_json, digest, sha256_hex
from noetl_ray.events.types import EXECUTION_TERMINAL, AggregateType, EventType
from noetl_ray.payloads.content import get_payload, put_payload
from noetl_ray.replay.reading import read_execution
from noetl_ray.results.redact import has_credentials, mask, mask_marked
from noetl_ray.submit.catalog import CatalogEntry, find_playbook, load_playbook, register_playbook
from noetl_ray.submit.continuing import what_was_done
from noetl_ray.wal.subjects import (
    control_subject,
    keyed_submit_subject,
    submit_subject,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.events.envelope import Event, PayloadRef
    from noetl_ray.scope import Scope
    from noetl_ray.submit.ports import SubmitPorts

WORKLOAD_INLINE_BYTES_MAX = 65_536
KEY_CHARS_MAX = 512
APPENDS_AT_ONCE_MAX = 64
MINTS_PER_SHARD_MAX = 256
MEDIA_WORKLOAD = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is asked for: one of ``path``, ``digest`` or ``source`` names the playbook."""

    path: str | None = None
    version: int | None = None
    digest: str | None = None
    source: str | None = field(default=None, repr=False)
    """A playbook's text; it is registered first."""
    workload: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    parent_execution_id: int | None = None
    merged: bool = False
    """The workload holds the playbook's defaults already, as that of a request run again does."""
    again: dict[str, Any] | None = field(default=None, repr=False)
    """What it takes over from an earlier execution, where it goes on from one of its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What came of a submit."""

    execution_id: int
    duplicate: bool
    playbook: dict[str, Any]
    position: int
    warnings: tuple[str, ...] = ()


async def submit_execution(
    ports: SubmitPorts, scope: Scope, project_id: str, asked: Submission
) -> Submitted:
    """Append ``execution.requested``, or find the one this idempotency key made before.

    Raises:
        NotFoundError: the playbook is not registered.
        PlaybookError: the text given is not a playbook.
        ConflictError: the key was used for another playbook or workload.
        UsageError: what is asked contradicts itself.
    """
    _check(asked)
    return await _submit(
        ports, scope, project_id, asked, await choose_playbook(ports, scope, asked)
    )


async def _submit(
    ports: SubmitPorts, scope: Scope, project_id: str, asked: Submission, entry: CatalogEntry
) -> Submitted:
    workload = asked.workload
    if not asked.merged:
        playbook = await load_playbook(ports, scope, entry.digest)
        workload = merge_workload(playbook.workload, asked.workload)
    workload, reference = await kept_workload(ports, scope, workload)
    meta: dict[str, Any] = {"workload_digest": digest(asked.workload)}
    if reference is not None:
        meta["workload_externalized"] = True
    execution_id, subject = _place(ports, scope, project_id, asked.idempotency_key)
    record = ports.record(
        scope,
        subject,
        EventType.EXECUTION_REQUESTED,
        {
            "playbook": entry.pinned(),
            "workload": workload,
            "project_id": project_id,
            "parent_execution_id": asked.parent_execution_id,
            **({} if asked.again is None else {"again": asked.again}),
        },
        aggregate=(AggregateType.SUBMISSION, f"submission/{execution_id}"),
        idempotency_key=asked.idempotency_key or f"{execution_id}/requested",
        execution_id=execution_id,
        payload_ref=reference,
        meta=meta,
    )
    warnings = credential_warnings(asked.workload)
    try:
        position = await ports.log.append(subject, record, expected_version=0)
    except VersionConflictError:
        earlier = await _earlier(ports, subject, asked, entry.path)
        return replace(earlier, warnings=warnings)
    return Submitted(
        execution_id=execution_id,
        duplicate=False,
        playbook=dict(entry.pinned()),
        position=position,
        warnings=warnings,
    )


async def kept_workload(
    ports: SubmitPorts, scope: Scope, workload: dict[str, Any]
) -> tuple[dict[str, Any], PayloadRef | None]:
    """A merged workload as a request holds it, and where the whole of it lies if not there.

    Raises:
        UsageError: it has no JSON form.
    """
    data = _canonical(workload)
    large = len(data) > WORKLOAD_INLINE_BYTES_MAX
    if not large and not has_credentials(workload):
        return workload, None
    # Secrets someone put here instead of a credential stay out of the log too (SEC-1).
    objects = ports.objects.for_secrets()
    reference = await put_payload(objects, ports.placement, scope, data, MEDIA_WORKLOAD)
    return {} if large else mask(workload), reference


async def submit_many(
    ports: SubmitPorts, scope: Scope, project_id: str, asked: Sequence[Submission]
) -> list[Submitted | NoetlError]:
    """Submit a batch with concurrent appends; each answer stands at its question's place.

    One bad item does not spoil the others: its place holds its error. A playbook that many items
    name is looked up once for all of them.
    """
    gate = asyncio.Semaphore(APPENDS_AT_ONCE_MAX)
    choices: dict[tuple[object, ...], asyncio.Task[CatalogEntry]] = {}

    async def one(item: Submission) -> Submitted | NoetlError:
        async with gate:
            try:
                _check(item)
                named = (item.path, item.version, item.digest, item.source)
                if named not in choices:
                    choices[named] = asyncio.create_task(choose_playbook(ports, scope, item))
                return await _submit(ports, scope, project_id, item, await choices[named])
            except NoetlError as error:
                return error

    return list(await asyncio.gather(*(one(item) for item in asked)))


async def open_execution(
    ports: SubmitPorts, scope: Scope, execution_id: int, project_id: str, key: str | None
) -> tuple[int, Event]:
    """The shard of an execution that has not ended, and the event that what comes next links to.

    Raises:
        NotFoundError: there is no such execution.
        ConflictError: it has ended.
    """
    shard = ports.shard(scope, project_id, execution_id)
    last = await ports.log.last(control_subject(shard, scope, execution_id))
    if last is None:
        return shard, await _request(ports, scope, execution_id, project_id, key)
    for event in last.record.events:
        if event.event_type in EXECUTION_TERMINAL:
            msg = f"execution {execution_id} has ended with {event.event_type}"
            raise ConflictError(msg)
    return shard, last.record.events[-1]


async def rerun_execution(
    ports: SubmitPorts,
    scope: Scope,
    execution_id: int,
    *,
    project_id: str = "default",
    idempotency_key: str | None = None,
    from_step: str | None = None,
) -> Submitted:
    """Submit the same playbook version and workload as a new execution.

    With ``from_step`` it goes on there and takes over what was done before; an empty one means the
    step that failed.

    Raises:
        NotFoundError: there is no such execution, or no such step in it.
        ConflictError: it has not ended, and is to be gone on with.
        UsageError: what was done before the step cannot be reused.
    """
    event = await _request(ports, scope, execution_id, project_id, idempotency_key)
    pinned, workload = event.payload["playbook"], event.payload["workload"]
    if event.payload_ref is not None:
        data = await get_payload(ports.objects, ports.placement, scope, event.payload_ref.uri)
        workload = msgspec.json.decode(data)
    asked = Submission(
        path=pinned["path"],
        version=pinned["version"],
        digest=pinned["digest"],
        workload=workload,
        merged=True,
    )
    if from_step is not None:
        records = await read_execution(ports.log, scope, execution_id)
        playbook = await load_playbook(ports, scope, pinned["digest"])
        asked = replace(asked, again=what_was_done(records, playbook, from_step or None))
    return await submit_execution(ports, scope, project_id, asked)


def credential_warnings(workload: dict[str, Any]) -> tuple[str, ...]:
    """What to tell someone whose workload seems to hold secrets."""
    marked = sorted(mask_marked(workload)[1])
    if not marked:
        return ()
    shown = ", ".join(marked[:5]) + (", …" if len(marked) > 5 else "")
    return (
        f"workload keys look like credentials: {shown}. They are kept out of the log, unencrypted; "
        "store secrets with `noetl-ray credential add NAME` and name them in `auth:` instead.",
    )


def _check(asked: Submission) -> None:
    if asked.source is not None and (asked.path or asked.digest or asked.version is not None):
        msg = "give a playbook's text or its path, not both"
        raise UsageError(msg)
    if not (asked.source or asked.path or asked.digest):
        msg = "a playbook is needed: its path, its digest or its text"
        raise UsageError(msg)
    key = asked.idempotency_key
    if key is not None and not 0 < len(key) <= KEY_CHARS_MAX:
        msg = f"an idempotency key has 1..{KEY_CHARS_MAX} characters, not {len(key)}"
        raise UsageError(msg)


async def choose_playbook(ports: SubmitPorts, scope: Scope, asked: Submission) -> CatalogEntry:
    """The registered version a submission means; a text is registered first.

    Raises:
        NotFoundError: there is none.
    """
    if asked.source is not None:
        return await register_playbook(ports, scope, asked.source)
    path = asked.path
    if path is None:
        try:
            path = (await load_playbook(ports, scope, asked.digest or "")).path
        except ObjectMissingError:
            msg = f"no playbook with digest {(asked.digest or '')[:80]!r} is registered"
            raise NotFoundError(msg) from None
    return await find_playbook(ports, scope, path, version=asked.version, digest=asked.digest)


def _canonical(workload: dict[str, Any]) -> bytes:
    try:
        return canonical_json(workload)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"the workload has no JSON form: {error}"
        raise UsageError(msg) from None


def _place(ports: SubmitPorts, scope: Scope, project_id: str, key: str | None) -> tuple[int, str]:
    """A new execution id and the subject of its request.

    A key's subject must lie in the execution's own shard, where its conductor listens; so ids are
    minted until one falls there. That takes as many tries as there are shards, on average.
    """
    if key is None:
        execution_id = ports.mint()
        shard = ports.shard(scope, project_id, execution_id)
        return execution_id, submit_subject(shard, scope, execution_id)
    shard = ports.shard(scope, project_id, key)
    for _ in range(MINTS_PER_SHARD_MAX * ports.placement.shard_count):
        execution_id = ports.mint()
        if ports.shard(scope, project_id, execution_id) == shard:
            return execution_id, keyed_submit_subject(shard, scope, key)
    msg = f"no execution id fell into shard {shard}"
    raise InternalError(msg)


async def _earlier(ports: SubmitPorts, subject: str, asked: Submission, path: str) -> Submitted:
    """The execution an idempotency key stands for, when it stands for the same request.

    A path without a version asks for "the newest", which may have changed since: the answer is the
    first execution all the same.
    """
    recorded = await ports.log.last(subject)
    if recorded is None:
        msg = f"{subject} refused a first append and holds nothing"
        raise InternalError(msg)
    event = recorded.record.events[0]
    pinned = event.payload["playbook"]
    same_playbook = (
        pinned["path"] == path
        and asked.version in (None, pinned["version"])
        and asked.digest in (None, pinned["digest"])
        and (asked.source is None or sha256_hex(asked.source.encode()) == pinned["digest"])
    )
    if not same_playbook or event.meta.get("workload_digest") != digest(asked.workload):
        what = "workload" if same_playbook else "playbook"
        msg = (
            f"idempotency key {asked.idempotency_key!r} was used for execution "
            f"{event.execution_id} with another {what}"
        )
        raise ConflictError(msg)
    return Submitted(
        execution_id=event.execution_id,
        duplicate=True,
        playbook=dict(pinned),
        position=recorded.position,
    )


async def _request(
    ports: SubmitPorts, scope: Scope, execution_id: int, project_id: str, key: str | None
) -> Event:
    shard = ports.shard(scope, project_id, execution_id)
    recorded = await ports.log.last(submit_subject(shard, scope, execution_id))
    if recorded is None and key is not None:
        recorded = await ports.log.last(keyed_submit_subject(shard, scope, key))
    if recorded is None or recorded.record.events[0].execution_id != execution_id:
        msg = f"no execution {execution_id}"
        raise NotFoundError(msg)
    return recorded.record.events[0]
