"""Postgres for tests: one server per session from the wheel, one fresh database per test."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from noetl_ray.embedded.postgres import (
    PostgresProcess,
    ensure_database,
    start_postgres,
    stop_postgres,
)
from noetl_ray.readmodel.schema import migrate

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server():
    """A running server in a directory of its own; gone after the session."""
    directory = Path(tempfile.mkdtemp(prefix="noetl-pg-test-"))
    directory.chmod(0o711)
    try:
        yield start_postgres(directory, detached=False)
    finally:
        stop_postgres(directory)
        shutil.rmtree(directory, ignore_errors=True)


@pytest_asyncio.fixture
async def empty_postgres_dsn(postgres_server: PostgresProcess) -> str:
    """A fresh database without our schema."""
    return await ensure_database(postgres_server.dsn, f"test_{next(_numbers)}")


@pytest_asyncio.fixture
async def postgres_dsn(empty_postgres_dsn: str) -> str:
    """A fresh database with the newest schema."""
    await migrate(empty_postgres_dsn)
    return empty_postgres_dsn
