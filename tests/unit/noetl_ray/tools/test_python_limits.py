"""What user code may use and may not: memory, and resources where there is no cluster."""

from __future__ import annotations

import asyncio
import os

import pytest
import pytest_asyncio

from noetl_ray.errors import ToolError
from noetl_ray.tools.python import PythonTool
from noetl_ray.tools.python_memory import machine_bytes, used_bytes
from noetl_ray.tools.python_process import MemoryExceededError, ProcessEndedError
from noetl_ray.tools.python_remote import Wish, read_wish

LIMIT_MB = 150


@pytest_asyncio.fixture
async def tool():
    tool = PythonTool(processes=1, base_env={"PATH": "/bin:/usr/bin"}, memory_bytes=LIMIT_MB << 20)
    yield tool
    await tool.close()


async def failure(tool, bench, config) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await tool.run(config, bench.context())
    return caught.value


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "grow",
    [
        "grown = []\nwhile True: grown.append(bytearray(1 << 20))",
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'x = bytearray(400 << 20); input()'],"
        " stdin=subprocess.PIPE)",
        "keep = b'x' * (400 << 20)\nimport time; time.sleep(30)",
    ],
    ids=["slowly", "in a process it starts", "at once"],
)
async def test_memory_beyond_the_limit_ends_that_attempt_only(tool, bench, grow):
    if "sys.executable" in grow:
        grow = grow.replace("subprocess.run(", "subprocess.Popen(") + ".wait()"
    error = await failure(tool, bench, {"code": grow, "timeout_seconds": 30})
    assert str(error) == f"the Python code used more than {LIMIT_MB} MiB of memory and was killed"
    assert (error.kind, error.retryable) == ("unknown", False)
    assert error.details["exception_type"] == "MemoryExceeded"
    assert (await tool.run({"code": "result = 1"}, bench.context())).data == 1


@pytest.mark.asyncio
async def test_a_call_within_the_limit_is_left_alone(tool, bench):
    code = "import time\nkeep = bytearray(50 << 20)\ntime.sleep(0.4)\nresult = len(keep)"
    assert (await tool.run({"code": code}, bench.context())).data == 50 << 20


def test_used_memory_counts_what_a_process_started_and_forgives_what_is_gone():
    assert used_bytes(os.getpid()) > 1 << 20
    assert used_bytes(1 << 30) == 0
    assert machine_bytes() > 1 << 28


@pytest.mark.asyncio
async def test_the_system_would_end_user_code_first(tool, bench):
    code = "result = int(open('/proc/self/oom_score_adj').read())"
    assert (await tool.run({"code": code}, bench.context())).data == 1000


@pytest.mark.parametrize(
    ("config", "wish"),
    [
        ({}, None),
        ({"resources": {}, "runtime_env": {}}, None),
        ({"resources": {"num_cpus": None}, "runtime_env": {"pip": []}}, None),
        ({"resources": {"num_cpus": 0}}, Wish(num_cpus=0)),
        ({"resources": {"num_gpus": "0.5"}}, Wish(num_gpus=0.5)),
        ({"resources": {"memory": "1GiB", "a": 2}}, Wish(memory_bytes=1 << 30, custom={"a": 2})),
        (
            {"runtime_env": {"env_vars": {"A": 1, "B": True, "C": None}}},
            Wish(runtime_env={"env_vars": {"A": "1", "B": "true", "C": ""}}),
        ),
    ],
)
def test_what_a_task_asks_for(config, wish):
    assert read_wish(config) == wish


def test_a_wish_is_told_as_a_cluster_counts_it():
    wish = Wish(num_cpus=2, num_gpus=0.5, memory_bytes=3 << 29, custom={"licence": 1, "none": 0})
    assert str(wish) == "CPU 2, GPU 0.5, licence 1, memory 1.5 GiB"
    assert str(Wish(num_cpus=0)) == "no resources"


@pytest.mark.asyncio
async def test_rendered_values_that_make_no_sense_fail_the_task(tool, bench):
    error = await failure(tool, bench, {"code": "x = 1", "resources": {"num_cpus": "many"}})
    assert str(error) == "resources.num_cpus: 'num_cpus' must be 0 or a number from 0.0001"
    assert error.kind == "schema"
    error = await failure(tool, bench, {"code": "x = 1", "runtime_env": {"conda": "x"}})
    assert "runtime_env.conda: a runtime_env has no key 'conda' (keys are" in str(error)


@pytest.mark.asyncio
async def test_without_a_cluster_a_wish_fails_and_says_why(tool, bench):
    error = await failure(tool, bench, {"code": "x = 1", "resources": {"num_gpus": 1}})
    assert str(error) == (
        "the task asks for CPU 1, GPU 1 of a Ray cluster, and this worker is not part of one; "
        "run the playbook on Ray, or take `resources` and `runtime_env` out of the task"
    )
    assert (error.kind, error.retryable) == ("schema", False)


class Elsewhere:
    """The other side of the port, in this process."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.asked: list[tuple[Wish, str, float | None]] = []

    async def call(self, request, wish, *, name, log, timeout_s):
        self.asked.append((wish, name, timeout_s))
        log("stdout", "from afar")
        if isinstance(self.answer, BaseException):
            raise self.answer
        await asyncio.sleep(0)
        return self.answer


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"ok": true, "result": 5}', None),
        (b'{"ok": false, "error": {"exception_type": "E", "message": "m", "line": 2}}', "E: m"),
        (b'{"ok": false, "exit_code": 3}', "ended with exit code 3"),
        (TimeoutError(), "longer than 7 s"),
        (MemoryExceededError(1 << 20), "more than 1 MiB"),
        (ProcessEndedError(-9, True), "SIGKILL"),
        (b"junk", "cannot be read"),
    ],
)
async def test_an_answer_from_elsewhere_means_what_it_means_here(bench, answer, said):
    remote = Elsewhere(answer)
    tool = PythonTool(processes=1, base_env={}, remote=remote)
    config = {"code": "x", "resources": {"num_cpus": 3}, "timeout": 7}
    try:
        if said is None:
            assert (await tool.run(config, bench.context())).data == 5
        else:
            assert said in str(await failure(tool, bench, config))
    finally:
        await tool.close()
    assert remote.asked == [(Wish(num_cpus=3), "42/first/first_task/1", 7.0)]
    assert bench.lines == [("stdout", "from afar")]
