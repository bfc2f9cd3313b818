"""What the nats kind refuses before it needs a server; the rest is in tests/contract."""

from __future__ import annotations

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools.nats_tool import NatsTool


async def refused(bench, **config) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await NatsTool().run(config, bench.context())
    return caught.value


@pytest.mark.asyncio
async def test_an_unknown_operation_names_the_known_ones(bench):
    error = await refused(bench, operation="kv_put_all")
    assert error.kind == "schema"
    assert "kv_put, kv_get" in error.message


@pytest.mark.asyncio
async def test_missing_auth_says_how_to_give_it(bench):
    error = await refused(bench, operation="kv_keys", bucket="b")
    assert error.kind == "auth"
    assert "noetl-ray credential add" in error.message


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "config",
    [
        {"operation": "kv_get", "bucket": "noetl_credentials", "key": "a"},
        {"operation": "kv_put", "bucket": "NOETL_generators", "key": "a", "value": 1},
        {"operation": "object_get", "bucket": "noetl", "key": "a"},
        {"operation": "js_publish", "subject": "noetl.events.0.a", "data": 1},
        {"operation": "js_publish", "subject": "$KV.noetl_credentials.a", "data": 1},
        {"operation": "js_publish", "subject": "$JS.API.STREAM.DELETE.noetl_events", "data": 1},
        {"operation": "js_publish", "subject": "a", "stream": "noetl_logs", "data": 1},
        {"operation": "js_get_msg", "stream": "KV_noetl_credentials", "seq": 1},
        {"operation": "js_get_msg", "stream": "OBJ_noetl_x", "seq": 1},
        {"operation": "js_stream_info", "stream": " noetl_events"},
    ],
)
async def test_what_belongs_to_the_runtime_is_out_of_reach(bench, config):
    bench.add("n", "nats", url="nats://127.0.0.1:1")
    error = await refused(bench, auth="n", **config)
    assert error.kind == "auth"
    assert "belongs to the runtime" in error.message


@pytest.mark.asyncio
@pytest.mark.parametrize("subject", ["a.*", "a.>", "a b", "a\r\nPUB x"])
async def test_a_subject_is_one_subject(bench, subject):
    error = await refused(bench, operation="js_publish", subject=subject, data=1, auth="n")
    assert error.kind == "schema"


@pytest.mark.asyncio
@pytest.mark.parametrize("data", [{}, {"url": "http://x"}, {"nats_url": "nats://a,ws://b"}])
async def test_a_credential_without_an_address(bench, data):
    bench.add("n", "nats", token="hidden", **data)
    error = await refused(bench, operation="kv_keys", bucket="b", auth="n")
    assert error.kind == "auth"
    assert "must be nats://" in error.message


@pytest.mark.asyncio
async def test_nobody_at_the_address(bench):
    bench.add("n", "nats", url="nats://u:hidden@127.0.0.1:1")
    error = await refused(bench, operation="kv_keys", bucket="b", auth="n")
    assert (error.kind, error.retryable) == ("connection", True)
    assert "hidden" not in error.message
