"""The fixture API: a small HTTP server of known content that examples, tests and benchmarks call.

Owns the options, the assembly of the app and the command line. Content is deterministic but for the
heavy payload text and the patient-records delay, which take their chance from a seeded generator.
Rate limits are off unless asked for. State (counters, windows) lives in the app, so two never meet.
It refuses to be anything more than a fixture: there is no store and no authentication.

Run it with ``python -m noetl_ray.testing.fixture_api --port 8099``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI

from noetl_ray.config.environ import environ
from noetl_ray.testing import (
    fixture_api_bulk,
    fixture_api_effects,
    fixture_api_patients,
    fixture_api_pft,
    fixture_api_plain,
    fixture_api_tokens,
)
from noetl_ray.testing.fixture_api_state import FixtureState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

_ENVIRONMENT: dict[str, str] = {
    "PFT_RATE_LIMIT": "pft_rate_limit",
    "PATIENT_RECORDS_MIN_DELAY": "records_min_delay",
    "PATIENT_RECORDS_MAX_DELAY": "records_max_delay",
    "PATIENT_RECORDS_RATE_LIMIT": "records_rate_limit",
    "PATIENT_RECORDS_MIN_PAGES": "records_min_pages",
    "PATIENT_RECORDS_MAX_PAGES": "records_max_pages",
    "PATIENT_RECORDS_PAYLOAD_KB": "records_payload_kb",
    "CONCURRENCY_PROBE_MAX_EVENTS": "probe_events_max",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureOptions:
    """How the fixture behaves. A rate limit of 0 means none."""

    pft_rate_limit: int = 0
    records_min_delay: float = 2.0
    records_max_delay: float = 4.0
    records_rate_limit: int = 0
    records_min_pages: int = 2
    records_max_pages: int = 5
    records_payload_kb: int = 100
    probe_events_max: int = 200
    latency_ms: float = 0.0
    """Added to every answer."""
    seed: int = 0
    """Of the generator behind random text and delays."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **given: Any) -> FixtureOptions:
        """Options from the variable names NoETL's own fixture uses; ``given`` wins over them."""
        values: dict[str, Any] = {}
        for name, field in _ENVIRONMENT.items():
            if name in environment:
                kind = float if field.endswith("_delay") else int
                values[field] = kind(environment[name])
        return cls(**{**values, **given})


def create_fixture_app(**options: Any) -> FastAPI:
    """The fixture as an ASGI app; keyword arguments are the fields of :class:`FixtureOptions`."""
    return _assemble(FixtureOptions(**options))


def _assemble(chosen: FixtureOptions) -> FastAPI:
    state = FixtureState(
        probe_events_max=chosen.probe_events_max, chance=random.Random(chosen.seed)
    )
    app = FastAPI(title="noetl-ray fixture API", docs_url=None, redoc_url=None)
    app.state.fixture = state
    app.include_router(fixture_api_plain.router(state))
    app.include_router(fixture_api_bulk.router(state))
    app.include_router(
        fixture_api_patients.router(
            state,
            delay_range_s=(chosen.records_min_delay, chosen.records_max_delay),
            pages_range=(chosen.records_min_pages, chosen.records_max_pages),
            payload_kb=chosen.records_payload_kb,
            rate_limit=chosen.records_rate_limit,
        )
    )
    app.include_router(fixture_api_pft.router(state, rate_limit=chosen.pft_rate_limit))
    app.include_router(fixture_api_effects.router(state))
    app.include_router(fixture_api_tokens.router(state))
    if chosen.latency_ms > 0:
        app.add_middleware(_Latency, seconds=chosen.latency_ms / 1000)
    return app


class _Latency:
    """Hold every request back by a fixed time without blocking others."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await asyncio.sleep(self._seconds)
        await self._app(scope, receive, send)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the fixture until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m noetl_ray.testing.fixture_api",
        description="Serve the fixture API that examples, tests and benchmarks call.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8099)
    for name, kind, text in (
        ("--rate-limit", int, "PFT requests per second; 0 = off"),
        ("--records-rate-limit", int, "patient-records requests per second; 0 = off"),
        ("--records-min-delay", float, "fewest seconds a patient-records answer takes"),
        ("--records-max-delay", float, "most seconds a patient-records answer takes"),
        ("--latency-ms", float, "added to every answer"),
    ):
        parser.add_argument(name, type=kind, default=argparse.SUPPRESS, help=text)
    given = vars(parser.parse_args(arguments))
    host, port = given.pop("host"), given.pop("port")
    if "rate_limit" in given:
        given["pft_rate_limit"] = given.pop("rate_limit")
    app = _assemble(FixtureOptions.from_environment(environ(), **given))
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
