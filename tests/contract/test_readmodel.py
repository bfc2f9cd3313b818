"""The read model's contract, for memory and for a real Postgres alike."""

from __future__ import annotations

import pytest
import pytest_asyncio

from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.readmodel.postgres_queries import PostgresQueries
from noetl_ray.readmodel.postgres_store import PostgresProjectionStore
from noetl_ray.testing.contract_readmodel import READ_MODEL_CHECKS

pytestmark = pytest.mark.contract


@pytest_asyncio.fixture
async def postgres_read_model(postgres_dsn):
    store = await PostgresProjectionStore.open(postgres_dsn)
    queries = await PostgresQueries.open(postgres_dsn)
    yield store, queries
    await store.close()
    await queries.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("check", READ_MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_memory_read_model(check):
    model = MemoryReadModel()
    await check(model, model)


@pytest.mark.asyncio
@pytest.mark.parametrize("check", READ_MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_postgres_read_model(check, postgres_read_model):
    await check(*postgres_read_model)
