"""What leaves and enters as JSON. Ids leave as text, because JavaScript cannot hold 63 bits.

Everything that leaves is masked once more, although the log holds no secret: a page is the last
place where one could be seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from noetl_ray.clock import iso_utc
from noetl_ray.engine.state import TERMINAL_STATUSES
from noetl_ray.errors import UsageError
from noetl_ray.results.redact import mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from noetl_ray.credentials.port import CredentialInfo
    from noetl_ray.readmodel.records import (
        BusinessObjectRow,
        CommandRow,
        EventRow,
        ExecutionRow,
        LogRow,
        PlaybookRow,
        WorkerRow,
    )
    from noetl_ray.readmodel.shards import ShardRow
    from noetl_ray.submit import CatalogEntry, Submitted

T = TypeVar("T")

_EVENT_IDS = ("event_id", "execution_id", "causation_id", "prev_event_id")
_encoder = msgspec.json.Encoder(decimal_format="string")


class ExecuteRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/execute``."""

    path: str | None = None
    playbook: str | None = None
    digest: str | None = None
    catalog_id: str | None = None
    """NoETL's name for what is a digest here."""
    version: int | str | None = None
    payload: dict[str, Any] | None = None
    workload: dict[str, Any] | None = None
    idempotency_key: str | None = None
    parent_execution_id: int | str | None = None


class BatchRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/execute/batch``."""

    items: list[ExecuteRequest]


class RegisterRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/catalog/register`` and ``POST /api/validate``."""

    content: str


class CancelRequest(msgspec.Struct, kw_only=True):
    """Body of a cancel."""

    reason: str = "cancelled by request"
    cascade: bool = True


class RerunRequest(msgspec.Struct, kw_only=True):
    """Body of a rerun."""

    from_step: str | None = None
    """Where to go on; empty means the step that failed, null runs all of it again."""


class PauseRequest(msgspec.Struct, kw_only=True):
    """Body of a pause."""

    reason: str = "paused by request"


class WaitRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/executions/wait``."""

    ids: list[str | int]
    timeout: float = 30.0


class CredentialRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /api/credentials``."""

    name: str
    type: str
    data: dict[str, Any]
    description: str = ""
    tags: list[str] = []


async def read_body(request: Request, kind: type[T]) -> T:
    """The request's body as a value of that kind; an empty body stands for no fields.

    Raises:
        UsageError: it is not JSON of that shape.
    """
    data = await request.body() or b"{}"
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"the body is not what this endpoint takes: {error}"
        raise UsageError(msg) from None


def schema_of(kind: type[Any]) -> dict[str, Any]:
    """A request body's schema for the OpenAPI page."""
    schema = msgspec.json.schema(kind, ref_template="#/$defs/{name}")
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


def json_response(
    body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Plain JSON."""
    return Response(
        _encoder.encode(body),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )


def submitted_shape(found: Submitted) -> dict[str, Any]:
    """What a submit answers."""
    return {
        "execution_id": str(found.execution_id),
        "status": "duplicate" if found.duplicate else "started",
        "duplicate": found.duplicate,
        "playbook": found.playbook,
        "position": found.position,
        "warnings": list(found.warnings),
    }


def version_of(given: int | str | None) -> int | None:
    """NoETL's clients send versions as numbers, as text, or say ``latest``."""
    if given in (None, "", "latest"):
        return None
    text = str(given)
    if not (text.isascii() and text.isdigit()):
        msg = f"version {text[:40]!r} is not a number"
        raise UsageError(msg)
    return int(text)


def execution_shape(row: ExecutionRow) -> dict[str, Any]:
    """An execution row."""
    body: dict[str, Any] = msgspec.to_builtins(row)
    for name in ("execution_id", "parent_execution_id", "last_event_id"):
        if body[name] is not None:
            body[name] = str(body[name])
    body["error"] = mask(body["error"])
    body["steps"] = mask(body["steps"])
    return body


def child_shape(row: ExecutionRow) -> dict[str, Any]:
    """An execution as its parent shows it."""
    return {
        "execution_id": str(row.execution_id),
        "path": row.path,
        "status": row.status,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
    }


def status_shape(
    row: ExecutionRow, variables: dict[str, Any], children: list[ExecutionRow]
) -> dict[str, Any]:
    """The short form NoETL's clients poll."""
    by_status: dict[str, list[str]] = {}
    entered = sorted(row.steps.items(), key=lambda item: item[1].get("entered_at") or "")
    for name, step in entered:
        by_status.setdefault(str(step.get("status")), []).append(name)
    running = by_status.get("running", [])
    parent = row.parent_execution_id
    return {
        "execution_id": str(row.execution_id),
        "status": row.status,
        "path": row.path,
        "completed": row.status in TERMINAL_STATUSES,
        "failed": row.status == "FAILED",
        "cancelled": row.status == "CANCELLED",
        "current_step": running[-1] if running else row.final_step,
        "final_step": row.final_step,
        "steps": mask(row.steps),
        "counters": row.counters,
        "running_steps": running,
        "completed_steps": by_status.get("completed", []),
        "failed_steps": by_status.get("failed", []),
        "variables": mask(variables),
        "error": mask(row.error),
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "parent_execution_id": None if parent is None else str(parent),
        "children": [child_shape(each) for each in children],
    }


def event_shape(row: EventRow) -> dict[str, Any]:
    """An event and where the log holds it."""
    body: dict[str, Any] = msgspec.to_builtins(row.event)
    for name in _EVENT_IDS:
        if body[name] is not None:
            body[name] = str(body[name])
    body["payload"] = mask(body["payload"])
    parent = body["payload"].get("parent_execution_id")
    if isinstance(parent, int):
        body["payload"]["parent_execution_id"] = str(parent)
    return {"position": row.position, "ordinal": row.ordinal, "shard": row.shard, **body}


def log_shape(row: LogRow) -> dict[str, Any]:
    """A printed line; its id is the cursor, and wider than JavaScript's numbers."""
    line = row.line
    return {
        "log_id": str(row.log_id),
        "step": line.step,
        "visit": line.visit,
        "task": line.task,
        "attempt": line.attempt,
        "stream": line.stream,
        "time": iso_utc(line.time_ms),
        "text": line.text,
    }


def playbook_shape(row: PlaybookRow) -> dict[str, Any]:
    """A catalog row, without its text."""
    return {
        "path": row.path,
        "name": row.name,
        "version": row.version,
        "digest": row.digest,
        "registered_at": row.registered_at,
        "size_bytes": row.size_bytes,
    }


def entry_shape(entry: CatalogEntry) -> dict[str, Any]:
    """A registered version, without its text."""
    return {
        **entry.pinned(),
        "catalog_id": entry.digest,
        "name": entry.name,
        "registered_at": entry.registered_at,
        "size_bytes": entry.size_bytes,
    }


def object_shape(row: BusinessObjectRow) -> dict[str, Any]:
    """What was said about a business object."""
    return {
        "type": row.object_type,
        "id": row.object_id,
        "status": row.status,
        "attributes": mask(row.attributes),
        "version": row.version,
        "recorded_at": row.recorded_at,
        "event_id": str(row.event_id),
        "execution_id": str(row.execution_id),
        "command_id": row.command_id,
        "step": row.step,
        "visit": row.visit,
        "task": row.task,
        "reference": row.reference,
    }


def command_shape(row: CommandRow) -> dict[str, Any]:
    """A command row."""
    body: dict[str, Any] = msgspec.to_builtins(row)
    for name in ("execution_id", "issued_event_id", "claimed_event_id", "terminal_event_id"):
        if body[name] is not None:
            body[name] = str(body[name])
    body["error"] = mask(body["error"])
    return body


def worker_shape(row: WorkerRow) -> dict[str, Any]:
    """A worker row."""
    body: dict[str, Any] = msgspec.to_builtins(row)
    return body


def shard_shape(row: ShardRow, live: dict[str, Any] | None) -> dict[str, Any]:
    """A shard's row, and what its owner said lately."""
    body: dict[str, Any] = msgspec.to_builtins(row)
    if body["checkpoint_event_id"] is not None:
        body["checkpoint_event_id"] = str(body["checkpoint_event_id"])
    return body | {"live": live}


def credential_shape(info: CredentialInfo) -> dict[str, Any]:
    """What may be shown of a credential."""
    return {
        "name": info.name,
        "type": info.type,
        "description": info.description,
        "fields": list(info.fields),
    }
