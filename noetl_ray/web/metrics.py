"""The gateway's metrics in Prometheus form, in a registry of their own: two apps never meet."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """What the gateway counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "noetl_gateway_requests",
            "Requests answered, by route and status.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "noetl_gateway_request_seconds",
            "Time until a request was answered, long polls left out.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.submitted = Counter(
            "noetl_gateway_executions_submitted",
            "Executions accepted, by whether the idempotency key was known.",
            ("duplicate",),
            registry=self.registry,
        )
        self.uris = Counter(
            "noetl_result_uri_accept",
            "Names given to be resolved, by the grammar they are written in.",
            ("outcome",),
            registry=self.registry,
        )
        self.collected = Counter(
            "noetl_result_tier_gc",
            "Objects that garbage collections looked at, by outcome.",
            ("outcome",),
            registry=self.registry,
        )
        self.repaired = Counter(
            "noetl_result_tier_repair",
            "Objects that repairs verified, by what was found and what became of it.",
            ("outcome",),
            registry=self.registry,
        )
        self.waiting = Gauge(
            "noetl_gateway_waiting", "Executions somebody waits for.", registry=self.registry
        )

    def page(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
