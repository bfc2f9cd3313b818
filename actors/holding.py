"""A command's own subject as its holder writes it: one record after the other, version by version.

Owns the version the next append must expect and the link to the event before (P8, P16). A command
that was taken away refuses the append, whatever it says.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from actors.stamp import command_event
from noetl_ray.errors import LogUnavailableError
from noetl_ray.events.envelope import Event, PayloadRef, Record
from noetl_ray.events.types import EventType
from noetl_ray.scope import scope_of
from noetl_ray.wal.subjects import command_subject, frame_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.messages import Offer
    from noetl_ray.clock import Clock
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.wal.port import Log

_log = logging.getLogger(__name__)

RETRY_S = 0.5

Said = tuple[EventType, dict[str, Any], PayloadRef | None]
"""What an event of the holder says."""


class Holding:
    """One holding of a command by one worker."""

    def __init__(
        self,
        offer: Offer,
        log: Log,
        ids: SnowflakeIds,
        clock: Clock,
        *,
        producer: str,
        advanced: Callable[[int], None] = lambda _version: None,
    ) -> None:
        """Begin with what the offer says.

        Args:
            offer: What gave the command to this worker.
            log: Where its subject lies.
            ids: For the events.
            clock: For their time, and to wait for the log.
            producer: Who writes.
            advanced: Told each version this holding brings about.
        """
        self._offer = offer
        self._log = log
        self._ids = ids
        self._clock = clock
        self._producer = producer
        self._advanced = advanced
        self._version = offer.version
        self._prev = offer.prev_event_id

    async def append(self, said: list[Said], *, once: bool = False, lets_go: bool = False) -> int:
        """Append one record; its position.

        The work is done, so it keeps trying: only the log may say that it does not count. With
        ``once`` the log's silence is an answer too. A record that lets the command go tells
        nobody of its version: the next offer names it, and may well come here again.

        Raises:
            VersionConflictError: the command was taken away, or has ended.
            LogUnavailableError: with ``once``, no answer came.
        """
        events = self._events(said)
        record = Record(events=tuple(events))
        while True:
            try:
                position = await self._log.append(
                    subject_of(self._offer), record, expected_version=self._version
                )
            except LogUnavailableError as error:
                if once:
                    raise
                _log.warning("%s of %s waits: %s", said[-1][0], events[0].command_id, error)
                await self._clock.sleep(RETRY_S)
                continue
            self._version = position
            self._prev = events[-1].event_id
            if not lets_go:
                self._advanced(position)
            return position

    def _events(self, said: list[Said]) -> list[Event]:
        issued = self._offer.issued
        prev = self._prev
        now = self._clock.now_ms()
        events: list[Event] = []
        for kind, payload, reference in said:
            event = command_event(
                kind,
                payload,
                scope=scope_of(issued.tenant_id, issued.organization_id),
                shard=self._offer.shard,
                execution_id=issued.execution_id,
                command_id=issued.command_id or "",
                attempt=self._offer.attempt,
                event_id=self._ids.mint(),
                now_ms=now,
                producer=self._producer,
                prev_event_id=prev,
                causation_id=issued.event_id,
                payload_ref=reference,
                stage_id=issued.stage_id,
            )
            prev = event.event_id
            events.append(event)
        return events


def subject_of(offer: Offer) -> str:
    """The command's or frame's own subject."""
    issued = offer.issued
    scope = scope_of(issued.tenant_id, issued.organization_id)
    name = frame_subject if issued.stage_id else command_subject
    return name(offer.shard, scope, issued.execution_id, issued.command_id or "")
