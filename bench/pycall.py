"""What does a small call of user Python cost, over a bare function call through a pipe?

User code runs in a process of its own so that whatever it does hurts its own attempt only. The
floor of that is a warm process which reads a request from a pipe, calls a function it knows and
writes the answer: the same JSON, the same interpreter, no rules. Above it the pool pays for the
event loop on our side, and the child for compiling (once), a fresh namespace and putting the
process back as it was. Both are measured in turns, so that the ratio holds on a busy machine.

Expectation: a bare call takes 30 to 60 µs. Ours takes three to eight times that, a third of a
millisecond: about a millisecond at worst. A fresh process per call takes 40 to 80 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop

from bench._report import finish, median, say, show, spread, versions
from noetl_ray.errors import NotFoundError
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.python import PythonTool

if TYPE_CHECKING:
    from noetl_ray.credentials.port import Credential

CALLS = 500
REPEATS = 7
COLD_CALLS = 5
CODE = "result = {'total': sum(values), 'name': name.upper()}"
INPUT = {"values": list(range(50)), "name": "small"}
EXPECTATION = {"ratio": "3 to 8", "call_ms": "below 1"}

_BARE = """
import json, struct, sys
def work(values, name):
    return {"total": sum(values), "name": name.upper()}
read, write = sys.stdin.buffer, sys.stdout.buffer
while head := read.read(8):
    (size,) = struct.unpack(">Q", head)
    reply = json.dumps(work(**json.loads(read.read(size)))).encode()
    write.write(struct.pack(">Q", len(reply)) + reply)
    write.flush()
"""


class Bare:
    """A warm process that knows one function, asked over pipes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self) -> Any:
        """One exchange."""
        ask, answer = self._process.stdin, self._process.stdout
        assert ask is not None
        assert answer is not None
        request = json.dumps(INPUT).encode()
        ask.write(struct.pack(">Q", len(request)) + request)
        ask.flush()
        (size,) = struct.unpack(">Q", answer.read(8))
        return json.loads(answer.read(size))

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=10)


def context() -> ToolContext:
    """Where the bench's calls run: nowhere in particular."""

    async def credential(name: str) -> Credential:
        raise NotFoundError(name)

    return ToolContext(
        execution_id=1,
        step="bench",
        task="call",
        attempt=1,
        idempotency_key="bench",
        timeout_s=None,
        credential=credential,
        log=lambda _stream, _line: None,
    )


async def ours_us(tool: PythonTool, calls: int) -> float:
    """Microseconds per call through the tool."""
    config, where = {"code": CODE, "input": INPUT}, context()
    began = time.perf_counter()
    for _ in range(calls):
        await tool.run(config, where)
    return (time.perf_counter() - began) / calls * 1e6


def bare_us(bare: Bare, calls: int) -> float:
    """Microseconds per bare exchange."""
    began = time.perf_counter()
    for _ in range(calls):
        bare.call()
    return (time.perf_counter() - began) / calls * 1e6


async def cold_ms() -> float:
    """Milliseconds of a first call, its process included."""
    tool = PythonTool(processes=1, base_env={})
    try:
        return await ours_us(tool, 1) / 1e3
    finally:
        await tool.close()


async def measure(calls: int, repeats: int) -> dict[str, Any]:
    """Both in turns, then fresh processes."""
    tool, bare = PythonTool(processes=1, base_env={}), Bare()
    try:
        answer = await tool.run({"code": CODE, "input": INPUT}, context())
        if answer.data != bare.call():
            msg = "the two do not do the same work"
            raise RuntimeError(msg)
        turns = [(await ours_us(tool, calls), bare_us(bare, calls)) for _ in range(repeats)]
    finally:
        await tool.close()
        bare.close()
    cold = [await cold_ms() for _ in range(COLD_CALLS)]
    ours, floor = [turn[0] for turn in turns], [turn[1] for turn in turns]
    ratios = [one / other for one, other in turns]
    rows = [
        ("a call of user Python, µs", f"{median(ours):.0f}", spread(ours)),
        ("a bare call through a pipe, µs", f"{median(floor):.0f}", spread(floor)),
        ("ratio", f"{median(ratios):.2f}", f"expected {EXPECTATION['ratio']}"),
        ("a call with a fresh process, ms", f"{median(cold):.1f}", spread(cold)),
    ]
    show("A small call of user Python", rows, ("measure", "median", "spread"))
    return {
        "call_us": median(ours),
        "bare_us": median(floor),
        "ratio": median(ratios),
        "fresh_process_ms": median(cold),
        "calls": calls,
        "repeats": repeats,
        "expectation": EXPECTATION,
        "versions": versions(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.pycall", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append the result to bench/results",
    )
    wanted = parser.parse_args()
    say(f"{wanted.repeats} turns of {wanted.calls} calls each")
    loop = uvloop.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(measure(wanted.calls, wanted.repeats))
    finish("pycall", result, keep=wanted.keep)


if __name__ == "__main__":
    main()
