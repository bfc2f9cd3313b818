"""A small real HTTP server that answers like a gateway, with an execution that can be steered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

TOKEN = "gateway-token"
ID = 123456789012345678

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: examples/hello}
workflow:
  - step: start
    tool: {kind: noop}
"""


class StubGateway:
    """What the server holds: one execution, what was asked of it, and how it goes on."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, Any]] = []
        self.statuses = ["RUNNING", "COMPLETED"]
        """One per look; the last one stays."""
        self.ends_on_cancel = True
        self.outages = 0
        """How many answers are refused as unavailable before the next good one."""
        self.cancel_refusals = 0
        """How many cancels are answered as of an execution not known yet."""
        self.cancelled = threading.Event()
        self.looked = threading.Event()
        self.submitting = threading.Event()
        self.may_submit = threading.Event()
        self.may_submit.set()
        self.looks = 0
        self.children: list[dict[str, Any]] = []

    def asked(self, method: str, path: str) -> list[Any]:
        """Bodies of the requests of that kind."""
        return [body for verb, where, body in self.requests if (verb, where) == (method, path)]

    def execution(self) -> dict[str, Any]:
        """The execution as it is at this look."""
        status = self.statuses[min(self.looks, len(self.statuses) - 1)]
        self.looks += 1
        self.looked.set()
        if self.cancelled.is_set() and self.ends_on_cancel:
            status = "CANCELLED"
        step = {"status": status.lower(), "visits": 1, "entered_at": "2026-01-02T03:04:05.000Z"}
        error = {"kind": "http", "message": "status 503"} if status == "FAILED" else None
        return {
            "execution_id": str(ID),
            "status": status,
            "path": "examples/hello",
            "started_at": "2026-01-02T03:04:05.000Z",
            "ended_at": "2026-01-02T03:04:06.000Z" if status != "RUNNING" else None,
            "final_step": "start",
            "steps": {"start": {**step, "error": error}},
            "error": error,
        }

    def answer(self, method: str, url: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Status and body for a request."""
        where = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(where.query).items()}
        self.requests.append((method, where.path, body if body is not None else query))
        if self.outages:
            self.outages -= 1
            return 503, {"error": {"code": "store_unavailable", "message": "restarting"}}
        at = f"/api/executions/{ID}"
        if method == "POST" and where.path == f"{at}/cancel":
            if self.cancel_refusals:
                self.cancel_refusals -= 1
                return 404, {"error": {"code": "not_found", "message": "not known yet"}}
            self.cancelled.set()
        if method == "POST" and where.path == "/api/execute":
            self.submitting.set()
            self.may_submit.wait(20)
        table: dict[tuple[str, str], Any] = {
            ("POST", "/api/execute"): lambda: {"execution_id": str(ID), "warnings": ["old key"]},
            ("POST", f"{at}/rerun"): lambda: {"execution_id": str(ID + 1)},
            ("POST", f"{at}/cancel"): lambda: {"status": "requested"},
            ("POST", f"{at}/pause"): lambda: {"status": "pause_requested"},
            ("POST", f"{at}/callbacks/approve"): lambda: {"duplicate": False},
            ("POST", f"{at}/resume"): lambda: {"status": "resume_requested"},
            ("GET", "/api/executions"): lambda: {
                "executions": self.children if "parent" in query else [self.execution()]
            },
            ("GET", at): self.execution,
            ("GET", f"{at}/events"): lambda: self._events(int(query.get("after", 0))),
            ("GET", f"{at}/logs"): lambda: self._lines(int(query.get("after", 0))),
            ("GET", f"{at}/results/start"): lambda: {"result": [{"n": 1, "name": "Ada"}]},
            ("POST", "/api/credentials"): lambda: {"name": "pg"},
            ("GET", "/api/credentials"): lambda: {
                "credentials": [{"name": "pg", "type": "postgres", "fields": ["password"]}]
            },
            ("DELETE", "/api/credentials/pg"): lambda: {"status": "removed"},
            ("GET", "/api/health"): lambda: {"status": "ok", "version": "9.9.9"},
        }
        make = table.get((method, where.path))
        if make is None:
            return 404, {"error": {"code": "not_found", "message": f"no {where.path}"}}
        return 200, make()

    def _events(self, after: int) -> dict[str, Any]:
        event = {
            "position": 7,
            "ordinal": 0,
            "event_id": "9",
            "event_type": "step.done",
            "event_time": "2026-01-02T03:04:05.678Z",
            "execution_id": str(ID),
            "aggregate_type": "execution",
            "payload": {"step": "start"},
        }
        found = [event] if after < 7 else []
        return {"events": found, "next_after": 7, "status": "COMPLETED"}

    def _lines(self, after: int) -> dict[str, Any]:
        line = {
            "log_id": "5",
            "step": "start",
            "task": "greet",
            "attempt": 1,
            "stream": "stdout",
            "time": "2026-01-02T03:04:05.678Z",
            "text": "hello",
        }
        return {"lines": [line] if after < 5 else [], "next_after": "5", "status": "COMPLETED"}


class _Handler(BaseHTTPRequestHandler):
    stub: StubGateway
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            status, body = 401, {"error": {"code": "unauthorized", "message": "bad token"}}
        else:
            status, body = self.stub.answer(
                self.command, self.path, json.loads(data) if data else None
            )
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *args: object) -> None:
        """Say nothing on stderr, which tests look at."""


@pytest.fixture
def gateway() -> Iterator[StubGateway]:
    stub = StubGateway()
    handler = type("Handler", (_Handler,), {"stub": stub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stub
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a playbook and a token file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOETL_CONFIG", raising=False)
    (tmp_path / "hello.yaml").write_text(PLAYBOOK)
    (tmp_path / "token").write_text(TOKEN + "\n")
    return tmp_path
