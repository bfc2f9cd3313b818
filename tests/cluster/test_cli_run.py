"""A new user's first hour, word for word: run, interrupt, up, look around, down.

One data directory throughout, so what was run by a set that is gone is still known to the next.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors import state_file
from actors.local import DEMO_DATABASE, down
from actors.ray_head import forget
from noetl_ray.embedded.postgres import with_database
from tests.support.cli import Cli, Done, processes_naming
from tests.support.journal import fetch
from tests.support.patient import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

START_S = 180.0

SLOW = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow}
workload: {seconds: 60}
workflow:
  - step: nap
    tool:
      kind: python
      input: {seconds: "{{ workload.seconds }}"}
      code: |
        import time
        print("good night", flush=True)
        time.sleep(seconds)
        result = {"slept": seconds}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """What was done before the set was brought up to stay."""

    cli: Cli
    hello: Done
    left_after_hello: list[str]
    interrupted: Done
    left_after_interrupt: list[str]
    up: Done

    def run(self, *words: object) -> dict[str, Any]:
        """A ``run`` that completes, on the set that is up."""
        return dict(self.cli("run", *words, "--json").ok().value)


@pytest.fixture(scope="module")
def hello_path(repository: Path) -> Path:
    return repository / "examples" / "hello" / "playbook.yaml"


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory, hello_path: Path):
    folder = tmp_path_factory.mktemp("user")
    cli = Cli(data_dir=folder / "data", folder=folder)
    cli.write("slow.yaml", SLOW)
    try:
        hello = cli("run", hello_path, "--set", "name=Ada", "--json", wait_s=START_S)
        left_after_hello = processes_naming(cli.data_dir)
        interrupted = interrupt(cli)
        left_after_interrupt = processes_naming(cli.data_dir)
        yield Journey(
            cli=cli,
            hello=hello,
            left_after_hello=left_after_hello,
            interrupted=interrupted,
            left_after_interrupt=left_after_interrupt,
            up=cli("up", "--json", wait_s=START_S),
        )
    finally:
        down(cli.data_dir)
        forget(cli.data_dir)
    assert processes_naming(cli.data_dir) == []


def interrupt(cli: Cli) -> Done:
    """``run`` with a set of its own, and Ctrl-C once its step is running."""
    process = cli.begin("run", "slow.yaml", "--json", "--timeout", 60)
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.split() == ["nap", "running"]:
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=START_S)
    finally:
        process.kill()
        process.wait()
    return Done(code=process.returncode, out=out, err="".join(seen) + err)


def test_run_starts_what_it_needs_and_leaves_nothing(journey):
    done = journey.hello.ok()
    assert done.value["status"] == "COMPLETED"
    assert "nothing is up here; starting a local set for this run" in done.err
    assert "stopping the local set" in done.err
    assert journey.left_after_hello == []


def test_an_interrupted_run_cancels_and_leaves_nothing(journey):
    done = journey.interrupted
    assert done.code == 130, done.err
    assert done.value["status"] == "CANCELLED"
    assert "interrupted from the command line" in done.err
    assert "stopping the local set" in done.err
    assert journey.left_after_interrupt == []


def test_up_says_where_things_are_and_finds_itself_again(journey):
    facts = journey.up.ok().value
    assert facts["started"] is True
    assert facts["data_dir"] == str(journey.cli.data_dir)
    assert facts["gateway"].startswith("http://127.0.0.1:")
    again = journey.cli("up", "--json").ok().value
    assert again == {**facts, "started": False}
    record = state_file.read(journey.cli.data_dir)
    assert record is not None
    assert record.ready


def test_what_ran_in_a_set_that_is_gone_is_still_known(journey):
    cli, own = journey.cli, journey.hello.value["execution_id"]
    assert cli("status", own, "--json").ok().value == journey.hello.value
    found = cli("result", own, "start", "--json").ok().value
    assert found == {"greeting": "Hello, Ada!", "execution_id": own}
    listed = {each["execution_id"]: each for each in cli("list", "--json").ok().values}
    assert listed[own]["status"] == "COMPLETED"
    cancelled = journey.interrupted.value["execution_id"]
    assert listed[cancelled]["status"] == "CANCELLED"
    only = cli("list", "--json", "--status", "CANCELLED").ok().values
    assert [each["execution_id"] for each in only] == [cancelled]
    assert [each["text"] for each in cli("logs", own, "--json").ok().values] == ["greeting Ada"]


def test_events_and_logs_can_be_followed(journey, hello_path):
    cli = journey.cli
    started = cli("submit", hello_path, "--set", "name=Eve", "--json").ok().value
    own = started["execution_id"]
    until(lambda: cli("status", own).code == 0, f"execution {own} is known")
    events = cli("events", own, "--follow", "--json").ok().values
    kinds = [each["event_type"] for each in events]
    assert kinds[0] == "execution.requested"
    assert kinds[-1] == "playbook.completed"
    assert kinds.count("call.done") == 1
    later = cli("events", own, "--after", events[-1]["position"] - 1, "--json").ok().values
    assert {each["position"] for each in later} == {events[-1]["position"]}
    lines = cli("logs", own, "start", "--follow", "--json").ok().values
    assert [each["text"] for each in lines] == ["greeting Eve"]
    assert cli("logs", own).ok().out == "start/start_task | greeting Eve\n"


def test_run_uses_the_set_that_is_up(journey, hello_path):
    done = journey.cli("run", hello_path, "--set", "name=Bob").ok()
    assert "starting a local set" not in done.err
    assert "COMPLETED" in done.err


def test_rerun_gives_a_new_execution_of_the_same_workload(journey):
    cli = journey.cli
    again = cli("rerun", journey.hello.value["execution_id"], "--json").ok().value["execution_id"]
    assert again != journey.hello.value["execution_id"]

    def ended() -> Any:
        done = cli("status", again, "--json")
        return done.code == 0 and done.value["status"] == "COMPLETED"

    until(ended, f"the rerun {again} ends")
    assert cli("result", again, "start", "--json").ok().value["greeting"] == "Hello, Ada!"


def test_cancel_stops_what_runs_and_nothing_else(journey):
    cli = journey.cli
    own = cli("submit", "slow.yaml", "--json").ok().value["execution_id"]
    until(lambda: "good night" in cli("logs", own).out, "the step prints")
    asked = cli("cancel", own, "--reason", "enough", "--json").ok().value
    assert asked == {"execution_id": own, "status": "cancel requested"}

    def status() -> str:
        return str(cli("status", own, "--json").ok().value["status"])

    until(lambda: status() == "CANCELLED", f"{own} is cancelled")
    late = cli("cancel", own)
    assert late.code == 2
    assert "has ended" in late.err


def test_a_run_that_takes_too_long_is_cancelled(journey):
    done = journey.cli("run", "slow.yaml", "--timeout", "1", "--json")
    assert done.code == 1
    assert done.value["status"] == "CANCELLED"
    assert "not done after 1 s" in done.err


def test_credentials_come_and_go(journey):
    cli = journey.cli
    data = json.dumps({"password": "swordfish", "username": "ada"})
    cli.write("secret.json", data)
    added = cli("credential", "add", "door", "--data-file", "secret.json", "--json").ok()
    assert added.value == {"name": "door", "type": "generic", "fields": ["password", "username"]}
    listed = cli("credential", "list", "--json").ok()
    assert {"door", "pg_local"} <= {each["name"] for each in listed.values}
    assert cli("credential", "remove", "door", "--json").ok().value["removed"] is True
    again = cli("credential", "remove", "door")
    assert again.code == 2
    assert "swordfish" not in added.out + added.err + listed.out + listed.err


def test_what_does_not_exist_is_said_so(journey):
    for words in (("status", 1), ("events", 1), ("result", 1, "start"), ("cancel", 1)):
        done = journey.cli(*words)
        assert done.code == 2, words
        assert "1" in done.err
        assert "Traceback" not in done.err
    own = journey.hello.value["execution_id"]
    done = journey.cli("result", own, "stop")
    assert done.code == 2
    assert "stop" in done.err


def test_doctor_finds_the_set_well(journey):
    found = {each["name"]: each for each in journey.cli("doctor", "--json").ok().values}
    assert found["gateway"]["state"] == "ok"
    assert {"python", "packages", "java", "data directory", "shared memory"} <= set(found)
    assert all(each["state"] != "fail" for each in found.values())


def test_down_stops_it_and_data_stay(journey):
    """Last in this file: the others need the set."""
    stopped = journey.cli("down", "--json").ok().value
    assert stopped == {"stopped": True, "data_dir": str(journey.cli.data_dir)}
    assert processes_naming(journey.cli.data_dir) == []
    assert journey.cli("down", "--json").ok().value["stopped"] is False
    assert (journey.cli.data_dir / "nats").is_dir()
    done = journey.cli("list")
    assert done.code == 2
    assert "noetl-ray up" in done.err


def test_the_demo_playbook_puts_its_rows_into_postgres(cli, shared_set, api_url, repository):
    demo = repository / "examples" / "demo" / "playbook.yaml"
    own = cli("run", demo, "--set", f"api_url={api_url}", "--json").ok().value["execution_id"]
    summary = cli("result", own, "check", "--json").ok().value["summary"]
    dsn = with_database(shared_set.postgres_dsn, DEMO_DATABASE)
    wanted = "SELECT count(*) AS n, sum(score) AS score FROM demo_assessment WHERE execution_id=$1"
    (assessments,) = fetch(dsn, wanted, int(own))
    (users,) = fetch(dsn, "SELECT count(*) AS n FROM demo_user WHERE execution_id=$1", int(own))
    assert assessments["n"] == summary["assessments"] > 0
    assert users["n"] == summary["users"] == 35
    assert "assessments" in cli("logs", own, "transform").ok().out
