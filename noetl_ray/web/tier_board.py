"""What the gateway has heard of the tiers of all hosts, for people and for Prometheus."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

SOURCES_MAX = 1_000
_USED = ("hit", "mapped", "read")
"""Outcomes that gave a reader its bytes."""


class TierBoard:
    """The newest counts of each process."""

    def __init__(self) -> None:
        self._sources: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def hear(self, data: bytes) -> None:
        """Take a hint; one that cannot be read is left out."""
        try:
            told = msgspec.json.decode(data)
            source = str(told["source"])
            self._sources[source] = {
                "node": str(told["node"]),
                "counts": {
                    str(tier): {str(name): int(count) for name, count in outcomes.items()}
                    for tier, outcomes in told["counts"].items()
                },
                "shared": {str(name): int(n) for name, n in told.get("shared", {}).items()},
            }
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            return
        self._sources.move_to_end(source)
        while len(self._sources) > SOURCES_MAX:
            self._sources.popitem(last=False)

    def page(self) -> dict[str, Any]:
        """Totals, the share of reads each tier served, and what each process said."""
        totals = self.totals()
        served = {
            tier: sum(outcomes.get(name, 0) for name in _USED) for tier, outcomes in totals.items()
        }
        reads = sum(served.values())
        return {
            "totals": totals,
            "reads": reads,
            "served_by": {
                tier: round(count / reads, 4) if reads else 0.0 for tier, count in served.items()
            },
            "nodes": self.nodes(),
            "sources": dict(self._sources),
        }

    def totals(self) -> dict[str, dict[str, int]]:
        """Counts of all processes together."""
        found: dict[str, dict[str, int]] = {}
        for said in self._sources.values():
            for tier, outcomes in said["counts"].items():
                into = found.setdefault(tier, {})
                for outcome, count in outcomes.items():
                    into[outcome] = into.get(outcome, 0) + count
        return found

    def nodes(self) -> dict[str, dict[str, int]]:
        """The books of each node's shared memory, as last told."""
        return {said["node"]: said["shared"] for said in self._sources.values() if said["shared"]}

    def collect(self) -> Iterator[Metric]:
        """For Prometheus."""
        reads = CounterMetricFamily(
            "noetl_tier_events",
            "Looks at result tiers, by tier and outcome.",
            labels=("tier", "outcome"),
        )
        for tier, outcomes in sorted(self.totals().items()):
            for outcome, count in sorted(outcomes.items()):
                if outcome != "bytes":
                    reads.add_metric((tier, outcome), count)
        yield reads
        books = {
            "attempts": "noetl_storage_ipc_admission_attempts",
            "admitted": "noetl_storage_ipc_admission_success",
            "exhausted": "noetl_tier15_budget_exhaustion",
            "hits": "noetl_storage_ipc_read_hits",
            "misses": "noetl_storage_ipc_read_misses",
        }
        nodes = self.nodes()
        for name, metric in books.items():
            family = CounterMetricFamily(metric, "Shared memory of a node.", labels=("node_id",))
            for node, shared in sorted(nodes.items()):
                family.add_metric((node,), shared.get(name, 0))
            yield family
        held = GaugeMetricFamily("noetl_storage_ipc_bytes", "Shared bytes.", labels=("node_id",))
        ratio = GaugeMetricFamily(
            "noetl_storage_ipc_read_hit_ratio", "Hits of all reads.", labels=("node_id",)
        )
        for node, shared in sorted(nodes.items()):
            held.add_metric((node,), shared.get("bytes", 0))
            asked = shared.get("hits", 0) + shared.get("misses", 0)
            ratio.add_metric((node,), shared.get("hits", 0) / asked if asked else 0.0)
        yield held
        yield ratio
