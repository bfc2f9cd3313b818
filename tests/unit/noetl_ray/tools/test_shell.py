from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools import shell
from noetl_ray.tools.shell import ShellTool

ENV = {"PATH": os.defpath, "SECRET": "not for commands"}


@pytest.fixture
def run(bench):
    async def call(context=None, **config):
        tool = ShellTool(base_env=ENV)
        return (await tool.run(config, context or bench.context())).data

    return call


async def gone(pid: int) -> bool:
    for _ in range(200):
        with contextlib.suppress(FileNotFoundError):
            # A zombie that waits for its reaper is gone too.
            if " Z " not in Path(f"/proc/{pid}/stat").read_text():
                await asyncio.sleep(0.01)
                continue
        return True
    return False


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["cmds", "cmd", "command", "commands"])
async def test_the_result(run, bench, key):
    assert await run(**{key: "echo 'a  b' c"}) == {
        "stdout": "a  b c\n",
        "stderr": "",
        "exit_code": 0,
        "text": "a  b c",
    }
    assert bench.lines == [("stdout", "a  b c")]


@pytest.mark.asyncio
async def test_commands_run_in_order_and_add_up(run, bench):
    data = await run(cmds=["echo one", ["printf", "%s", "t w o"], ["sh", "-c", "echo x >&2"]])
    assert (data["stdout"], data["stderr"]) == ("one\nt w o", "x\n")
    assert bench.lines == [("stdout", "one"), ("stdout", "t w o"), ("stderr", "x")]


@pytest.mark.asyncio
async def test_marks_of_a_shell_are_plain_words(run, bench, tmp_path):
    target = tmp_path / "made"
    data = await run(cmds=f"echo a ; touch {target} $(touch {target}) `touch {target}` $HOME")
    assert data["text"] == (f"a ; touch {target} $(touch {target}) `touch {target}` $HOME")
    assert not target.exists()
    assert ("stderr", "';' is a plain word here; `shell: true` runs a shell") in bench.lines


@pytest.mark.asyncio
async def test_words_of_a_list_stay_whole(run):
    data = await run(cmds=[["echo", "a'; b", 1, True, 1.5]])
    assert data["text"] == "a'; b 1 true 1.5"


@pytest.mark.asyncio
async def test_a_shell_when_the_task_asks_for_it(run):
    data = await run(cmds="for i in 1 2; do\n  echo $i$X\ndone | sort -r", shell=True, env={"X": 7})
    assert data["stdout"] == "27\n17\n"


@pytest.mark.asyncio
@pytest.mark.parametrize("value", ["true", 1, "false"])
async def test_only_true_itself_asks_for_a_shell(run, value):
    assert (await run(cmds="echo a;b", shell=value))["text"] == "a;b"


@pytest.mark.asyncio
async def test_the_environment_is_an_allowlist_and_what_the_task_gives(run):
    data = await run(cmds="env", env={"A": "b c", "NONE": None, "YES": True})
    names = {line.partition("=")[0] for line in data["stdout"].splitlines()}
    assert names - {"PWD", "SHLVL", "_"} == {"PATH", "LANG", "A", "YES"}
    assert "A=b c\n" in data["stdout"]


@pytest.mark.asyncio
async def test_the_first_failure_stops_and_keeps_what_was_written(run):
    with pytest.raises(ToolError) as caught:
        await run(cmds=["echo one", ["sh", "-c", "echo two; echo bad >&2; exit 3"], "echo three"])
    error = caught.value
    assert error.message == "command 2 of 3: 'sh' ended with exit code 3: bad"
    assert (error.kind, error.retryable, error.details) == ("unknown", False, {"exit_code": 3})
    assert error.data == {
        "stdout": "one\ntwo\n",
        "stderr": "bad\n",
        "exit_code": 3,
        "text": "one\ntwo",
    }


@pytest.mark.asyncio
async def test_an_end_by_signal_is_named(run):
    with pytest.raises(ToolError, match="ended by signal SIGTERM") as caught:
        await run(cmds=[["sh", "-c", "kill -TERM $$"]])
    assert caught.value.details == {"exit_code": -15, "signal": "SIGTERM"}


@pytest.mark.asyncio
async def test_a_timeout_kills_the_whole_group(run, bench):
    with pytest.raises(ToolError) as caught:
        await run(cmds="sleep 60 & echo $!; wait", shell=True, timeout=0.3)
    error = caught.value
    assert (error.kind, error.retryable) == ("timeout", True)
    assert error.message == "the command ran longer than 0.3 s and was killed"
    assert await gone(int(error.data["text"]))


@pytest.mark.asyncio
async def test_cancelling_kills_the_whole_group(run, bench):
    task = asyncio.create_task(run(cmds="sleep 60 & echo $!; wait", shell=True))
    async with asyncio.timeout(5):
        while not bench.lines:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(int(bench.lines[0][1]))


@pytest.mark.asyncio
async def test_what_a_command_leaves_behind_ends_with_it(run):
    async with asyncio.timeout(5):
        data = await run(cmds="sleep 60 & echo $!", shell=True)
    assert await gone(int(data["text"]))


@pytest.mark.asyncio
async def test_much_output_is_cut_in_the_result(run, monkeypatch):
    monkeypatch.setattr(shell, "OUTPUT_BYTES_MAX", 1000)
    data = await run(cmds="head -c 300000 /dev/zero")
    assert len(data["stdout"]) == 1000
    assert data["truncated"] is True


@pytest.mark.asyncio
async def test_all_output_arrives_however_fast_the_end(run):
    data = await run(cmds=[["sh", "-c", "head -c 500000 /dev/zero | tr '\\0' x; printf end"]])
    assert len(data["stdout"]) == 500_003
    assert data["stdout"].endswith("end")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("config", "kind", "said"),
    [
        ({}, "schema", "needs `cmds`"),
        ({"cmds": []}, "schema", "needs `cmds`"),
        ({"cmds": "  "}, "schema", "is empty"),
        ({"cmds": [[]]}, "schema", "is empty"),
        ({"cmds": {"a": 1}}, "schema", "text or a list of words, not dict"),
        ({"cmds": [["a", {"b": 1}]]}, "schema", "text or a number, not dict"),
        ({"cmds": "echo 'a"}, "schema", "No closing quotation"),
        ({"cmds": "echo a\necho b"}, "schema", "needs `shell: true`"),
        ({"cmds": "echo a", "env": ["A"]}, "schema", "env must be a mapping"),
        ({"cmds": "echo a", "env": {"A=": 1}}, "schema", "name of an environment variable"),
        ({"cmds": [["echo", "a\0b"]]}, "schema", "cannot be started"),
        ({"cmds": "no-such-command x"}, "not_found", "no command 'no-such-command'"),
        ({"cmds": "echo a", "timeout": 0}, "schema", "above 0"),
    ],
)
async def test_what_is_refused(run, config, kind, said):
    with pytest.raises(ToolError, match=said) as caught:
        await run(**config)
    assert caught.value.kind == kind


@pytest.mark.asyncio
async def test_a_quoted_line_end_is_part_of_a_word(run):
    assert (await run(cmds="echo 'a\nb'"))["text"] == "a\nb"
    assert (await run(cmds="echo a \\\n b"))["text"].split() == ["a", "b"]
