"""Keeping the wanted hosts in being: what is missing, and one turn that makes it.

Every host runs this for the others, so there is no supervisor whose loss would matter. Owns the
comparison and the turn; refuses to know Ray, which is behind :class:`HostDirectory`, and never
removes anything: a host nobody wants any more is the business of whoever ordered that. It also sees
first when a process has died, and says so: what that process had leased need not wait (P22).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from actors.options import HostSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

logger = logging.getLogger(__name__)

WATCHED_MAX = 2
"""Hosts whose processes one host watches: the cost grows with the hosts, not with their square."""


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

    def incarnations(self, names: Sequence[str]) -> dict[str, str]:
        """By actor name which process a host is; empty text for one that is dead or restarting.

        Who does not answer in time is left out: silence is for leases to judge.
        """
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


def neighbours(wanted: Sequence[HostSpec], own_name: str) -> tuple[HostSpec, ...]:
    """Whose processes a host watches: the next few in the order wanted, so that all are watched."""
    names = [spec.name for spec in wanted]
    if own_name not in names:
        return ()
    own = names.index(own_name)
    ring = [*wanted[own + 1 :], *wanted[:own]]
    return tuple(ring[:WATCHED_MAX])


class Supervisor:
    """One host's watch over the others."""

    def __init__(
        self,
        directory: HostDirectory,
        wanted: Sequence[HostSpec],
        *,
        own_name: str,
        on_gone: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        """Bind.

        Args:
            directory: Where hosts are registered.
            wanted: All hosts there should be.
            own_name: Which of them this is.
            on_gone: Told of a host and the incarnation of it that is dead (P22).
        """
        self._directory = directory
        self._others = tuple(spec for spec in wanted if spec.name != own_name)
        self._watched = neighbours(wanted, own_name)
        self._on_gone = on_gone
        self._known: dict[str, str] = {}
        self._gone: list[tuple[str, str]] = []
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
        await self._tell_gone()
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

    async def _tell_gone(self) -> None:
        """Say whose process is not the one it was a moment ago."""
        gone, self._gone = self._gone, []
        if self._on_gone is not None:
            for name, incarnation in gone:
                logger.warning("host %s: process %s is dead", name, incarnation)
                await self._on_gone(name, incarnation)

    def _turn_now(self) -> int:
        made = self._make_missing()
        if self._on_gone is not None:
            self._look_at_neighbours()
        return made

    def _look_at_neighbours(self) -> None:
        found = self._directory.incarnations([spec.actor_name for spec in self._watched])
        for spec in self._watched:
            now = found.get(spec.actor_name)
            before = self._known.get(spec.name, "")
            if now is None or now == before:
                continue
            if before:
                self._gone.append((spec.name, before))
            self._known[spec.name] = now

    def _make_missing(self) -> int:
        decisions = reconcile(self._others, self._directory.existing())
        for decision in decisions:
            if self._stopped:
                break
            logger.warning("host %s is missing; making it anew", decision.spec.name)
            self._directory.create(decision.spec)
        return len(decisions)
