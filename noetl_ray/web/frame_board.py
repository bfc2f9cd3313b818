"""Frames that wait or are under way, as conductors told it, for Prometheus (ASC-1).

The series a scaler asks for has no labels that grow; who has how much is another one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

BELIEVED_S = 15.0
"""A conductor that was silent for longer is gone; whoever has its shards now tells them."""
SOURCES_MAX = 1_000


class _Told(msgspec.Struct, frozen=True):
    source: str
    frames: list[tuple[str, str, str, str, int]]


class FrameBoard:
    """The newest word of each conductor."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin with nothing heard; ``now`` gives seconds of a monotonic clock."""
        self._now = now
        self._sources: dict[str, tuple[float, _Told]] = {}

    def hear(self, data: bytes) -> None:
        """Take a hint; one that cannot be read is left out."""
        try:
            told = msgspec.json.decode(data, type=_Told)
        except msgspec.DecodeError:
            return
        self._forget()
        if told.frames and len(self._sources) < SOURCES_MAX:
            self._sources[told.source] = self._now(), told
        else:
            self._sources.pop(told.source, None)

    def _forget(self) -> None:
        """Let go of those that say nothing any more."""
        since = self._now() - BELIEVED_S
        self._sources = {name: said for name, said in self._sources.items() if said[0] >= since}

    def frames(self) -> Counter[tuple[str, str, str, str]]:
        """Frames by tenant, organization, kind of stage and status."""
        self._forget()
        found: Counter[tuple[str, str, str, str]] = Counter()
        for _at, told in self._sources.values():
            for *key, count in told.frames:
                found[key[0], key[1], key[2], key[3]] += count
        return found

    def collect(self) -> Iterator[Metric]:
        """For Prometheus."""
        frames = self.frames()
        whole = GaugeMetricFamily(
            "noetl_frame_backlog_total",
            "Frames that have not ended, all together.",
            labels=("stage_kind", "status"),
        )
        whole.add_metric(("all", "all"), frames.total())
        detail = GaugeMetricFamily(
            "noetl_frame_backlog_detail_total",
            "Frames that have not ended.",
            labels=("tenant_id", "organization_id", "stage_kind", "status"),
        )
        for key, count in sorted(frames.items()):
            detail.add_metric(key, count)
        yield whole
        yield detail
