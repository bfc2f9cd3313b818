"""Bad input, given to a real set as people give it: every answer says what is wrong and where."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.errors import ConflictError, PlaybookError
from noetl_ray.submit import Submission, submit_execution
from tests.support.memory_set import MemorySet
from tests.support.patient import ask, check_execution, ended, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: NAME}
workload: {api_url: "", n: 1}
workflow:
""".lstrip()

BROKEN = {
    "yaml": ("  - step: {a\n", "7:1: error: the YAML is broken: "),
    "kind": (
        "  - step: a\n    tool: {kind: pyton, code: 'result = 1'}\n",
        "7:18: error: unknown tool kind 'pyton' (did you mean 'python'?)",
    ),
    "arc": (
        "  - step: alpha\n    tool: {kind: noop}\n    next: {arcs: [{stpe: beta}]}\n"
        "  - step: beta\n    tool: {kind: noop}\n",
        "8:19: error: the arc has no 'step' (did you mean 'step'?)",
    ),
    "template": (
        "  - step: a\n    tool: {kind: python, input: {x: '{{ workload.n + }}'}, code: ''}\n",
        "7:37: error: the template is broken: ",
    ),
}

FAILING: dict[str, tuple[str, dict[str, Any]]] = {
    "template": (
        "python, input: {x: '{{ workload.n // 0 }}'}, code: 'result = x'",
        {"kind": "template", "template": "{{ workload.n // 0 }}", "message": "modulo by zero"},
    ),
    "http_500": (
        "http, method: GET, url: '{{ workload.api_url }}/api/v1/errors', params: {error_type: 500}",
        {"kind": "server_error", "http_status": 500, "message": "answered 500"},
    ),
    "sql": (
        "postgres, auth: pg_local, command: 'SELECT nothing FROM nowhere'",
        {"sqlstate": "42P01", "message": 'relation "nowhere" does not exist'},
    ),
    "exception": (
        "python, code: \"print('before the fall')\\nraise ValueError('no good')\"",
        {"exception_type": "ValueError", "line": 2, "message": "ValueError: no good"},
    ),
    "sys_exit": (
        "python, code: \"import sys\\nprint('before the fall')\\nsys.exit(3)\"",
        {"exit_code": 3, "message": "exit code 3"},
    ),
}


def playbook(name: str, steps: str) -> str:
    return HEAD.replace("NAME", name) + steps


@pytest.mark.parametrize("case", BROKEN)
def test_a_playbook_that_cannot_run_is_refused_with_its_place(cli, case):
    steps, wanted = BROKEN[case]
    before = cli("list", "--json").ok().out
    done = cli("run", cli.write(f"{case}.yaml", playbook(case, steps)))
    assert done.code == 2
    assert f"{case}.yaml cannot be run: 1 error" in done.err
    assert wanted in done.err
    assert cli("list", "--json").ok().out == before


def test_the_gateway_refuses_it_too(shared_set):
    with pytest.raises(PlaybookError) as caught:
        ask(shared_set, lambda client: client.submit(playbook=playbook("x", BROKEN["kind"][0])))
    (problem,) = [each for each in caught.value.problems if each["severity"] == "error"]
    assert (problem["line"], problem["column"]) == (7, 18)


@pytest.mark.parametrize("case", FAILING)
def test_a_step_that_fails_ends_its_execution_and_says_why(shared_set, api_url, case):
    tool, wanted = FAILING[case]
    source = playbook(case, f"  - step: only\n    tool: {{kind: {tool}}}\n")
    workload = {"api_url": api_url}
    started = ask(shared_set, lambda client: client.submit(playbook=source, workload=workload))
    found = ended(shared_set, started.execution_id)
    assert found.status == "FAILED"
    assert found.error is not None
    assert (found.error["step"], found.error["task"]) == ("only", "only_task")
    for key, value in wanted.items():
        if key == "message":
            assert value in found.error["message"]
        else:
            assert found.error[key] == value
    assert found.steps["only"].status == "failed"
    check_execution(shared_set, started.execution_id)
    if "before the fall" in tool:
        assert printed(shared_set, started.execution_id) == ["before the fall"]


def printed(running, execution_id: int) -> list[str]:
    """What a step printed; lines travel apart from events and may come a moment later."""

    async def lines(client):
        return [each.text async for each in client.logs(execution_id)]

    return until(lambda: ask(running, lines), f"lines of {execution_id}")


def test_an_arc_whose_condition_breaks_is_not_taken_and_the_log_says_why(shared_set):
    steps = (
        "  - step: first\n    tool: {kind: noop}\n"
        "    next: {arcs: [{step: second, when: '{{ workload.n // 0 > 1 }}'}]}\n"
        "  - step: second\n    tool: {kind: noop}\n"
    )
    source = playbook("arc_breaks", steps)
    started = ask(shared_set, lambda client: client.submit(playbook=source))
    found = ended(shared_set, started.execution_id)
    assert (found.status, set(found.steps)) == ("COMPLETED", {"first"})

    async def exits(client):
        events = [event async for event in client.events(started.execution_id)]
        return [event.payload for event in events if event.event_type == "step.exit"]

    (left,) = ask(shared_set, exits)
    assert left["warnings"] == ["arc to second: integer division or modulo by zero"]


def test_a_failed_run_shows_where_and_why_and_exits_with_1(cli):
    tool, _ = FAILING["exception"]
    steps = f"  - step: only\n    tool: {{kind: {tool}}}\n"
    done = cli("run", cli.write("fails.yaml", playbook("fails", steps)))
    assert done.code == 1
    assert "error: step only, task only_task: ValueError: no good (line 2 of the code)" in done.err


def test_a_workload_may_have_a_key_named_execution_id(cli):
    steps = (
        "  - step: only\n    tool:\n      kind: python\n"
        "      input: {given: '{{ workload.execution_id }}', real: '{{ execution_id }}'}\n"
        "      code: 'result = [given, str(real), str(execution_id)]'\n"
    )
    file = cli.write("named.yaml", playbook("named", steps))
    run = cli("run", file, "--set", "execution_id=mine", "--json").ok().value
    own = run["execution_id"]
    assert cli("result", own, "only", "--json").ok().value == ["mine", own, own]


def test_one_idempotency_key_gives_one_execution(cli, shared_set):
    file = cli.write("once.yaml", playbook("once", "  - step: a\n    tool: {kind: noop}\n"))
    first, again = (
        cli("submit", file, "--idempotency-key", "monday", "--json").ok() for _ in range(2)
    )
    assert first.value == again.value
    assert "was used before" in again.err
    other = cli("submit", file, "--idempotency-key", "monday", "--set", "n=2")
    assert other.code == 2
    assert "another workload" in other.err
    execution_id = int(first.value["execution_id"])
    assert ended(shared_set, execution_id).status == "COMPLETED"
    check_execution(shared_set, execution_id)


class HandClock(SystemClock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000

    def now_ms(self) -> int:
        return self.seconds * 1000

    def monotonic(self) -> float:
        return float(self.seconds)


def test_one_idempotency_key_gives_one_execution_an_hour_later_too():
    """Long after the log forgot the message id: the subject's version is what refuses."""

    async def submit_twice() -> None:
        clock = HandClock()
        made = MemorySet(clock)
        source = playbook("hourly", "  - step: a\n    tool: {kind: noop}\n")
        asked = Submission(source=source, idempotency_key="monday")
        first = await submit_execution(made.submit_ports, made.scope, "default", asked)
        clock.seconds += 3600
        again = await submit_execution(made.submit_ports, made.scope, "default", asked)
        assert (again.execution_id, again.duplicate) == (first.execution_id, True)
        changed = Submission(source=source, idempotency_key="monday", workload={"n": 2})
        with pytest.raises(ConflictError, match="another workload"):
            await submit_execution(made.submit_ports, made.scope, "default", changed)

    asyncio.run(submit_twice())


def test_an_interrupted_run_cancels_its_execution_and_ends_its_code(cli, shared_set):
    mark = Path(cli.folder, "slow.pid")
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    steps = f'  - step: slow\n    tool: {{kind: python, code: "{code}"}}\n'
    process = cli.begin("run", cli.write("slow.yaml", playbook("slow", steps)), "--json")
    try:
        pid = until(lambda: mark.exists() and mark.read_text(), "the step runs")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert '"status": "CANCELLED"' in out
    execution_id = int(err.split("execution ", 1)[1].split()[0])
    assert ended(shared_set, execution_id).status == "CANCELLED"
    until(lambda: not Path("/proc", pid).exists(), f"process {pid} of the step is gone", 10)


def test_a_result_of_50_mb_stays_out_of_the_log(cli, shared_set):
    code = (
        "        text = 'x' * 1000\n"
        "        result = [{'id': n, 'text': f'{n:08d}' + text} for n in range(50_000)]\n"
    )
    use = "        result = {'count': len(rows), 'last': rows[-1]['id']}\n"
    steps = (
        f"  - step: make\n    tool:\n      kind: python\n      code: |\n{code}"
        "    next: {arcs: [{step: use}]}\n"
        "  - step: use\n    tool:\n      kind: python\n      input: {rows: '{{ make }}'}\n"
        f"      code: |\n{use}"
    )
    run = cli("run", cli.write("large.yaml", playbook("large", steps)), "--json").ok().value
    execution_id = int(run["execution_id"])
    assert cli("result", execution_id, "use", "--json").ok().value == {
        "count": 50000,
        "last": 49999,
    }
    table = ask(shared_set, lambda client: client.result_table(execution_id, "make"))
    assert table.num_rows == 50_000
    assert table.nbytes > 50_000_000
    rows = cli("result", execution_id, "make", "--json").ok()
    assert len(rows.out) > 50_000_000
    assert rows.value[-1]["id"] == 49_999
    assert "and 49980 more rows" in cli("result", execution_id, "make").ok().out
    check_execution(shared_set, execution_id)
    assert largest_message(shared_set) < 64_000


def largest_message(running) -> int:
    from tests.support.journal import raw_messages

    return max(len(data) for stored in raw_messages(running).values() for data in stored)
