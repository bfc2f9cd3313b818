"""The python kind against real processes."""

from __future__ import annotations

import asyncio
import base64
import os
import signal

import pytest
import pytest_asyncio

from noetl_ray.errors import TemplateError, ToolError
from noetl_ray.tools.python import PythonTool


@pytest_asyncio.fixture
async def tool(tmp_path):
    tool = PythonTool(
        processes=1,
        base_env={"PATH": "/bin:/usr/bin", "LANG": "C.UTF-8", "SECRET": "s3cret"},
        script_root=tmp_path,
    )
    yield tool
    await tool.close()


async def failure(tool, bench, code, **config) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await tool.run({"code": code, **config}, bench.context())
    return caught.value


async def value(tool, bench, code, **config):
    return (await tool.run({"code": code, **config}, bench.context())).data


def is_running(pid: int) -> bool:
    """Whether it runs; one that ended and waits for its new parent to notice does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(5):
        while is_running(pid):
            await asyncio.sleep(0.005)


@pytest.mark.asyncio
async def test_a_call_gives_its_result_and_the_process_stays(tool, bench):
    first = await value(tool, bench, "result = [x, os.getpid()]", input={"x": 1})
    second = await value(tool, bench, "result = [x, os.getpid()]", input={"x": 2})
    assert (first[0], second[0]) == (1, 2)
    assert first[1] == second[1] != os.getpid()


@pytest.mark.asyncio
async def test_what_it_prints_is_logged_while_it_runs(tool, bench):
    seen = asyncio.Event()
    lines = []

    def log(stream, line):
        lines.append((stream, line))
        seen.set()

    code = "import sys\nprint('early')\nsys.stdin.read()\ninput_wait = __import__('time').sleep(30)"
    task = asyncio.create_task(tool.run({"code": code}, bench.context(log=log)))
    await asyncio.wait_for(seen.wait(), 5)
    assert lines == [("stdout", "early")]
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_output_of_every_level_is_caught_whole(tool, bench):
    code = (
        "import os, subprocess, sys\n"
        "print('one')\n"
        "os.write(2, b'raw\\n')\n"
        "subprocess.run(['sh', '-c', 'echo shell; echo bad >&2'], check=True)\n"
        "print('x' * 100_000)\n"
        "print('no end', end='')\n"
    )
    await value(tool, bench, code)
    out = [line for stream, line in bench.lines if stream == "stdout"]
    assert out[:2] == ["one", "shell"]
    assert "".join(out[2:]) == "x" * 100_000 + "no end"
    assert [line for stream, line in bench.lines if stream == "stderr"] == ["raw", "bad"]


@pytest.mark.asyncio
async def test_an_exception_becomes_a_tool_error(tool, bench):
    error = await failure(tool, bench, "def f():\n    raise ValueError('bad row')\nf()")
    assert str(error) == "ValueError: bad row (line 2 of the code)"
    assert (error.kind, error.retryable) == ("unknown", False)
    assert error.details["exception_type"] == "ValueError"
    assert "line 3, in code" in error.details["traceback"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit(3)", "ended with exit code 3"),
        ("import sys; sys.exit('no rows')", "ended with exit code 1: no rows"),
        ("import os; os._exit(4)", "ended with exit code 4"),
        ("import ctypes; ctypes.string_at(0)", "ended by signal SIGSEGV"),
        ("def main():\n    return main()\nmain()", "RecursionError"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal SIGKILL"),
        ("import os; os.closerange(3, 64); __import__('time').sleep(0.01); os._exit(7)", "process"),
    ],
)
async def test_a_process_that_ends_fails_that_attempt_only(tool, bench, code, said):
    error = await failure(tool, bench, code)
    assert said in str(error)
    assert await value(tool, bench, "result = 1") == 1


@pytest.mark.asyncio
async def test_time_over_kills_the_whole_group(tool, bench):
    code = "import subprocess, time\nprint(subprocess.Popen(['sleep', '60']).pid)\ntime.sleep(60)"
    error = await failure(tool, bench, code, timeout_seconds=0.4)
    assert (error.kind, error.retryable) == ("timeout", True)
    assert bench.lines, "the code had not started"
    await until_gone(int(bench.lines[0][1]))
    assert await value(tool, bench, "result = 1") == 1


@pytest.mark.asyncio
async def test_cancelling_kills_it(tool, bench):
    started = asyncio.Event()
    pids = []

    def log(stream, line):
        pids.append(int(line))
        started.set()

    code = "import signal\nsignal.signal(15, lambda *a: None)\nprint(os.getpid())\nwhile True: pass"
    task = asyncio.create_task(tool.run({"code": code}, bench.context(log=log)))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_gone(pids[0])
    assert await value(tool, bench, "result = 1") == 1


@pytest.mark.asyncio
async def test_a_process_that_died_while_idle_is_not_offered(tool, bench):
    pid = await value(tool, bench, "result = os.getpid()")
    os.kill(pid, signal.SIGKILL)
    await until_gone(pid)
    assert await value(tool, bench, "result = os.getpid()") != pid


@pytest.mark.asyncio
async def test_only_the_allowed_environment_is_seen(tool, bench):
    seen = await value(tool, bench, "result = dict(os.environ)", env={"MINE": 1})
    assert seen.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"
    assert seen == {"PATH": "/bin:/usr/bin", "LANG": "C.UTF-8", "MINE": "1"}


@pytest.mark.asyncio
async def test_nothing_of_one_task_is_left_for_the_next(tool, bench):
    spoil = (
        "import builtins, sys\n"
        "os.environ['LEFT'] = '1'\nos.chdir('/')\nsys.path.insert(0, '/nowhere')\n"
        "builtins.left = 1\nbuiltins.len = None\nsys.stdout = None\nglobal_left = 1\n"
        "result = os.getpid()"
    )
    look = (
        "import sys\nprint('seen')\n"
        "result = [os.getpid(), 'LEFT' in os.environ, os.getcwd() == '/', '/nowhere' in sys.path,"
        " 'left' in dir(__builtins__), len([1]), 'global_left' in globals()]"
    )
    pid = await value(tool, bench, spoil, env={"ALSO": "1"})
    assert await value(tool, bench, look) == [pid, False, False, False, False, 1, False]
    assert bench.lines == [("stdout", "seen")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "leave",
    [
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
        "import subprocess\nsubprocess.Popen(['sleep', '30'])",
    ],
)
async def test_a_process_left_with_company_is_replaced(tool, bench, leave):
    pid = await value(tool, bench, leave + "\nresult = os.getpid()")
    assert await value(tool, bench, "result = os.getpid()") != pid
    await until_gone(pid)


@pytest.mark.asyncio
async def test_large_inputs_and_results_pass(tool, bench):
    text = "a" * 50_000_000
    back = await value(tool, bench, "result = {'text': text}", input={"text": text})
    assert back["text"] == text


@pytest.mark.asyncio
async def test_values_json_cannot_say_fall_back(tool, bench):
    code = "result = {1: {2}, 'o': object, 's': '\\ud800', 'n': float('inf'), 'big': 10**30}"
    back = await value(tool, bench, code)
    assert back == {"1": [2], "o": "<class 'object'>", "s": "?", "n": None, "big": "1" + "0" * 30}
    odd = {"d": {(1, 2): "\ud800"}}
    assert await value(tool, bench, "result = d", input=odd) == {"(1, 2)": "?"}


@pytest.mark.asyncio
async def test_a_result_that_holds_itself_is_an_error_not_a_crash(tool, bench):
    error = await failure(tool, bench, "result = []\nresult.append(result)")
    assert error.details["exception_type"] == "RecursionError"


@pytest.mark.asyncio
async def test_credentials_are_given_as_auth(tool, bench):
    bench.add("k", "bearer", token="abc")
    assert await value(tool, bench, "result = auth['token'][::-1]", auth="k") == "cba"
    aliased = {"one": {"source": "credential", "key": "k"}}
    assert await value(tool, bench, "result = auth['one']['token'] == 'abc'", auth=aliased) is True


@pytest.mark.asyncio
async def test_the_render_context_reaches_code_that_asks_for_it(tool, bench):
    class Names(dict):
        def __getitem__(self, key):
            if key == "broken":
                msg = "cannot"
                raise TemplateError(msg)
            return super().__getitem__(key)

    names = Names(
        x=5,
        keychain={"k": "v"},
        broken=1,
        loop_index=3,
        iter={"item": "a", "_index": 3, "index": 3},
    )
    context = bench.context(names=names)
    code = "result = [context['x'], item, loop_index, sorted(context)]"
    back = (await tool.run({"code": code}, context)).data
    assert back == [5, "a", 3, ["execution_id", "iter", "loop_index", "x"]]
    main = {"code": "def main(x):\n    return x"}
    assert (await tool.run(main, context)).data == 5
    for code in (
        "result = idempotency_key",
        "def main(idempotency_key):\n    return idempotency_key",
    ):
        back = (await tool.run({"code": code}, context)).data
        assert back == context.idempotency_key


@pytest.mark.asyncio
async def test_every_way_to_give_code(tool, bench, tmp_path):
    (tmp_path / "job.py").write_text("result = 'file'")
    encoded = base64.b64encode(b"result = 'b64'").decode()
    for config, expected in (
        ({"code_b64": encoded}, "b64"),
        ({"script": {"source": {"type": "inline", "code": "result = 'inline'"}}}, "inline"),
        ({"script": {"uri": "job.py", "source": {"type": "file"}}}, "file"),
        ({"script": "result = 'text'"}, "text"),
    ):
        assert (await tool.run(config, bench.context())).data == expected


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "needs code"),
        ({"code": "  "}, "needs code"),
        ({"code_b64": "/w=="}, "code_b64"),
        ({"script": {"uri": "gs://b/x.py", "source": {"type": "gcs"}}}, "need the package gcsfs"),
        ({"script": {"uri": "s3x://b/x.py", "source": {"type": "s3"}}}, "must start with s3://"),
        ({"script": {"uri": "file:///x.py", "source": {"type": "object"}}}, "such as s3://"),
        ({"script": {"uri": "odd://b/x.py", "source": {"type": "object"}}}, "no driver for odd://"),
        ({"script": {"source": {"type": "ftp"}}}, "'ftp' is not known: use one of file, gcs, http"),
        ({"script": {"source": {"type": "http"}}}, "needs `endpoint`"),
        ({"script": {"source": "s3"}}, "must be a mapping"),
        ({"script": {"uri": "../up.py", "source": {"type": "file"}}}, "below the script folder"),
        ({"script": {"uri": "/etc/hosts", "source": {"type": "file"}}}, "below the script folder"),
        ({"script": {"uri": "none.py", "source": {"type": "file"}}}, "cannot be read"),
        ({"script": {"source": {"type": "inline"}}}, "needs `code`"),
        ({"code": "result = 1", "input": [1]}, "must be a mapping"),
    ],
)
async def test_what_cannot_be_run_is_said_clearly(tool, bench, config, said):
    with pytest.raises(ToolError, match=said):
        await tool.run(config, bench.context())


@pytest.mark.asyncio
async def test_files_are_refused_without_a_folder(bench):
    tool = PythonTool(processes=1, base_env={})
    with pytest.raises(ToolError, match="no script folder"):
        await tool.run({"script": {"uri": "a.py", "source": {"type": "file"}}}, bench.context())
    await tool.close()
