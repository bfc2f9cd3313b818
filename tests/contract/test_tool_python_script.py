"""Code of python tasks from an HTTP server and a real S3 bucket."""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager

import pytest
import pytest_asyncio
import s3fs

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import NotFoundError, ToolError
from noetl_ray.tools import python_script
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.python import PythonTool
from tests.contract.fixtures_s3 import ACCESS_KEY, SECRET_KEY, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def tool():
    tool = PythonTool(processes=1, base_env={})
    yield tool
    await tool.close()


def context(**credentials: dict[str, str]) -> ToolContext:
    async def credential(name: str) -> Credential:
        if name not in credentials:
            raise NotFoundError(name)
        return Credential(name=name, type="s3", data=dict(credentials[name]))

    return ToolContext(
        execution_id=1,
        step="s",
        task="t",
        attempt=1,
        idempotency_key="k",
        timeout_s=None,
        credential=credential,
        log=lambda stream, line: None,
    )


@contextmanager
def serving(status: int, body: bytes):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/x-python")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/job.py?key=hidden"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


async def test_code_comes_over_http(tool):
    with serving(200, b"result = n + 1") as url:
        script = {"uri": "jobs/job.py", "source": {"type": "http", "endpoint": url}}
        back = await tool.run({"script": script, "input": {"n": 1}}, context())
    assert back.data == 2


async def test_an_http_answer_that_is_no_code_fails_as_http_does(tool):
    with serving(404, b"no") as url, pytest.raises(ToolError) as caught:
        await tool.run({"script": {"source": {"type": "http", "endpoint": url}}}, context())
    assert caught.value.kind == "not_found"
    assert "hidden" not in str(caught.value)


async def test_code_comes_from_a_bucket(tool, s3_server, monkeypatch):
    files = s3fs.S3FileSystem(
        key=ACCESS_KEY,
        secret=SECRET_KEY,
        endpoint_url=s3_server.endpoint_url,
        asynchronous=False,
        skip_instance_cache=True,
    )
    files.pipe(f"{s3_server.bucket}/jobs/a.py", b"result = 'from s3'")
    files.pipe(f"{s3_server.bucket}/jobs/binary.py", b"\xff\xfe")
    keys = {
        "access_key": ACCESS_KEY,
        "secret_key": SECRET_KEY,
        "endpoint_url": s3_server.endpoint_url,
    }

    async def run(key: str, kind: str = "s3", **more: str):
        script = {
            "uri": f"s3://{s3_server.bucket}/{key}",
            "source": {"type": kind, "auth": "bucket"},
        }
        return (await tool.run({"script": script}, context(bucket={**keys, **more}))).data

    assert await run("jobs/a.py") == "from s3"
    assert await run("jobs/a.py", "object") == "from s3"
    for key, more, kind, said in (
        ("jobs/none.py", {}, "not_found", "does not exist"),
        ("jobs/binary.py", {}, "schema", "is not UTF-8 text"),
        ("jobs/a.py", {"secret_key": "wrong"}, "auth", "may not be read"),
    ):
        with pytest.raises(ToolError, match=said) as caught:
            await run(key, **more)
        assert caught.value.kind == kind
        assert "wrong" not in str(caught.value)
    monkeypatch.setattr(python_script, "SCRIPT_BYTES_MAX", 4)
    with pytest.raises(ToolError, match="larger than 4 bytes"):
        await run("jobs/a.py")
