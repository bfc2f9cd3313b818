from __future__ import annotations

import pytest

from noetl_ray.tools.noop import NoopTool


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"status": "ok", "step": "first"}),
        ({"result": {"a": 1}}, {"a": 1}),
        ({"result": None}, None),
    ],
)
async def test_result_is_what_was_given_or_a_small_record(bench, config, expected):
    tool = NoopTool()
    assert (await tool.run(config, bench.context())).data == expected
    await tool.close()
