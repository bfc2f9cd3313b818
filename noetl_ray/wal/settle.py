"""Settling an append that was refused, not answered, or answered as a duplicate (P5).

Owns the one procedure both adapters run. The truth is always read from the log: the first message
of the subject after the version we expected is ours, or another writer was first. Message ids
only save a second copy within the duplicate window. Refuses to guess: what cannot be read within
the bound is reported as unavailable, and the caller must look again before it decides anything.
"""

from __future__ import annotations

import contextlib
import re
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from noetl_ray.errors import (
    InternalError,
    LogUnavailableError,
    UsageError,
    VersionConflictError,
)
from noetl_ray.wal.subjects import EVENTS_ROOT, SYSTEM_ROOT

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.wal.port import Recorded

PAUSE_FIRST_S = 0.005
PAUSE_MAX_S = 0.5

_WRITABLE = re.compile(
    rf"(?:{re.escape(EVENTS_ROOT)}|{re.escape(SYSTEM_ROOT)})(?:\.[^\s.*>\x00-\x1f\x7f]+)+"
)


class Outcome(Enum):
    """What one publish came to."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """The message id is known to the server; nothing was stored now."""
    REFUSED = "refused"
    """The subject has another version than the one expected."""
    UNKNOWN = "unknown"
    """No answer came; it may be stored, now or later."""
    BUSY = "busy"
    """The server turned it away for now; it is not stored."""


class Published(msgspec.Struct, frozen=True):
    """The answer to one publish; ``position`` counts for STORED and DUPLICATE only."""

    outcome: Outcome
    position: int = 0


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One append as it goes out, the same at every try."""

    subject: str
    data: bytes
    message_id: int
    expected: int | None


class Tail(Protocol):
    """What settling needs of a log."""

    async def publish(self, attempt: Attempt) -> Published:
        """Try once."""
        ...

    async def last(self, subject: str) -> Recorded | None:
        """The last record of a subject; LogUnavailableError when it cannot be read."""
        ...

    async def first_after(self, subject: str, position: int) -> Recorded | None:
        """The first record of a subject after a position."""
        ...

    async def get(self, position: int) -> Recorded | None:
        """The record at a position."""
        ...


def check_subject(subject: str) -> None:
    """Refuse a subject that is not one plain name below the roots of the log.

    Raises:
        UsageError: the subject has blanks, wildcards or empty tokens, or lies outside the log.
    """
    if _WRITABLE.fullmatch(subject) is None:
        msg = f"{subject!r} is no subject of the log: use {EVENTS_ROOT}.… or {SYSTEM_ROOT}.…"
        raise UsageError(msg)


async def settle(
    tail: Tail, clock: Clock, attempt: Attempt, first: Published, *, bound_s: float
) -> int:
    """Bring an append to an end after a first answer that was not STORED.

    Args:
        tail: The log.
        clock: Where waiting and the bound take their time from.
        attempt: What was published.
        first: What the first publish came to.
        bound_s: How long to try before giving up.

    Returns:
        The position at which the record is stored.

    Raises:
        VersionConflictError: another writer was first.
        LogUnavailableError: the log could not be reached within the bound; the outcome is unknown.
        InternalError: the message id was used before for something else.
    """
    deadline = clock.monotonic() + bound_s
    pause = PAUSE_FIRST_S
    published = first
    again = first.outcome is Outcome.BUSY
    while True:
        try:
            position = await _conclude(tail, attempt, published)
            if position is not None:
                return position
            if not again:
                # One lost message goes out again at once; more of them are trouble, not chance.
                again = True
                published = await tail.publish(attempt)
                continue
        except LogUnavailableError:
            again = True
        if clock.monotonic() >= deadline:
            raise _gave_up(attempt, bound_s)
        await clock.sleep(pause)
        pause = min(pause * 2, PAUSE_MAX_S)
        with contextlib.suppress(LogUnavailableError):
            published = await tail.publish(attempt)


async def _conclude(tail: Tail, attempt: Attempt, published: Published) -> int | None:
    """A position when the append is known to be stored, None when it must go out again."""
    match published.outcome:
        case Outcome.STORED:
            return published.position
        case Outcome.DUPLICATE:
            return await _verify_duplicate(tail, attempt, published.position)
        case Outcome.BUSY:
            return None
        case Outcome.REFUSED | Outcome.UNKNOWN:
            return await _look(tail, attempt)


async def _look(tail: Tail, attempt: Attempt) -> int | None:
    """Read the subject: ours is there, another's is there instead, or nothing new is."""
    last = await tail.last(attempt.subject)
    if last is not None and _is_ours(last, attempt):
        return last.position
    expected = attempt.expected
    actual = 0 if last is None else last.position
    if expected is None or actual == expected:
        # Without an expectation the message id keeps a second copy out. With one, nothing was
        # stored yet, or a replica answered from behind; the version check keeps a second copy out.
        return None
    if actual > expected:
        # Ours may be stored and already have a successor, so the last message alone cannot tell.
        following = await tail.first_after(attempt.subject, expected)
        if following is not None and _is_ours(following, attempt):
            return following.position
    raise VersionConflictError(attempt.subject, expected, actual)


async def _verify_duplicate(tail: Tail, attempt: Attempt, position: int) -> int:
    """A duplicate answer is stream-wide: make sure it speaks of our own record (P5)."""
    stored = await tail.get(position)
    if stored is not None and stored.subject == attempt.subject and _is_ours(stored, attempt):
        return position
    where = "a removed message" if stored is None else stored.subject
    msg = (
        f"message id {attempt.message_id} for {attempt.subject} was used before, by {where} "
        f"at position {position}; the record was not stored"
    )
    raise InternalError(msg)


def _is_ours(stored: Recorded, attempt: Attempt) -> bool:
    return stored.record.events[0].event_id == attempt.message_id


def _gave_up(attempt: Attempt, bound_s: float) -> LogUnavailableError:
    msg = f"{attempt.subject}: the log gave no answer for {bound_s:g} s; the append may be stored"
    return LogUnavailableError(msg)
