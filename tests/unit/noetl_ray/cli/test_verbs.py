"""Verbs against a real HTTP server: what is sent, what is shown where, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_ray.cli.demo import fixture_api
from noetl_ray.cli.main import main

ID = 123456789012345678

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def call(gateway: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command against the stub; returns exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["--address", gateway.url, "--token-file", "token", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_run_completes(call: Any, gateway: Any) -> None:
    code, out, err = call("run", "hello.yaml", "--set", "a.b=1", "--idempotency-key", "k")
    assert code == 0
    assert out == ""
    assert f"execution {ID}" in err
    assert "COMPLETED" in err
    assert "warning: old key" in err
    (body,) = gateway.asked("POST", "/api/execute")
    assert body["workload"] == {"a": {"b": 1}}
    assert body["idempotency_key"] == "k"
    assert "apiVersion" in body["playbook"]


def test_run_fails_with_1_and_says_why(call: Any, gateway: Any) -> None:
    gateway.statuses = ["RUNNING", "FAILED"]
    code, _, err = call("run", "hello.yaml")
    assert code == 1
    assert "http: status 503" in err


def test_run_json_keeps_stdout_for_the_machine(call: Any) -> None:
    code, out, err = call("--json", "run", "hello.yaml")
    assert code == 0
    found = json.loads(out)
    assert found["execution_id"] == str(ID)
    assert found["status"] == "COMPLETED"
    assert f"execution {ID}" in err


def test_run_bears_a_gateway_that_restarts(call: Any, gateway: Any) -> None:
    gateway.statuses = ["RUNNING", "RUNNING", "COMPLETED"]
    submit = gateway.answer

    def answer(method: str, url: str, body: Any) -> Any:
        found = submit(method, url, body)
        if method == "POST":
            gateway.outages = 2
        return found

    gateway.answer = answer
    code, _, err = call("run", "hello.yaml")
    assert code == 0, err


def test_run_cancels_after_its_timeout(call: Any, gateway: Any) -> None:
    gateway.statuses = ["RUNNING"]
    code, _, err = call("run", "hello.yaml", "--timeout", "0.1")
    assert code == 1
    assert gateway.cancelled.is_set()
    assert "not done after 0.1 s" in err
    assert "CANCELLED" in err


def test_a_bad_playbook_is_refused_before_anything_is_sent(call: Any, gateway: Any) -> None:
    Path("bad.yaml").write_text("apiVersion: noetl.io/v2\nkind: Playbook\nworkflow: []\n")
    code, _, err = call("run", "bad.yaml")
    assert code == 2
    assert err.startswith("error: bad.yaml cannot be run")
    assert gateway.requests == []


def test_submit_prints_the_id_alone(call: Any) -> None:
    code, out, err = call("submit", "hello.yaml")
    assert (code, out.strip()) == (0, str(ID))
    assert f"noetl-ray status {ID}" in err
    assert json.loads(call("submit", "hello.yaml", "--json")[1]) == {"execution_id": str(ID)}


def test_list(call: Any, gateway: Any) -> None:
    code, out, _ = call("list", "--status", "RUNNING", "--limit", "3")
    assert code == 0
    assert str(ID) in out
    assert gateway.asked("GET", "/api/executions")[0] == {"status": "RUNNING", "limit": "3"}
    assert json.loads(call("list", "--json")[1])["execution_id"] == str(ID)


def test_status(call: Any) -> None:
    code, out, _ = call("status", str(ID))
    assert code == 0
    assert "start" in out
    assert "RUNNING" in out


def test_status_shows_the_children(call: Any, gateway: Any) -> None:
    assert "children" not in json.loads(call("status", str(ID), "--json")[1])
    gateway.children = [{"execution_id": str(ID + 5), "status": "FAILED", "path": "a/child"}]
    out = call("status", str(ID))[1]
    assert "children:" in out
    assert f"{ID + 5}  FAILED  a/child" in out
    (child,) = json.loads(call("status", str(ID), "--json")[1])["children"]
    assert child["execution_id"] == str(ID + 5)


def test_a_missing_execution_is_2(call: Any) -> None:
    code, out, err = call("status", "1")
    assert code == 2
    assert out == ""
    assert err.startswith("error: no /api/executions/1")
    assert "hint: list what there is" in err


def test_events_and_logs(call: Any) -> None:
    code, out, _ = call("events", str(ID), "--follow")
    assert code == 0
    assert out.split()[:1] == ["7"]
    assert "step.done" in out
    assert call("events", str(ID), "--after", "7")[1] == ""
    assert call("logs", str(ID))[1] == "start/greet | hello\n"
    line = json.loads(call("logs", str(ID), "--json")[1])
    assert line["text"] == "hello"


def test_result(call: Any) -> None:
    code, out, _ = call("result", str(ID), "start")
    assert code == 0
    assert out.split() == ["n", "name", "1", "Ada"]
    assert json.loads(call("result", str(ID), "start", "--json")[1]) == [{"n": 1, "name": "Ada"}]


def test_cancel_and_rerun(call: Any, gateway: Any) -> None:
    assert call("cancel", str(ID), "--reason", "enough")[0] == 0
    assert gateway.asked("POST", f"/api/executions/{ID}/cancel") == [
        {"reason": "enough", "cascade": True}
    ]
    code, out, _ = call("rerun", str(ID))
    assert (code, out.strip()) == (0, str(ID + 1))


def test_pause_and_resume_say_what_comes_next(call: Any, gateway: Any) -> None:
    code, _, err = call("pause", str(ID), "--reason", "look")
    assert code == 0
    assert f"noetl-ray resume {ID}" in err
    assert gateway.asked("POST", f"/api/executions/{ID}/pause") == [{"reason": "look"}]
    assert call("resume", str(ID))[0] == 0
    assert len(gateway.asked("POST", f"/api/executions/{ID}/resume")) == 1


def test_an_answer_is_sent_as_json(call: Any, gateway: Any) -> None:
    code, _, err = call("answer", str(ID), "approve", "--data", '{"ok": true}')
    assert code == 0
    assert "goes on" in err
    assert gateway.asked("POST", f"/api/executions/{ID}/callbacks/approve") == [{"ok": True}]
    code, _, err = call("answer", str(ID), "approve", "--data", "{")
    assert code == 2
    assert "not JSON" in err


def test_credentials(call: Any, gateway: Any) -> None:
    Path("pg.json").write_text('{"password": "hunter2"}')
    code, out, err = call("credential", "add", "pg", "--type", "postgres", "--data-file", "pg.json")
    assert code == 0
    assert "hunter2" not in out + err
    (body,) = gateway.asked("POST", "/api/credentials")
    assert body["data"] == {"password": "hunter2"}
    assert body["type"] == "postgres"
    assert "password" in call("credential", "list")[1]
    assert call("credential", "remove", "pg")[0] == 0
    code, _, err = call("credential", "remove", "nope")
    assert code == 2
    assert "credential list" in err


@pytest.mark.parametrize("text", ["hunter2", "[hunter2]", "{hunter2: [", "{}"])
def test_bad_credential_data_is_refused_without_showing_it(
    call: Any, gateway: Any, text: str
) -> None:
    Path("pg.json").write_text(text)
    code, _, err = call("credential", "add", "pg", "--data-file", "pg.json")
    assert code == 2
    assert "hunter2" not in err
    assert gateway.requests == []


def test_a_wrong_token_is_2(gateway: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--address", gateway.url, "list"]) == 2
    assert "bad token" in capsys.readouterr().err


def test_an_unreachable_gateway_is_2_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--address", "http://127.0.0.1:9", "list"]) == 2
    err = capsys.readouterr().err
    assert "cannot be reached" in err
    assert "noetl-ray up" in err
    assert "Traceback" not in err


def test_validate_offline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "hello.yaml"]) == 0
    assert "0 errors" in capsys.readouterr().err
    Path("bad.yaml").write_text("apiVersion: noetl.io/v2\nkind: Playbook\nworkflow: 5\n")
    assert main(["validate", "bad.yaml"]) == 1
    assert capsys.readouterr().out.startswith("bad.yaml:")
    assert main(["validate", "bad.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["valid"] is False


def test_doctor_asks_the_gateway(call: Any) -> None:
    code, out, _ = call("doctor", "--json")
    assert code == 0
    found = {item["name"]: item for item in map(json.loads, out.splitlines())}
    assert found["gateway"]["detail"].endswith("version 9.9.9")


def test_the_fixture_api_of_the_demo_lives_as_long_as_its_block() -> None:
    with fixture_api() as url:
        assert httpx.get(f"{url}/health").json() == {"status": "ok"}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
