"""The http kind against a small real server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
import pytest_asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from noetl_ray.errors import ToolError
from noetl_ray.tools import http_body
from noetl_ray.tools.http import HttpTool, map_error, retry_after_s


async def echo(request):
    body = (await request.body()).decode()
    return JSONResponse(
        {
            "method": request.method,
            "query": dict(request.query_params),
            "headers": dict(request.headers),
            "body": body,
        },
        headers={"set-cookie": "id=1; Path=/"},
    )


async def status(request):
    headers = {"retry-after": "7"} if "wait" in request.query_params else {}
    return JSONResponse({"error": "no"}, request.path_params["code"], headers)


async def slow(request):
    await asyncio.sleep(5)


async def away(request):
    return RedirectResponse(request.query_params["to"], int(request.query_params.get("code", 302)))


async def round_(request):
    return RedirectResponse("/round")


async def bytes_(request):
    kind = request.query_params.get("type")
    body = bytes.fromhex(request.query_params["hex"])
    return Response(body, headers={"content-type": kind} if kind else {})


async def plain(request):
    return PlainTextResponse('{"not": "parsed"}')


async def flood(request):
    size = int(request.query_params["mb"])

    async def chunks():
        for _ in range(size):
            yield b"\x00" * 1_048_576

    return StreamingResponse(chunks(), media_type="application/octet-stream")


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
APP = Starlette(
    routes=[
        Route("/echo", echo, methods=METHODS),
        Route("/status/{code:int}", status, methods=METHODS),
        Route("/slow", slow),
        Route("/away", away, methods=METHODS),
        Route("/round", round_),
        Route("/bytes", bytes_),
        Route("/plain", plain),
        Route("/flood", flood),
    ]
)


@pytest.fixture(scope="module")
def url():
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(APP, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.005)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    listener.close()


@pytest_asyncio.fixture
async def tool():
    tool = HttpTool(trust_env=False)
    yield tool
    await tool.close()


@pytest.mark.asyncio
async def test_a_good_answer(tool, bench, url):
    result = await tool.run({"url": url + "/echo", "params": {"a": 1}}, bench.context())
    data = result.data
    assert set(data) == {"status_code", "headers", "url", "elapsed", "data", "body"}
    assert (data["status_code"], data["url"]) == (200, url + "/echo?a=1")
    assert data["data"] == data["body"]
    assert data["data"]["query"] == {"a": "1"}
    assert 0 < data["elapsed"] < 5
    assert result.meta == {"status": 200, "headers": data["headers"]}
    assert "idempotency-key" not in data["data"]["headers"]


@pytest.mark.asyncio
async def test_a_post_carries_body_key_and_credential(tool, bench, url):
    bench.add("api", "bearer", token="t0k")
    config = {"method": "post", "url": url + "/echo", "json": {"a": [1]}, "auth": "api"}
    seen = (await tool.run(config, bench.context())).data["data"]
    assert (seen["method"], seen["body"]) == ("POST", '{"a":[1]}')
    assert seen["headers"]["idempotency-key"] == "key-1"
    assert seen["headers"]["authorization"] == "Bearer t0k"


@pytest.mark.asyncio
async def test_no_cookie_passes_from_one_task_to_the_next(tool, bench, url):
    for _ in range(2):
        seen = (await tool.run({"url": url + "/echo"}, bench.context())).data["data"]
        assert "cookie" not in seen["headers"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (429, "rate_limit", True),
        (401, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (400, "client_error", False),
        (422, "client_error", False),
        (500, "server_error", True),
        (503, "server_error", True),
    ],
)
async def test_other_answers_are_errors_that_keep_the_data(tool, bench, url, code, kind, retryable):
    with pytest.raises(ToolError, match=f"answered {code}") as caught:
        await tool.run({"url": f"{url}/status/{code}?token=s3cret"}, bench.context())
    error = caught.value
    assert (error.kind, error.retryable) == (kind, retryable)
    assert error.details["status"] == error.details["status_code"] == code
    assert error.details["http_status"] == error.details["code"] == code
    assert error.data["data"] == {"error": "no"}
    assert "retry_after" not in error.details
    assert "s3cret" not in str(error)


@pytest.mark.asyncio
async def test_how_long_to_wait_is_told(tool, bench, url):
    with pytest.raises(ToolError) as caught:
        await tool.run({"url": url + "/status/429?wait=1"}, bench.context())
    assert caught.value.details["retry_after"] == 7.0


def test_retry_after_may_be_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 55 < (retry_after_s(later) or 0) <= 60
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after_s("soon") is None
    assert retry_after_s(None) is None


@pytest.mark.asyncio
@pytest.mark.parametrize("limits", [{"timeout": 0.05}, {"timeout_seconds": "0.05"}])
async def test_time_over(tool, bench, url, limits):
    with pytest.raises(ToolError, match=r"within 0\.05 s") as caught:
        await tool.run({"url": url + "/slow", **limits}, bench.context())
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)


@pytest.mark.asyncio
async def test_cancelling_passes_through(tool, bench, url):
    task = asyncio.create_task(tool.run({"url": url + "/slow"}, bench.context()))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_nobody_there(tool, bench):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ToolError) as caught:
        await tool.run({"url": f"http://127.0.0.1:{port}/"}, bench.context())
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)


@pytest.mark.asyncio
async def test_redirects_are_followed_unless_told_otherwise(tool, bench, url):
    config = {"url": url + "/away", "params": {"to": "/echo?b=2"}}
    assert (await tool.run(config, bench.context())).data["data"]["query"] == {"b": "2"}
    with pytest.raises(ToolError, match="answered 302"):
        await tool.run({**config, "follow_redirects": "false"}, bench.context())


@pytest.mark.asyncio
async def test_secrets_stay_with_the_host_they_are_for(tool, bench, url):
    bench.add("key", "api_key", value="k1", header="X-Token")
    other = url.replace("127.0.0.1", "localhost") + "/echo"
    for target, expected in ((other, None), ("/echo", "k1")):
        config = {"url": url + "/away", "params": {"to": target}, "auth": "key"}
        config["headers"] = {"X-Of-Mine": "k1", "Accept": "application/json"}
        seen = (await tool.run(config, bench.context())).data["data"]["headers"]
        assert (seen.get("x-token"), seen.get("x-of-mine")) == (expected, expected)
        assert seen["accept"] == "application/json"


@pytest.mark.asyncio
@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
async def test_a_redirect_leaves_http_never(tool, bench, url, to):
    with pytest.raises(ToolError) as caught:
        await tool.run({"url": url + "/away", "params": {"to": to}}, bench.context())
    assert caught.value.kind == "client_error"


@pytest.mark.asyncio
async def test_redirects_that_never_end(tool, bench, url):
    with pytest.raises(ToolError, match="redirects") as caught:
        await tool.run({"url": url + "/round"}, bench.context())
    assert caught.value.kind == "client_error"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"hex": b'{"a":1}'.hex(), "type": "application/problem+json"}, {"a": 1}),
        ({"hex": b"[1]".hex()}, [1]),
        ({"hex": b"{oops".hex(), "type": "application/json"}, "{oops"),
        ({"hex": b"".hex(), "type": "application/json"}, ""),
        ({"hex": "e9", "type": "text/plain; charset=latin-1"}, "é"),
        ({"hex": "e9", "type": "text/plain; charset=nonsense"}, "�"),
        ({"hex": "ff00", "type": "image/png"}, "/wA="),
    ],
)
async def test_bodies_become_values(tool, bench, url, params, expected):
    result = await tool.run({"url": url + "/bytes", "params": params}, bench.context())
    assert result.data["data"] == expected


@pytest.mark.asyncio
async def test_text_is_not_parsed_and_a_huge_body_is_refused(tool, bench, url, monkeypatch):
    config = {"url": url + "/plain"}
    assert (await tool.run(config, bench.context())).data["body"] == '{"not": "parsed"}'
    monkeypatch.setattr(http_body, "BODY_BYTES_MAX", 4)
    with pytest.raises(ToolError, match="larger than"):
        await tool.run(config, bench.context())


@pytest.mark.asyncio
async def test_a_header_that_cannot_be_sent(tool, bench, url):
    for value in ("a\nb: c", "snow ☃"):
        with pytest.raises(ToolError) as caught:
            await tool.run({"url": url + "/echo", "headers": {"x": value}}, bench.context())
        assert caught.value.kind in ("client_error", "connection")


ERRORS = sorted(
    (
        value
        for value in vars(httpx).values()
        if isinstance(value, type) and issubclass(value, httpx.HTTPError | httpx.StreamError)
    ),
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", [*ERRORS, httpx.InvalidURL], ids=lambda cls: cls.__name__)
def test_every_error_of_the_driver_has_a_kind(cls):
    error = cls.__new__(cls)
    Exception.__init__(error, "went wrong")
    mapped = map_error(error, "GET http://h")
    if issubclass(cls, httpx.TimeoutException):
        assert mapped.kind == "timeout"
    elif issubclass(cls, httpx.NetworkError):
        assert mapped.kind == "connection"
    assert mapped.kind in ("timeout", "connection", "client_error", "parse", "unknown")
    assert mapped.retryable is (mapped.kind in ("timeout", "connection"))
