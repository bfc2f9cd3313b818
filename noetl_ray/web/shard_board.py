"""What the gateway has heard of the conductors' shards, for people and for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from noetl_ray.clock import Clock

FRESH_S = 10.0
"""How long the word of a conductor counts; it speaks each second."""


class ShardBoard:
    """The newest word about each shard."""

    def __init__(self, clock: Clock) -> None:
        """Begin knowing nothing."""
        self._clock = clock
        self._shards: dict[int, tuple[int, str, int, float]] = {}

    def hear(self, data: bytes) -> None:
        """Take a hint; one that cannot be read is left out. A later epoch wins."""
        try:
            told = msgspec.json.decode(data)
            owner, now = str(told["owner"]), self._clock.monotonic()
            for shard, (epoch, age_ms) in told["shards"].items():
                held = self._shards.get(int(shard))
                if held is None or int(epoch) >= held[0] or now - held[3] > FRESH_S:
                    self._shards[int(shard)] = (int(epoch), owner, int(age_ms), now)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            return

    def live(self) -> dict[int, dict[str, Any]]:
        """Shards whose owner spoke lately: owner, epoch, and the age of what is not saved yet."""
        now = self._clock.monotonic()
        return {
            shard: {"owner": owner, "epoch": epoch, "checkpoint_age_ms": age_ms}
            for shard, (epoch, owner, age_ms, at) in sorted(self._shards.items())
            if now - at <= FRESH_S
        }

    def collect(self) -> Iterator[Metric]:
        """For Prometheus."""
        owners = GaugeMetricFamily(
            "noetl_shard_owner", "Who owns a shard now.", labels=("shard", "instance")
        )
        ages = GaugeMetricFamily(
            "noetl_checkpoint_age_ms",
            "Age of the oldest change of a shard that no checkpoint has.",
            labels=("shard",),
        )
        for shard, said in self.live().items():
            owners.add_metric((str(shard), said["owner"]), 1)
            ages.add_metric((str(shard),), said["checkpoint_age_ms"])
        yield owners
        yield ages
