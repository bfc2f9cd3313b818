"""The door: who may come in, how much they may carry, and what they are told when not."""

from __future__ import annotations

import pytest

from noetl_ray.config.settings import Settings
from noetl_ray.errors import ConfigError
from noetl_ray.testing.gateway_kit import GatewayKit, with_gateway
from noetl_ray.web.guard import Guard, is_loopback
from noetl_ray.web.metrics import Metrics


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("[::1]", True),
     ("0.0.0.0", False), ("example.com", False), ("127.0.0.1.example.com", False), ("", False)],
)  # fmt: skip
def test_loopback(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.asyncio
async def test_foreign_hosts_and_origins_are_refused_on_loopback():
    async with GatewayKit().http() as http:
        for headers in (
            {"host": "evil.example:8082"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
        ):
            answer = await http.get("/api/executions", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        fine = {"host": "localhost:8082", "origin": "http://127.0.0.1:3000"}
        assert (await http.get("/api/executions", headers=fine)).status_code == 200


@pytest.mark.asyncio
async def test_a_token_is_asked_for():
    kit = GatewayKit(settings=with_gateway(Settings(), host="0.0.0.0", token="s3cret"))
    async with kit.http() as http:
        for given in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic s3cret"},
            {"authorization": "Bearer s3cret2"},
            {"authorization": "Bearer "},
        ):
            answer = await http.get("/api/executions", headers=given)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "s3cret" not in answer.text
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/api/health")).status_code == 200
        right = {"authorization": "Bearer s3cret", "host": "gateway.example"}
        assert (await http.get("/api/executions", headers=right)).status_code == 200


def test_an_open_address_without_a_token_is_refused():
    with pytest.raises(ConfigError, match=r"gateway\.token"):
        GatewayKit(settings=with_gateway(Settings(), host="0.0.0.0"))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/nothing", None, 404),
        ("PUT", "/api/execute", None, 405),
        ("POST", "/api/execute", b"{nope", 400),
        ("POST", "/api/execute", b"[]", 400),
        ("POST", "/api/execute", b'{"path": 7}', 400),
        ("POST", "/api/execute", b"{}", 400),
        ("POST", "/api/execute", b'{"path": "a", "payload": {}, "workload": {}}', 400),
        ("POST", "/api/execute", b'{"path": "a", "version": "x"}', 400),
        ("POST", "/api/execute", b"[" * 100_000, 400),
        ("GET", "/api/executions?limit=0", None, 422),
        ("GET", "/api/executions/abc", None, 400),
        ("GET", "/api/executions/99999999999999999999", None, 400),
        ("GET", "/api/executions/7/wait?timeout=1e9", None, 422),
        ("POST", "/api/credentials", b'{"name": "a"}', 400),
    ],
)
async def test_bad_requests_are_told_so(method, path, body, status):
    async with GatewayKit().http() as http:
        answer = await http.request(method, path, content=body)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert {"code", "message", "hint"} <= error.keys()


@pytest.mark.asyncio
async def test_our_own_bugs_show_no_traceback(monkeypatch):
    kit = GatewayKit()

    async def broken(*_, **__):
        msg = "the secret inside"
        raise RuntimeError(msg)

    monkeypatch.setattr(kit.model, "executions", broken)
    async with kit.http() as http:
        answer = await http.get("/api/executions")
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert answer.json()["error"]["code"] == "internal"


async def _echo(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _answer(chunks, headers=()):
    """What the guard answers to a body of these chunks."""
    waiting = list(chunks)
    sent = []

    async def receive():
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message):
        sent.append(message)

    guard = Guard(_echo, host="127.0.0.1", token="", metrics=Metrics(), body_bytes_max=10)
    own = (b"host", b"127.0.0.1")
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [own, *headers]}
    await guard(scope, receive, send)
    return sent[0]["status"]


@pytest.mark.asyncio
async def test_bodies_have_a_limit_stated_or_not():
    assert await _answer([b"12345", b"12345"]) == 200
    assert await _answer([b"12345", b"123456"]) == 413
    assert await _answer([b""], [(b"content-length", b"11")]) == 413
