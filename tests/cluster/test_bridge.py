"""User Python as Ray tasks, on a real Ray: where it runs, what it prints, and every way it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import zipfile
from pathlib import Path

import pytest
import pytest_asyncio

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ToolError
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.python import PythonTool

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), pytest.mark.asyncio]

NODE = "node:127.0.0.1"
"""A custom resource every node of a local set has."""
CANCEL_S = 2.0


async def no_credential(name: str) -> Credential:
    raise AssertionError(name)


class Bench:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.said = asyncio.Event()

    def log(self, stream: str, line: str) -> None:
        self.lines.append((stream, line))
        self.said.set()

    def context(self) -> ToolContext:
        return ToolContext(
            execution_id=7,
            step="s",
            task="t",
            attempt=1,
            idempotency_key="k",
            timeout_s=None,
            credential=no_credential,
            log=self.log,
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest_asyncio.fixture
async def tool(joined):
    from actors.bridge import RayPython

    tool = PythonTool(processes=1, base_env={}, remote=RayPython(wait_s=1.0))
    yield tool
    await tool.close()


def task(code: str, **more):
    return {"code": code, "resources": {"num_cpus": 0.5}, **more}


async def failure(tool, bench, config) -> ToolError:
    with pytest.raises(ToolError) as caught:
        async with asyncio.timeout(150):
            await tool.run(config, bench.context())
    return caught.value


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def ray_worker_of(pid: int) -> int:
    """The Ray worker above a process of user code."""
    while not Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::"):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


async def until(condition, wait_s: float = 20.0) -> None:
    async with asyncio.timeout(wait_s):
        while not condition():
            await asyncio.sleep(0.02)


async def test_it_runs_below_a_ray_worker_by_the_rules_of_the_pool(tool, bench):
    code = (
        "import sys\n"
        "print('out'); print('err', file=sys.stderr)\n"
        "def main(x, y=2):\n"
        "    return {'sum': x + y, 'pid': os.getpid(), 'task': open('/proc/self/environ').read()}\n"
    )
    back = (await tool.run(task(code, input={"x": 1}), bench.context())).data
    assert back["sum"] == 3
    assert "RAY_" not in back["task"]
    await until(lambda: not is_running(back["pid"]))
    assert sorted(bench.lines) == [("stderr", "err"), ("stdout", "out")]


async def test_lines_arrive_while_it_runs_and_none_is_lost(tool, bench):
    code = (
        "import time\nprint('first', flush=True)\n"
        "while not os.path.exists(go): time.sleep(0.01)\n"
        "for n in range(2000): print(n)\nprint('x', end='')"
    )
    go = Path(os.environ.get("TMPDIR", "/tmp")) / f"noetl-go-{os.getpid()}"
    run = asyncio.create_task(tool.run(task(code, input={"go": str(go)}), bench.context()))
    try:
        await asyncio.wait_for(bench.said.wait(), 30)
        assert not run.done()
        go.touch()
        await run
    finally:
        go.unlink(missing_ok=True)
        run.cancel()
    assert [line for _, line in bench.lines] == ["first", *map(str, range(2000)), "x"]


async def test_large_inputs_and_results_pass(tool, bench):
    text = "a" * 20_000_000
    config = task("result = {'text': text, 'n': len(text)}", input={"text": text})
    back = (await tool.run(config, bench.context())).data
    assert back["n"] == len(text)
    assert back["text"] == text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (line 1 of the code)"),
        ("import sys; sys.exit(3)", "ended with exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "ended by signal SIGSEGV"),
        ("keep = bytearray(300 << 20); __import__('time').sleep(30)", "more than 200 MiB"),
    ],
)
async def test_the_codes_own_failures_are_those_of_the_pool(tool, bench, code, said):
    config = {"code": code, "resources": {"num_cpus": 0.5, "memory": "200MiB"}}
    error = await failure(tool, bench, config)
    assert said in str(error)
    assert not error.retryable


async def test_the_time_limit_counts_from_the_start_of_the_code(tool, bench):
    error = await failure(tool, bench, task("import time; time.sleep(60)", timeout_seconds=0.5))
    assert (error.kind, error.retryable) == ("timeout", True)


async def test_cancelling_kills_the_whole_group_at_once(tool, bench):
    code = (
        "import signal, subprocess, time\nsignal.signal(15, lambda *a: None)\n"
        "print(os.getpid(), subprocess.Popen(['sleep', '60']).pid, os.getppid(), flush=True)\n"
        "time.sleep(60)"
    )
    run = asyncio.create_task(tool.run(task(code), bench.context()))
    await asyncio.wait_for(bench.said.wait(), 30)
    pids = [int(word) for word in bench.lines[0][1].split()]
    assert all(is_running(pid) for pid in pids)
    began = time.monotonic()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: not any(is_running(pid) for pid in pids))
    assert time.monotonic() - began < CANCEL_S


async def test_a_lost_ray_worker_is_an_error_that_may_be_retried(tool, bench):
    code = "import time; print(os.getpid(), flush=True); time.sleep(60)"
    run = asyncio.create_task(tool.run(task(code), bench.context()))
    await asyncio.wait_for(bench.said.wait(), 30)
    child = int(bench.lines[0][1])
    os.kill(ray_worker_of(child), signal.SIGKILL)
    with pytest.raises(ToolError) as caught:
        async with asyncio.timeout(60):
            await run
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)
    assert caught.value.details["code"] == "task_lost"
    await until(lambda: not is_running(child))
    assert len(bench.lines) == 1, "Ray ran it again by itself"


async def test_a_custom_resource_is_taken_and_a_missing_one_is_named(tool, bench):
    held = {"num_cpus": 0, NODE: 0.5}
    back = await tool.run({"code": "result = 'ran'", "resources": held}, bench.context())
    assert back.data == "ran"
    error = await failure(tool, bench, {"code": "result = 1", "resources": {"licence": 2}})
    assert "no node of the Ray cluster can give the task CPU 1, licence 2; waited 1 s" in str(error)
    assert "the nodes have: CPU 2, memory " in str(error)
    assert error.details["wanted"] == {"CPU": 1.0, "licence": 2.0}


async def test_a_task_waits_for_what_others_hold_longer_than_for_what_nobody_has(tool, bench):
    whole = {"num_cpus": 0, NODE: 1}
    code = "import time; print('holds', flush=True); time.sleep(2.5); result = 1"
    first = asyncio.create_task(tool.run({"code": code, "resources": whole}, bench.context()))
    await asyncio.wait_for(bench.said.wait(), 30)
    second = await tool.run({"code": "result = 2", "resources": whole}, bench.context())
    assert ((await first).data, second.data) == (1, 2)


async def test_cancelling_one_that_waits_leaves_nothing_behind(tool, bench):
    whole = {"num_cpus": 0, NODE: 1}
    code = "import time; print('holds', flush=True); time.sleep(1.5); result = 1"
    first = asyncio.create_task(tool.run({"code": code, "resources": whole}, bench.context()))
    await asyncio.wait_for(bench.said.wait(), 30)
    other = Bench()
    waits = asyncio.create_task(
        tool.run({"code": "print('ran')", "resources": whole}, other.context())
    )
    await asyncio.sleep(0.3)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert (await first).data == 1
    back = await tool.run({"code": "result = 3", "resources": whole}, bench.context())
    assert (back.data, other.lines) == (3, [])


async def test_the_environment_of_the_task_is_made_and_nothing_else_is_seen(tool, bench, tmp_path):
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("mine/helper.py", "def double(x):\n    return 2 * x\n")
        made.writestr("mine/data.txt", "seen")
    code = (
        "import helper\n"
        "result = {'double': helper.double(4), 'data': open('data.txt').read(),\n"
        "          'env': {k: v for k, v in os.environ.items() if k.startswith(('MY', 'RAY'))}}"
    )
    environment = {"working_dir": archive.as_uri(), "env_vars": {"MY_LEVEL": 3}}
    back = (await tool.run({"code": code, "runtime_env": environment}, bench.context())).data
    assert back == {"double": 8, "data": "seen", "env": {"MY_LEVEL": "3"}}


async def test_an_environment_that_cannot_be_made_is_said_clearly(tool, bench):
    missing = {"working_dir": "file:///nowhere/at/all.zip"}
    error = await failure(tool, bench, {"code": "result = 1", "runtime_env": missing})
    assert str(error).startswith("the runtime_env of the task cannot be made: ")
    assert "all.zip" in str(error)
    assert (error.retryable, error.details["code"]) == (False, "runtime_env")


async def test_requirements_that_nobody_has_are_named(tool, bench):
    wanted = {"pip": ["no-such-package-of-ours==1"]}
    error = await failure(tool, bench, {"code": "result = 1", "runtime_env": wanted})
    assert "No matching distribution found for no-such-package-of-ours==1" in str(error)
    assert error.details["code"] == "runtime_env"
