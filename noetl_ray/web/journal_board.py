"""How full the journal of each host is, as hosts told it, for Prometheus (BUF-2).

Hosts tell through NATS, so one whose broker stands still falls silent: how long ago it spoke is a
series of its own, and the last word stays until the host is believed gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from noetl_ray.wal.journal import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

BELIEVED_S = 300.0
SOURCES_MAX = 1_000

_GAUGES = (
    ("events", "events", "Events sent and not acknowledged."),
    ("bytes", "bytes", "Bytes sent and not acknowledged."),
    ("oldest_seconds", "oldest_s", "How long the oldest of them has been waiting."),
    ("waiting", "waiting", "Producers that wait for room."),
    ("bound_events", "max_events", "event_store.tail_max_events."),
    ("bound_bytes", "max_bytes", "event_store.tail_max_bytes."),
)


class _Told(msgspec.Struct, frozen=True):
    source: str
    gauge: Gauge


class JournalBoard:
    """The newest word of each process."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin with nothing heard; ``now`` gives seconds of a monotonic clock."""
        self._now = now
        self._sources: dict[str, tuple[float, Gauge]] = {}

    def hear(self, data: bytes) -> None:
        """Take a hint; one that cannot be read is left out."""
        try:
            told = msgspec.json.decode(data, type=_Told)
        except msgspec.DecodeError:
            return
        self._forget()
        if told.source in self._sources or len(self._sources) < SOURCES_MAX:
            self._sources[told.source] = self._now(), told.gauge

    def collect(self) -> Iterator[Metric]:
        """For Prometheus."""
        self._forget()
        said = sorted(self._sources.items())
        for name, field, what in _GAUGES:
            family = GaugeMetricFamily(f"noetl_journal_{name}", what, labels=("source",))
            for source, (_at, gauge) in said:
                family.add_metric((source,), getattr(gauge, field))
            yield family
        held = CounterMetricFamily(
            "noetl_journal_held", "Appends that had to wait for room.", labels=("source",)
        )
        silent = GaugeMetricFamily(
            "noetl_journal_told_seconds_ago", "How old the word is.", labels=("source",)
        )
        for source, (at, gauge) in said:
            held.add_metric((source,), gauge.held)
            silent.add_metric((source,), round(self._now() - at, 3))
        yield held
        yield silent

    def _forget(self) -> None:
        since = self._now() - BELIEVED_S
        self._sources = {name: told for name, told in self._sources.items() if told[0] >= since}
