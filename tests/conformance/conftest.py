"""One runtime, one fixture API and one Postgres for the whole session, each when first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from noetl_ray.cli.demo import fixture_api
from noetl_ray.embedded.postgres import PostgresProcess, ensure_database
from tests.contract.fixtures_postgres import postgres_server as postgres_server
from tests.support.conformance import Runtime, conformance_runtime

ENV = {"CONFORMANCE_SITE": "north"}


@pytest.fixture(scope="session")
def runtime() -> Iterator[Runtime]:
    with conformance_runtime(ENV) as running:
        yield running


@pytest.fixture(scope="session")
def api_url() -> Iterator[str]:
    """The fixture API in a process of its own."""
    with fixture_api() as url:
        yield url


@pytest.fixture(scope="session")
def pg(runtime: Runtime, postgres_server: PostgresProcess) -> str:
    """The name of a credential for an empty database."""
    dsn = asyncio.run(ensure_database(postgres_server.dsn, "conformance"))
    runtime.credential("pg_local", "postgres", {"dsn": dsn})
    return "pg_local"
