"""Keeping the wanted hosts in being: what is missing, and one turn that makes it.

Every host runs this for the others, so there is no supervisor whose loss would matter. Owns the
comparison and the turn; refuses to know Ray, which is behind :class:`HostDirectory`, and never
removes anything: a host nobody wants any more is the business of whoever ordered that.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from actors.options import HostSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateHost:
    """Decision: this host is wanted and not there."""

    spec: HostSpec


class HostDirectory(Protocol):
    """Where hosts are registered. Calls block, so they are made off the loop."""

    def existing(self) -> frozenset[str]:
        """Actor names of all hosts that live or are being restarted."""
        ...

    def create(self, spec: HostSpec) -> None:
        """Make a host unless it is there by now; does not wait for it."""
        ...


def reconcile(wanted: Sequence[HostSpec], existing: Collection[str]) -> tuple[CreateHost, ...]:
    """What must be made so that every wanted host exists.

    Args:
        wanted: The hosts there should be.
        existing: Actor names that are registered now.

    Returns:
        One decision per missing host, in the order wanted.
    """
    return tuple(CreateHost(spec=spec) for spec in wanted if spec.actor_name not in existing)


class Supervisor:
    """One host's watch over the others."""

    def __init__(
        self, directory: HostDirectory, wanted: Sequence[HostSpec], *, own_name: str
    ) -> None:
        self._directory = directory
        self._others = tuple(spec for spec in wanted if spec.name != own_name)
        self._turn_lock = asyncio.Lock()
        self._stopped = False
        self._failing = False
        self.created = 0
        """Hosts this watch has made anew."""

    async def turn(self) -> int:
        """Compare once and make what is missing.

        An unreachable directory is waited out, not an error: hosts go on without it.

        Returns:
            How many hosts were made.
        """
        async with self._turn_lock:
            if self._stopped or not self._others:
                return 0
            try:
                made = await asyncio.to_thread(self._turn_now)
            except Exception:
                if not self._failing:
                    logger.warning("cannot look after the other hosts now", exc_info=True)
                self._failing = True
                return 0
            self._failing = False
            self.created += made
            return made

    async def stop(self) -> None:
        """Make nothing from now on; a turn under way is waited for."""
        self._stopped = True
        async with self._turn_lock:
            return

    async def run(self, period_s: float) -> None:
        """Repeat the turn until stopped."""
        while not self._stopped:
            await asyncio.sleep(period_s)
            await self.turn()

    def _turn_now(self) -> int:
        decisions = reconcile(self._others, self._directory.existing())
        for decision in decisions:
            if self._stopped:
                break
            logger.warning("host %s is missing; making it anew", decision.spec.name)
            self._directory.create(decision.spec)
        return len(decisions)
