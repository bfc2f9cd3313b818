"""How unkind the world is: a plan of chances, and the place where every fault is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl_ray.errors import LogUnavailableError, StoreUnavailableError
from noetl_ray.testing.simloop import SimClock

if TYPE_CHECKING:
    from noetl_ray.events.envelope import Record
    from noetl_ray.testing.simloop import SimLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """All chances are per event."""

    lost_publish: float = 0.0
    lost_ack: float = 0.0
    refused_publish: float = 0.0
    """The server has no room just now and stores nothing (429)."""
    slow_log: float = 0.0
    lost_read: float = 0.0
    slow_delivery: float = 0.0
    doubled_delivery: float = 0.0
    """A subscription hands out records it has handed out before, as after a reconnect."""
    cut_subscription: float = 0.0
    lost_hint: float = 0.0
    doubled_hint: float = 0.0
    late_hint: float = 0.0
    failing_store: float = 0.0
    slow_store: float = 0.0
    failing_shards: float = 0.0
    """An outage, or a lost ack, of the table of owners and of the checkpoints."""
    skew_ms: int = 0
    """How far the wall clock of a process may be off, either way."""


CALM = FaultPlan()
ROUGH = FaultPlan(
    lost_publish=0.03,
    lost_ack=0.04,
    refused_publish=0.03,
    slow_log=0.1,
    lost_read=0.01,
    slow_delivery=0.15,
    doubled_delivery=0.05,
    cut_subscription=0.002,
    lost_hint=0.1,
    doubled_hint=0.1,
    late_hint=0.15,
    failing_store=0.05,
    slow_store=0.05,
    failing_shards=0.05,
    skew_ms=3_000,
)


class Faults:
    """Draws faults for every adapter of a world; the plan may change at any time."""

    def __init__(self, loop: SimLoop, plan: FaultPlan) -> None:
        self.plan = plan
        self._loop = loop
        self._clock = SimClock(loop)

    # What the log asks

    async def before_append(self, subject: str, record: Record) -> None:
        if self.meets(self.plan.slow_log):
            await self._clock.sleep(self._loop.rng.uniform(0, 2))
        if self.meets(self.plan.lost_publish):
            msg = "lost on the way in"
            raise LogUnavailableError(msg)

    async def after_append(self, subject: str, record: Record, position: int) -> None:
        if self.meets(self.plan.slow_log):
            await self._clock.sleep(self._loop.rng.uniform(0, 2))
        if self.meets(self.plan.lost_ack):
            msg = "ack lost"
            raise LogUnavailableError(msg)

    async def delay_delivery(self) -> None:
        if self.meets(self.plan.slow_delivery):
            await self._clock.sleep(self._loop.rng.uniform(0, 1))

    def read(self) -> None:
        if self.meets(self.plan.lost_read):
            msg = "no answer to a read"
            raise LogUnavailableError(msg)

    def refuses(self) -> bool:
        return self.meets(self.plan.refused_publish)

    # What hints and the object store ask

    def deliveries(self, subject: str, data: bytes) -> list[float]:
        if self.meets(self.plan.lost_hint):
            return []
        delay = self._loop.rng.uniform(0, 5) if self.meets(self.plan.late_hint) else 0.0
        return [delay, delay] if self.meets(self.plan.doubled_hint) else [delay]

    async def of_store(self, operation: str, key: str) -> None:
        slow = self.meets(self.plan.slow_store)
        await self._clock.sleep(self._loop.rng.uniform(0, 3) if slow else 0)
        if operation in ("put", "get", "info") and self.meets(self.plan.failing_store):
            msg = "simulated"
            raise StoreUnavailableError(msg)

    async def of_checkpoints(self, what: str) -> None:
        slow = self.meets(self.plan.slow_log)
        await self._clock.sleep(self._loop.rng.uniform(0, 2) if slow else 0)
        if self.meets(self.plan.failing_shards):
            msg = f"simulated {what}"
            raise LogUnavailableError(msg)

    async def of_owners(self, what: str) -> None:
        await self._clock.sleep(0)
        if self.meets(self.plan.failing_shards):
            msg = f"simulated {what}"
            raise StoreUnavailableError(msg)

    # What the world asks

    def skew_ms(self) -> int:
        most = self.plan.skew_ms
        return self._loop.rng.randint(-most, most) if most else 0

    def meets(self, probability: float) -> bool:
        return probability > 0 and self._loop.rng.random() < probability
