"""Subjects: one per aggregate, shard first, so that one writer and one version belong together.

``noetl.events.<shard>.<tenant>.<org>.<execution>.<aggregate>`` for what belongs to an execution and
``noetl.system.<tenant>.<org>.<kind>.<id>`` for what belongs to none. Tokens are percent-encoded, so
any step or worker name is safe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from noetl_ray.events.canonical import sha256_hex
from noetl_ray.scope import Scope, scope_of

EVENTS_ROOT = "noetl.events"
SYSTEM_ROOT = "noetl.system"
WORKERS_FILTER = f"{SYSTEM_ROOT}.worker.>"
"""Where all workers come and go."""
CONTROL = "control"
INBOX = "inbox"
SUBMIT = "submit"
COMMAND_PREFIX = "cmd-"
FRAME_PREFIX = "frm-"
KEY_PREFIX = "key-"

_PLAIN = re.compile(r"[A-Za-z0-9_~-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSubject:
    """A parsed execution subject.

    ``execution`` is the decimal id, or ``key-<hash>`` for a keyed submit.
    """

    shard: int
    scope: Scope
    execution: str
    aggregate: str


def token(text: str) -> str:
    """One subject token for any text: reversible, no dots, blanks or wildcards."""
    # Nearly every name is plain, and quoting costs ten times the look.
    return text if _PLAIN.fullmatch(text) else _quoted(text)


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    """Names with a slash, as those of workers, come back with every offer."""
    return quote(text, safe="-_~").replace(".", "%2E")


def untoken(text: str) -> str:
    """The inverse of :func:`token`."""
    return unquote(text)


def control_subject(shard: int, scope: Scope, execution_id: int) -> str:
    """The one subject only the conductor writes (P10)."""
    return _event(shard, scope, str(execution_id), CONTROL)


def inbox_subject(shard: int, scope: Scope, execution_id: int) -> str:
    """Where cancels and callbacks wait for a decision to take them (P10)."""
    return _event(shard, scope, str(execution_id), INBOX)


def keyed_inbox_subject(shard: int, scope: Scope, execution_id: int, key: str) -> str:
    """Where a fact from outside with an idempotency key lies; it can lie there once."""
    name = f"{INBOX}-{sha256_hex(key.encode())[:40]}"
    return _event(shard, scope, str(execution_id), name)


def submit_subject(shard: int, scope: Scope, execution_id: int) -> str:
    """Where a request without an idempotency key lies."""
    return _event(shard, scope, str(execution_id), SUBMIT)


def keyed_submit_subject(shard: int, scope: Scope, idempotency_key: str) -> str:
    """Where a request with an idempotency key lies; the key alone names it (P11)."""
    name = KEY_PREFIX + sha256_hex(idempotency_key.encode())[:40]
    return _event(shard, scope, name, SUBMIT)


def command_subject(shard: int, scope: Scope, execution_id: int, command_id: str) -> str:
    """A command's own subject: its claims and its one completion."""
    return _event(shard, scope, str(execution_id), COMMAND_PREFIX + token(command_id))


def frame_subject(shard: int, scope: Scope, execution_id: int, frame_id: str) -> str:
    """A frame's own subject: who holds it, that it lives, and its one end."""
    return _event(shard, scope, str(execution_id), FRAME_PREFIX + token(frame_id))


def worker_subject(worker_id: str) -> str:
    """Where a worker's incarnations come and go."""
    return f"{SYSTEM_ROOT}.worker.{token(worker_id)}"


def shard_subject(shard: int) -> str:
    """Who owned a shard, and when."""
    return f"{SYSTEM_ROOT}.shard.{shard}"


def checkpoint_subject(shard: int) -> str:
    """Up to where a shard's states are kept (P25)."""
    return f"{SYSTEM_ROOT}.checkpoint.{shard}"


def catalog_subject(scope: Scope, path: str) -> str:
    """The versions of one playbook path."""
    return f"{SYSTEM_ROOT}.catalog.{scope.tenant_id}.{scope.organization_id}.{token(path)}"


def catalog_filter(scope: Scope) -> str:
    """Every playbook path of a scope."""
    return f"{SYSTEM_ROOT}.catalog.{scope.tenant_id}.{scope.organization_id}.>"


def shard_filter(shard: int) -> str:
    """All events of a shard."""
    return f"{EVENTS_ROOT}.{shard}.>"


def execution_filter(scope: Scope, execution_id: int) -> str:
    """Every subject of one execution, whatever its shard; not a keyed request (P11)."""
    return f"{EVENTS_ROOT}.*.{scope.tenant_id}.{scope.organization_id}.{execution_id}.>"


def scope_filter(scope: Scope) -> str:
    """Every execution subject of a scope."""
    return f"{EVENTS_ROOT}.*.{scope.tenant_id}.{scope.organization_id}.>"


def tenant_filter(tenant_id: str, execution: str, aggregate: str) -> str:
    """One aggregate of an execution, or with ``*`` of all, in every organization of a tenant."""
    return f"{EVENTS_ROOT}.*.{tenant_id}.*.{execution}.{aggregate}"


def parse_event_subject(subject: str) -> EventSubject | None:
    """Read an execution subject back; None for any other subject."""
    parts = subject.split(".")
    if len(parts) != 7 or parts[0] != "noetl" or parts[1] != "events":
        return None
    return EventSubject(
        shard=int(parts[2]),
        scope=scope_of(parts[3], parts[4]),
        execution=parts[5],
        aggregate=parts[6],
    )


def _event(shard: int, scope: Scope, execution: str, aggregate: str) -> str:
    return (
        f"{EVENTS_ROOT}.{shard}.{scope.tenant_id}.{scope.organization_id}.{execution}.{aggregate}"
    )
