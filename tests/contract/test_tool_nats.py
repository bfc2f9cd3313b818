"""The nats kind against a real server."""

from __future__ import annotations

import pytest

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ToolError
from noetl_ray.tools.nats_tool import NatsTool
from noetl_ray.tools.port import ToolContext

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


class Server:
    """Runs tasks against one server."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self.idempotency_key = "run-1"

    async def _credential(self, name):
        return Credential(name=name, type="nats", data={"url": self.url, "token": self.token})

    async def run(self, operation, **config):
        context = ToolContext(
            execution_id=1,
            step="s",
            task="t",
            attempt=1,
            idempotency_key=self.idempotency_key,
            timeout_s=None,
            credential=self._credential,
            log=lambda stream, line: None,
        )
        config = {"operation": operation, "auth": "n", **config}
        data = (await NatsTool().run(config, context)).data
        assert data.pop("status") == "success"
        assert data.pop("operation") == operation
        return data

    async def fail(self, operation, **config) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await self.run(operation, **config)
        return caught.value


@pytest.fixture
def server(nats_server, nats_connection):
    # The connection's fixture takes every stream away afterwards.
    return Server(nats_server.url, nats_server.token)


@pytest.mark.parametrize(
    ("value", "encoding"),
    [({"n": [1, None]}, "json"), ([1], "json"), (5, "json"), ("plain text", "text"), ("", "text")],
)
async def test_a_value_comes_back(server, value, encoding):
    made = await server.run("kv_put", bucket="things", key="a.b", value=value, create=True)
    assert made == {"key": "a.b", "revision": 1}
    assert await server.run("kv_get", bucket="things", key="a.b") == {
        "key": "a.b",
        "revision": 1,
        "value": value,
        "encoding": encoding,
    }


async def test_keys_are_listed_deleted_and_purged(server):
    assert (await server.fail("kv_keys", bucket="things")).kind == "not_found"
    for key in ("b", "a", "c"):
        await server.run("kv_put", bucket="things", key=key, value=key, create=True)
    assert await server.run("kv_keys", bucket="things") == {"keys": ["a", "b", "c"], "count": 3}
    assert await server.run("kv_delete", bucket="things", key="a") == {"key": "a", "deleted": True}
    assert await server.run("kv_purge", bucket="things", key="b") == {"key": "b", "purged": True}
    assert (await server.run("kv_keys", bucket="things"))["keys"] == ["c"]
    await server.run("kv_delete", bucket="things", key="c")
    assert await server.run("kv_keys", bucket="things") == {"keys": [], "count": 0}
    for key in ("a", "b", "never"):
        assert (await server.fail("kv_get", bucket="things", key=key)).kind == "not_found"


async def test_a_bucket_is_made_only_when_asked_for(server):
    for operation in ("kv_put", "object_put"):
        error = await server.fail(operation, bucket="absent", key="a", value=1)
        assert error.kind == "not_found"
        assert "`create: true`" in error.message


async def test_objects(server):
    big = "x" * 300_000
    data = await server.run("object_put", bucket="files", key="dir/a.txt", value=big, create=True)
    assert data["size"] == 300_000
    assert data["digest"].startswith("SHA-256=")
    await server.run("object_put", bucket="files", name="b", data={"k": 1})
    got = await server.run("object_get", bucket="files", key="dir/a.txt")
    assert (got["value"], got["size"], got["encoding"]) == (big, 300_000, "text")
    assert (await server.run("object_get", bucket="files", name="b"))["value"] == {"k": 1}
    listed = await server.run("object_list", bucket="files")
    assert listed["count"] == 2
    assert {"name": "dir/a.txt", "size": 300_000} in listed["objects"]
    await server.run("object_delete", bucket="files", key="dir/a.txt")
    await server.run("object_delete", bucket="files", key="b")
    assert await server.run("object_list", bucket="files") == {"objects": [], "count": 0}
    assert (await server.fail("object_get", bucket="files", key="b")).kind == "not_found"


async def test_streams(server, nats_connection):
    await nats_connection.jetstream().add_stream(name="orders", subjects=["orders.>"])
    first = await server.run("js_publish", subject="orders.new", data={"id": 1}, headers={"A": 2})
    assert first == {"stream": "orders", "seq": 1, "duplicate": False}
    again = await server.run("js_publish", subject="orders.new", data={"id": 1})
    assert again == {"stream": "orders", "seq": 1, "duplicate": True}
    server.idempotency_key = "run-2"
    assert (await server.run("js_publish", subject="orders.new", data="x"))["seq"] == 2
    message = await server.run("js_get_msg", stream="orders", seq="1")
    assert message == {
        "stream": "orders",
        "subject": "orders.new",
        "seq": 1,
        "headers": {"Nats-Msg-Id": "run-1", "A": "2"},
        "value": {"id": 1},
        "encoding": "json",
    }
    assert (await server.run("js_get_msg", stream="orders", subject="orders.new"))["seq"] == 2
    info = await server.run("js_stream_info", stream="orders")
    assert (info["messages"], info["first_seq"], info["last_seq"]) == (2, 1, 2)
    assert info["subjects"] == ["orders.>"]
    raw = await nats_connection.jetstream().publish("orders.raw", b"\xff\x00")
    assert raw.seq == 3
    got = await server.run("js_get_msg", stream="orders", seq=3)
    assert (got["value"], got["encoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"operation": "kv_put", "bucket": "b", "key": "a"}, "schema"),
        ({"operation": "kv_get", "key": "a"}, "schema"),
        ({"operation": "kv_get", "bucket": "a.b", "key": "a"}, "schema"),
        ({"operation": "js_publish", "subject": "nobody.listens", "data": 1}, "not_found"),
        ({"operation": "js_get_msg", "stream": "absent", "seq": 1}, "not_found"),
        ({"operation": "js_get_msg", "stream": "absent"}, "schema"),
        ({"operation": "js_get_msg", "stream": "absent", "seq": "one"}, "schema"),
        ({"operation": "js_stream_info", "stream": "absent"}, "not_found"),
        ({"operation": "js_stream_info", "stream": "a b"}, "schema"),
    ],
)
async def test_what_goes_wrong_has_a_kind(server, config, kind):
    error = await server.fail(**config)
    assert error.kind == kind
    assert (
        config["operation"] in error.message or "needs" in error.message or "seq" in error.message
    )


async def test_a_key_that_cannot_be_one(server):
    error = await server.fail("kv_put", bucket="things", key="a b", value=1, create=True)
    assert error.kind == "schema"


async def test_a_wrong_token_is_not_a_lost_connection(server):
    server.token = "wrong-token-that-nobody-has"
    error = await server.fail("kv_keys", bucket="things")
    assert (error.kind, error.retryable) == ("auth", False)
    assert "wrong-token" not in error.message
