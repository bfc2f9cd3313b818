"""The memory read model under the whole contract, without any server."""

from __future__ import annotations

import pytest

from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.testing.contract_readmodel import READ_MODEL_CHECKS


@pytest.mark.asyncio
@pytest.mark.parametrize("check", READ_MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_contract(check):
    model = MemoryReadModel()
    await check(model, model)
