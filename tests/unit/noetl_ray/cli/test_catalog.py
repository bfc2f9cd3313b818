"""``register``, ``catalog`` and ``objects`` against the real API over memory adapters."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from noetl_ray.cli.catalog import Named, is_file_name, named
from noetl_ray.cli.main import main
from noetl_ray.errors import UsageError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.testing.gateway_kit import GatewayKit
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.subjects import command_subject

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: hello, path: {path}}}
workload: {{n: {n}}}
workflow:
  - step: start
    tool: {{kind: noop}}
"""

pytestmark = pytest.mark.usefixtures("folder")


def book(n: int = 1, path: str = "examples/hello") -> str:
    return PLAYBOOK.format(n=n, path=path)


class Served:
    """The real app on a port, in a thread of its own."""

    def __init__(self) -> None:
        self.kit = GatewayKit()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(self.kit.app, log_level="error"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))

    def do(self, work: Any) -> Any:
        """Run a coroutine where the app lives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._loop.close()
        self._socket.close()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.stop()


@pytest.fixture
def call(folder: Path, served: Served, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["--address", served.url, *words])
        served.do(served.kit.project())
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_registering_again_makes_a_version_only_of_another_text(call: Any) -> None:
    Path("a.yaml").write_text(book(1))
    code, out, _ = call("register", "a.yaml")
    assert code == 0
    assert out.split() == [
        "path", "version", "status", "file", "examples/hello", "1", "registered", "a.yaml",
    ]  # fmt: skip
    assert json.loads(call("register", "a.yaml", "--json")[1])["status"] == "unchanged"
    Path("a.yaml").write_text(book(2))
    found = json.loads(call("register", "a.yaml", "--json")[1])
    assert (found["path"], found["version"], found["status"]) == ("examples/hello", 2, "registered")


def test_a_folder_is_registered_whole_or_not_at_all(call: Any) -> None:
    folder = Path("books/deep")
    folder.mkdir(parents=True)
    Path("books/a.yaml").write_text(book(1, "b/a"))
    (folder / "c.yml").write_text(book(1, "b/c"))
    Path("books/values.yaml").write_text("n: 1\n")
    (folder / "bad.yaml").write_text(book(1, "b/bad").replace("noop", "nop"))
    code, out, err = call("register", "books")
    assert (code, out) == (2, "")
    assert "bad.yaml cannot be run: 1 error" in err
    assert "did you mean 'noop'?" in err
    assert call("catalog", "list")[1] == ""
    (folder / "bad.yaml").unlink()
    code, out, err = call("register", "books", "books/a.yaml", "--json")
    assert code == 0
    assert [json.loads(line)["path"] for line in out.splitlines()] == ["b/a", "b/c"]
    assert "1 YAML files below books are no playbooks" in err
    Path("empty").mkdir()
    code, _, err = call("register", "empty")
    assert code == 2
    assert "no playbooks below empty" in err


def test_two_files_of_one_path_are_refused(call: Any) -> None:
    Path("a.yaml").write_text(book(1))
    Path("b.yaml").write_text(book(2))
    code, out, err = call("register", "a.yaml", "b.yaml")
    assert (code, out) == (2, "")
    assert "a.yaml and b.yaml are both 'examples/hello'" in err


@pytest.fixture
def three(call: Any) -> None:
    for n in (1, 2, 3):
        Path("a.yaml").write_text(book(n))
        assert call("register", "a.yaml")[0] == 0


@pytest.mark.usefixtures("three")
def test_list_and_show(call: Any) -> None:
    assert call("catalog", "list")[1].splitlines()[1].split()[:2] == ["examples/hello", "3"]
    lines = call("catalog", "list", "examples/hello", "--json")[1].splitlines()
    assert [json.loads(line)["version"] for line in lines] == [3, 2, 1]
    code, out, err = call("catalog", "show", "examples/hello")
    assert (code, out) == (0, book(3))
    assert err.startswith("examples/hello@3")
    assert call("catalog", "show", "examples/hello@1")[1] == book(1)
    found = json.loads(call("catalog", "show", "examples/hello", "--version", "2", "--json")[1])
    assert (found["version"], found["content"]) == (2, book(2))


@pytest.mark.usefixtures("three")
def test_what_is_not_there_is_said_with_what_may_be_meant(call: Any) -> None:
    code, out, err = call("catalog", "show", "examples/helo")
    assert (code, out) == (2, "")
    assert "no playbook 'examples/helo' is registered" in err
    assert "did you mean 'examples/hello'?" in err
    assert "its newest version is 3" in call("catalog", "show", "examples/hello@9")[2]
    code, _, err = call("submit", "examples/helo")
    assert code == 2
    assert "did you mean 'examples/hello'?" in err
    assert "name the version once" in call("catalog", "show", "a@1", "--version", "2")[2]


@pytest.mark.usefixtures("three")
def test_diff(call: Any) -> None:
    code, out, _ = call("catalog", "diff", "examples/hello")
    assert code == 0
    lines = out.splitlines()
    assert lines[:2] == ["--- examples/hello@2", "+++ examples/hello@3"]
    assert [line for line in lines if line.startswith(("-w", "+w"))] == [
        "-workload: {n: 2}",
        "+workload: {n: 3}",
    ]
    assert "-workload: {n: 1}" in call("catalog", "diff", "examples/hello@1")[1]
    both = call("catalog", "diff", "examples/hello@3", "examples/hello@1", "--json")[1]
    found = json.loads(both)
    assert (found["from"], found["to"]) == ("examples/hello@3", "examples/hello@1")
    assert "+workload: {n: 1}" in found["diff"]
    code, out, err = call("catalog", "diff", "examples/hello", "a.yaml")
    assert (code, out) == (0, ""), err
    assert "are the same" in err
    Path("b.yaml").write_text(book(7))
    assert "+++ b.yaml" in call("catalog", "diff", "examples/hello", "b.yaml")[1]


def test_one_version_has_nothing_to_compare_with(call: Any) -> None:
    Path("a.yaml").write_text(book(1))
    call("register", "a.yaml")
    code, _, err = call("catalog", "diff", "examples/hello")
    assert code == 2
    assert "one version only" in err


@pytest.mark.usefixtures("three")
def test_submit_takes_a_path_and_a_version(call: Any, served: Served) -> None:
    def workload(*words: str) -> Any:
        execution_id = int(json.loads(call("submit", *words, "--json")[1])["execution_id"])
        served.do(served.kit.begin(execution_id))
        row = served.do(served.kit.model.execution(served.kit.scope, execution_id))
        return row.playbook_version

    assert workload("examples/hello") == 3
    assert workload("examples/hello@latest") == 3
    assert workload("examples/hello@1") == 1
    assert workload("examples/hello", "--version", "2") == 2
    code, _, err = call("submit", "a.yaml", "--version", "2")
    assert code == 2
    assert "a.yaml is a file" in err


def say(served: Served, position: int, status: str, **payload: Any) -> None:
    event = sample_event(
        position,
        event_type=EventType.BUSINESS_OBJECT_RECORDED,
        aggregate_type=AggregateType.BUSINESS_OBJECT,
        command_id=f"7:pay:{position}",
        idempotency_key=str(position),
        payload={"type": "order", "id": "1", "status": status, "step": "pay", **payload},
    )
    subject = command_subject(3, served.kit.scope, 7, event.command_id or "")
    served.do(served.kit.log.append(subject, Record(events=(event,)), expected_version=0))
    served.do(served.kit.project())


def test_objects(call: Any, served: Served) -> None:
    code, out, err = call("objects")
    assert (code, out) == (0, "")
    assert "no business objects" in err
    say(served, 501, "new", attributes={"total": 5})
    say(served, 502, "paid")
    say(served, 503, "open", type="invoice", id="i/9")
    code, out, _ = call("objects")
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["invoice", "i/9", "open"],
        ["order", "1", "paid"],
    ]
    found = json.loads(call("objects", "order", "--status", "paid", "--json")[1])
    assert (found["id"], found["execution_id"]) == ("1", "7")
    assert call("objects", "order", "--status", "new")[1] == ""
    lines = call("objects", "order", "1")[1].splitlines()
    assert [("paid" in line, "new" in line) for line in lines[1:]] == [(True, False), (False, True)]
    history = [json.loads(line) for line in call("objects", "order", "1", "--json")[1].splitlines()]
    assert [(each["status"], each["attributes"]) for each in history] == [
        ("paid", {}),
        ("new", {"total": 5}),
    ]
    only = call("objects", "order", "1", "--status", "new", "--json")[1]
    assert json.loads(only)["attributes"] == {"total": 5}
    code, _, err = call("objects", "order", "77")
    assert code == 2
    assert "nothing was said about order '77'" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", Named(path="a/b")),
        ("a/b@3", Named(path="a/b", version=3)),
        ("a/b@latest", Named(path="a/b")),
        ("team@home/b", Named(path="team@home/b")),
        ("a@b@2", Named(path="a@b", version=2)),
    ],
)
def test_names(text: str, expected: Named) -> None:
    assert named(text) == expected


@pytest.mark.parametrize("text", ["@3", "a@0"])
def test_names_that_name_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="names no playbook"):
        named(text)


def test_a_file_wins_over_a_path_and_a_folder_does_not() -> None:
    assert is_file_name("-")
    assert is_file_name("hello.yaml")
    assert is_file_name("missing.yaml")
    assert is_file_name("./hello")
    Path("plain").write_text("x")
    assert is_file_name("plain")
    Path("examples").mkdir()
    assert not is_file_name("examples")
    assert not is_file_name("examples/hello")
    assert not is_file_name("weird.yaml@2")
