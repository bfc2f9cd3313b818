"""Tells the log whose a shard is: claims and releases on the shard's own subject (PRIN-3).

The table of owners says who owns now; this says who did, and keeps epochs growing when the table is
lost. A later epoch that is there already wins, and the word that comes too late is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from actors.stamp import shard_event
from noetl_ray.errors import LogError, VersionConflictError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import EventType
from noetl_ray.wal.subjects import shard_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.clock import Clock
    from noetl_ray.ids import SnowflakeIds
    from noetl_ray.wal.port import Log

_log = logging.getLogger(__name__)


class LeaseBook:
    """What one owner tells of its leases."""

    def __init__(
        self,
        log: Log,
        ids: SnowflakeIds,
        clock: Clock,
        *,
        owner: str,
        incarnation: str,
        producer: str,
    ) -> None:
        self._log = log
        self._ids = ids
        self._clock = clock
        self._owner = owner
        self._incarnation = incarnation
        self._producer = producer

    async def claimed(
        self, claims: Mapping[int, tuple[int, int]], reason: str, lease_s: float
    ) -> None:
        """Tell of claims: by shard the version its subject had, and the epoch."""

        async def tell(shard: int, version: int, epoch: int) -> None:
            more = {"lease_ms": int(lease_s * 1000)}
            try:
                await self._say(EventType.SHARD_CLAIMED, shard, epoch, reason, version, more)
            except VersionConflictError:
                _log.info("shard %d was claimed by another meanwhile", shard)
            except LogError as error:
                _log.warning("the claim of shard %d is not told: %s", shard, error)

        await asyncio.gather(*(tell(s, version, e) for s, (version, e) in claims.items()))
        if claims:
            _log.info("claimed shards %s (%s)", sorted(claims), reason)

    async def released(self, epochs: Mapping[int, int], reason: str) -> None:
        """Tell that shards were given back, each under the epoch it was held by."""

        async def tell(shard: int, epoch: int) -> None:
            last = await self._log.last(shard_subject(shard))
            if last is None or last.record.events[-1].payload["epoch"] == epoch:
                version = last.position if last is not None else 0
                with contextlib.suppress(VersionConflictError):
                    await self._say(EventType.SHARD_RELEASED, shard, epoch, reason, version, {})

        await asyncio.gather(*(tell(shard, epoch) for shard, epoch in epochs.items()))

    async def _say(
        self,
        kind: EventType,
        shard: int,
        epoch: int,
        reason: str,
        version: int,
        more: dict[str, Any],
    ) -> None:
        subject = shard_subject(shard)
        event = shard_event(
            kind,
            shard,
            subject,
            {
                "shard": shard,
                "owner": self._owner,
                "incarnation": self._incarnation,
                "epoch": epoch,
                "reason": reason,
                **more,
            },
            event_id=self._ids.mint(),
            now_ms=self._clock.now_ms(),
            producer=self._producer,
        )
        await self._log.append(subject, Record(events=(event,)), expected_version=version)
