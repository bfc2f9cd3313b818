"""Callback tokens: which wait somebody may answer, signed so that nobody can make one up.

A token names its target and carries a MAC over it, so the gateway needs no list of tokens. The log
only ever holds a token's digest. Refuses a token that was altered or signed with another key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

import msgspec

from noetl_ray.errors import NotFoundError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.scope import Scope, scope_of

TOKEN_CHARS_MAX = 2_000
_PURPOSE = b"noetl-ray callback tokens, version 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackTarget:
    """One wait of one task: the round counts how often the task has waited in its pipeline."""

    scope: Scope
    project_id: str
    execution_id: int
    command_id: str
    task: str
    round: int


class CallbackTokens:
    """Makes and reads tokens with one key, which cannot be read back."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        """Derive this purpose's key; the one given may serve others too."""
        self._key = hmac.digest(key, _PURPOSE, "sha256")

    def make(self, target: CallbackTarget) -> str:
        """The token of a wait; the same target gives the same one."""
        parts = [
            target.scope.tenant_id,
            target.scope.organization_id,
            target.project_id,
            target.execution_id,
            target.command_id,
            target.task,
            target.round,
        ]
        named = _text(msgspec.json.encode(parts))
        return f"{named}.{self._mac(named)}"

    def read(self, token: str) -> CallbackTarget:
        """What a token names.

        Raises:
            NotFoundError: it is none of ours; nothing says why.
        """
        named, _, mac = token.partition(".")
        known = len(token) <= TOKEN_CHARS_MAX and hmac.compare_digest(
            mac.encode(), self._mac(named).encode()
        )
        try:
            if not known:
                raise ValueError
            tenant, organization, project, execution_id, command_id, task, round_ = (
                msgspec.json.decode(
                    base64.urlsafe_b64decode(named + "=" * (-len(named) % 4)),
                    type=tuple[str, str, str, int, str, str, int],
                )
            )
        except (ValueError, binascii.Error, msgspec.DecodeError):
            msg = "this is no callback of this deployment"
            raise NotFoundError(msg) from None
        return CallbackTarget(
            scope=scope_of(tenant, organization),
            project_id=project,
            execution_id=execution_id,
            command_id=command_id,
            task=task,
            round=round_,
        )

    def _mac(self, named: str) -> str:
        return _text(hmac.digest(self._key, named.encode(), hashlib.sha256))


def token_digest(token: str) -> str:
    """Under which name the log knows a token."""
    return sha256_hex(token.encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
