"""The pool: bounds, order, and what happens when either side goes away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from noetl_ray.tools import python_process
from noetl_ray.tools.python_pool import PythonPool
from noetl_ray.tools.python_process import ProcessEndedError, ReplyTooLargeError


def request(code: str, **given) -> bytes:
    body = {"code": code, "input": given, "names": {}, "loop": {}, "execution_id": "1"}
    return msgspec.json.encode(body)


def silent(stream: str, line: str) -> None:
    """Nobody listens."""


async def ask(pool: PythonPool, code: str, timeout_s: float | None = 20, **given):
    reply = await pool.call(request(code, **given), silent, timeout_s, lambda _: True)
    return msgspec.json.decode(reply)["result"]


@pytest_asyncio.fixture
async def pool():
    pool = PythonPool(size=2, env={"LANG": "C.UTF-8"})
    yield pool
    await pool.close()


@pytest.mark.asyncio
async def test_no_more_processes_than_its_size(pool):
    code = "import time; time.sleep(0.02); result = os.getpid()"
    pids = await asyncio.gather(*(ask(pool, code) for _ in range(8)))
    assert len(set(pids)) == 2
    assert pool.processes == 2


@pytest.mark.asyncio
async def test_waiters_are_served_in_order():
    pool = PythonPool(size=1, env={})
    order = []

    async def one(number):
        await ask(pool, "result = 1")
        order.append(number)

    await asyncio.gather(*(one(number) for number in range(10)))
    assert order == list(range(10))
    await pool.close()


@pytest.mark.asyncio
async def test_warming_starts_all_and_a_worn_process_is_replaced():
    pool = PythonPool(size=2, env={}, calls_max=2)
    pool.warm()
    assert pool.processes == 2
    pids = [await ask(pool, "result = os.getpid()") for _ in range(4)]
    assert pids[0] == pids[1]
    assert pids[2] != pids[1]
    await pool.close()
    assert pool.processes == 0


@pytest.mark.asyncio
async def test_waiting_in_line_does_not_use_up_the_time():
    pool = PythonPool(size=1, env={})
    slow = asyncio.create_task(ask(pool, "import time; time.sleep(0.5); result = 1"))
    await asyncio.sleep(0)
    assert await ask(pool, "result = 2", timeout_s=0.4) == 2
    assert await slow == 1
    await pool.close()


@pytest.mark.asyncio
async def test_a_cancelled_waiter_takes_no_slot_along():
    pool = PythonPool(size=1, env={})
    first = asyncio.create_task(ask(pool, "import time; time.sleep(0.1); result = 1"))
    await asyncio.sleep(0)
    waiter = asyncio.create_task(ask(pool, "result = 2"))
    await asyncio.sleep(0)
    waiter.cancel()
    assert await first == 1
    assert await ask(pool, "result = 3") == 3
    await pool.close()


@pytest.mark.asyncio
async def test_closing_ends_running_calls(pool):
    call = asyncio.create_task(ask(pool, "import time; time.sleep(30)"))
    await asyncio.sleep(0.05)
    await pool.close()
    with pytest.raises(ProcessEndedError):
        await call
    with pytest.raises(ProcessEndedError):
        await ask(pool, "result = 1")


@pytest.mark.asyncio
async def test_a_reply_beyond_the_bound_is_refused(pool, monkeypatch):
    monkeypatch.setattr(python_process, "REPLY_BYTES_MAX", 1000)
    with pytest.raises(ReplyTooLargeError):
        await ask(pool, "result = 'x' * 2000")
    assert await ask(pool, "result = 1") == 1


def test_an_empty_pool_is_refused():
    with pytest.raises(ValueError, match="cannot run anything"):
        PythonPool(size=0, env={})


@pytest.mark.parametrize("busy", ["time.sleep(60)", "sum(range(10**12))"], ids=["waits", "locks"])
def test_processes_die_with_their_parent(repository, busy):
    """A parent that is killed takes along its busy child, and what user code started there."""
    script = textwrap.dedent(
        """
        import asyncio, os, signal
        from tests.unit.noetl_ray.tools import test_python_pool as t

        async def main():
            pool = t.PythonPool(size=2, env={"PATH": "/bin:/usr/bin"})
            pool.warm()
            def log(stream, line):
                print(line, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            code = "import subprocess, time\\n"
            code += "print(os.getpid(), subprocess.Popen(['sleep', '60']).pid)\\n"
            code += "BUSY"
            await pool.call(t.request(code), log, 20, lambda _: True)

        asyncio.run(main())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script.replace("BUSY", busy)],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr

    async def wait() -> None:
        async with asyncio.timeout(5):
            while any(_runs(pid) for pid in pids):
                await asyncio.sleep(0.005)

    asyncio.run(wait())


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


@pytest.mark.asyncio
async def test_a_call_moves_on_from_processes_that_die_before_it_starts(pool):
    pool.warm()
    for process in pool._idle:
        os.kill(process.pid, 9)  # no waiting: the pool may still believe in them
    assert await ask(pool, "result = 1") == 1


@pytest.mark.asyncio
async def test_processes_that_never_start_are_given_up(pool, monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(9)")
    monkeypatch.setattr(python_process, "CHILD_SCRIPT", broken)
    with pytest.raises(ProcessEndedError) as caught:
        await ask(pool, "result = 1")
    assert (caught.value.code, caught.value.started) == (9, False)


@pytest.mark.asyncio
async def test_each_process_leads_its_own_session(pool):
    pid, session = await ask(pool, "result = [os.getpid(), os.getsid(0)]")
    assert pid == session != os.getsid(0)
