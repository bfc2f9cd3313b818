"""The callbacks of a command as its worker names them: tokens, their digests, the address to call.

A token follows from the command, the task and the round, so that every holder of a command hands
out the same one: whoever was given it before a crash answers the same wait after it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.language import CALLBACK
from noetl_ray.errors import InternalError
from noetl_ray.events.types import EventType
from noetl_ray.results.redact import secret_values
from noetl_ray.scope import scope_of
from noetl_ray.submit.tokens import CallbackTarget, CallbackTokens, token_digest
from noetl_ray.tools.waiting import Asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.contexts import ContextStore
    from actors.messages import Offer
    from noetl_ray.config.settings import Settings
    from noetl_ray.dsl.model import Step
    from noetl_ray.scope import Scope
    from noetl_ray.wal.port import Log


def _of_this_process() -> CallbackTokens:
    return CallbackTokens(secrets.token_bytes(32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a worker needs to name callbacks; without a key, one that only this process knows."""

    tokens: CallbackTokens = field(default_factory=_of_this_process)
    url: str = ""
    """Where the gateway is reached from outside; empty leaves `callback.url` a path."""


def callbacks_of(settings: Settings, key: bytes) -> Callbacks:
    """The callbacks of a deployment; every host derives the same from the same key."""
    gateway = settings.gateway
    host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
    at = f"http://{host}:{gateway.port}" if gateway.port else ""
    return Callbacks(tokens=CallbackTokens(key), url=gateway.public_url.rstrip("/") or at)


def asking_of(
    callbacks: Callbacks, offer: Offer, step: Step, conceal: Callable[[str], None]
) -> Asking | None:
    """The callbacks of a command; None for a step that waits for none."""
    if all(task.kind != CALLBACK for task in step.tasks):
        return None
    issued = offer.issued

    def token(label: str, rounds: int) -> str:
        made = callbacks.tokens.make(
            CallbackTarget(
                scope=scope_of(issued.tenant_id, issued.organization_id),
                project_id=issued.payload.get("project_id", "default"),
                execution_id=issued.execution_id,
                command_id=issued.command_id or "",
                task=label,
                round=rounds,
            )
        )
        # It opens a door of the gateway: no result, error or print may hold it.
        conceal(made)
        return made

    return Asking(step, token, token_digest, callbacks.url)


async def given_answer(
    log: Log,
    contexts: ContextStore,
    scope: Scope,
    position: int,
    learn: Callable[[set[str]], None],
) -> Any:
    """The answer that lies at a position of the log; ``learn`` is told secrets in it.

    Raises:
        InternalError: there is no answer; nothing may go on with a guess.
    """
    recorded = await log.get(position)
    for event in recorded.record.events if recorded else ():
        if event.event_type is EventType.CALLBACK_RECEIVED:
            if event.payload_ref is None:
                return event.payload["data"]
            value = (await contexts.load(scope, event.payload_ref))["data"]
            learn(secret_values(value))
            return value
    msg = f"no answer at position {position} of the log"
    raise InternalError(msg)
