"""What does the runtime add, over a bare log and over plain Ray?

Three questions in one run, on one local set, each measure interleaved with its reference so that
noise hits both; medians are given.

1. Milliseconds per step of a 200-step chain of no-ops, submitted and awaited through the HTTP
   client, against the floor: two acknowledged JetStream hops between two bare processes.
   Expectation: a step is the same two acknowledged appends (the decision, the completion), one
   delivery instead of two because conductor and worker share a process, plus about 0.5 ms of
   Python for fold, decide, seal and encode: at most 1.5 times the floor.
2. Executions per second of 500 executions of three steps, submitted in one batch and awaited
   through the client (so the read model has them), against three chained no-op Ray tasks each,
   with nothing durable. Expectation: per execution 1 submit, 4 decisions and 3 completions are
   8 appends and about 19 events; at 100 to 150 microseconds of Python per append on each side of
   two cores that is 500 to 800 executions per second; Ray pays about 0.5 ms per task on such a
   machine, 600 to 700 executions per second. Expected ratio: about 1.
3. Memory of the idle set, PSS by process. Expectation: two hosts of 100 MB, Ray's own processes
   with the dashboard 500 MB, Postgres 40 MB, NATS 25 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop

from bench._child import Child
from bench._floor import Floor
from bench._local import chain, local_set, ray_environment
from bench._processes import cpu_s, pss_mb, used
from bench._report import finish, median, say, show, spread, versions
from noetl_ray.client import Client, Execution, Request, Started
from noetl_ray.clock import parse_iso_utc
from noetl_ray.config.environ import environ

if TYPE_CHECKING:
    from actors.local import LocalSet

CHAIN_STEPS = 200
EXECUTIONS = 500
REPEATS = 5
SETTLE_S = 3.0
WAIT_S = 120.0

EXPECTATION = {
    "chain_ratio": "at most 2, aimed at 1.5",
    "floor_ms": "1.5 on two cores",
    "executions_ratio": "at least 1",
    "idle_memory_mb": "about 750 with Ray's dashboard",
}


@dataclass(slots=True)
class Samples:
    """What was seen, one entry per repetition."""

    chain_ms: list[float] = field(default_factory=list)
    chain_inside_ms: list[float] = field(default_factory=list)
    floor_ms: list[float] = field(default_factory=list)
    executions_s: list[float] = field(default_factory=list)
    executions_inside_s: list[float] = field(default_factory=list)
    submit_s: list[float] = field(default_factory=list)
    ray_s: list[float] = field(default_factory=list)
    cpu: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: {"executions": [], "ray_tasks": []}
    )


async def measure(running: LocalSet, repeats: int) -> Samples:
    """All repetitions, after one round that only warms up."""
    samples = Samples()
    async with Client(running.gateway_url, token=running.token or None, timeout_s=WAIT_S) as client:
        await client.register(chain("bench/chain", CHAIN_STEPS))
        await client.register(chain("bench/three", 3))
        with (
            Floor(running.nats_url, running.nats_token, environ()) as floor,
            Child(
                "bench._ray_tasks", running.ray_address, environment=ray_environment(running)
            ) as ray,
        ):
            for repeat in range(repeats + 1):
                seen = Samples() if repeat == 0 else samples
                seen.floor_ms.append(await asyncio.to_thread(floor.ms, CHAIN_STEPS))
                await _chain(client, seen)
                before = cpu_s(running, ray.pid)
                seen.ray_s.append(float(await asyncio.to_thread(ray.ask, EXECUTIONS)))
                seen.cpu["ray_tasks"].append(used(before, cpu_s(running, ray.pid)))
                before = cpu_s(running, os.getpid())
                await _executions(client, seen)
                seen.cpu["executions"].append(used(before, cpu_s(running, os.getpid())))
                if repeat:
                    say(_progress(seen))
    return samples


async def _chain(client: Client, seen: Samples) -> None:
    began = time.perf_counter()
    started = await client.submit("bench/chain")
    ended = await client.wait(started.execution_id, timeout_s=WAIT_S)
    seen.chain_ms.append((time.perf_counter() - began) / CHAIN_STEPS * 1000)
    _check(ended)
    seen.chain_inside_ms.append((_ms(ended.ended_at) - _ms(ended.started_at)) / CHAIN_STEPS)


async def _executions(client: Client, seen: Samples) -> None:
    began = time.perf_counter()
    answers = await client.submit_many([Request(path="bench/three")] * EXECUTIONS)
    seen.submit_s.append(time.perf_counter() - began)
    ids = [answer.execution_id for answer in answers if isinstance(answer, Started)]
    ended = await client.wait_many(ids, timeout_s=WAIT_S)
    seen.executions_s.append(time.perf_counter() - began)
    if len(ended) != EXECUTIONS:
        msg = f"{len(ended)} of {EXECUTIONS} executions ended: {answers[:1]}"
        raise RuntimeError(msg)
    for execution in ended.values():
        _check(execution)
    first = min(_ms(execution.started_at) for execution in ended.values())
    last = max(_ms(execution.ended_at) for execution in ended.values())
    seen.executions_inside_s.append((last - first) / 1000)


def _check(execution: Execution) -> None:
    if not execution.succeeded:
        msg = f"{execution.execution_id} ended as {execution.status}: {execution.error}"
        raise RuntimeError(msg)


def _ms(text: str | None) -> int:
    assert text is not None
    return parse_iso_utc(text)


def _progress(seen: Samples) -> str:
    return (
        f"chain {seen.chain_ms[-1]:.2f} ms/step (inside {seen.chain_inside_ms[-1]:.2f}, "
        f"floor {seen.floor_ms[-1]:.2f}); executions {EXECUTIONS / seen.executions_s[-1]:.0f}/s "
        f"(inside {EXECUTIONS / seen.executions_inside_s[-1]:.0f}, "
        f"submit {seen.submit_s[-1]:.2f} s, Ray {EXECUTIONS / seen.ray_s[-1]:.0f})"
    )


def summarize(samples: Samples, memory: dict[str, float]) -> dict[str, Any]:
    """The numbers of the last line."""
    chain_ms, floor_ms = median(samples.chain_ms), median(samples.floor_ms)
    rate = [EXECUTIONS / seconds for seconds in samples.executions_s]
    inside = [EXECUTIONS / seconds for seconds in samples.executions_inside_s]
    ray_rate = [EXECUTIONS / seconds for seconds in samples.ray_s]
    return {
        "chain_ms_per_step": chain_ms,
        "floor_ms": floor_ms,
        "chain_ratio": round(chain_ms / floor_ms, 2),
        "chain_inside_ms_per_step": median(samples.chain_inside_ms),
        "executions_per_s": median(rate),
        "ray_tasks_executions_per_s": median(ray_rate),
        "executions_ratio": round(median(rate) / median(ray_rate), 2),
        "executions_inside_per_s": median(inside),
        "submit_s": median(samples.submit_s),
        "cpu_ms_per_execution": {what: _cpu_ms(seen) for what, seen in samples.cpu.items()},
        "idle_memory_mb": {"total": round(sum(memory.values()), 1), **memory},
        "repeats": len(samples.chain_ms),
        "expectation": EXPECTATION,
        "versions": versions(),
    }


def _cpu_ms(seen: list[dict[str, float]]) -> dict[str, float]:
    """Milliseconds of CPU per execution: what noise of other programs hardly changes."""
    labels = sorted({label for each in seen for label in each})
    found = {
        label: median([each.get(label, 0.0) / EXECUTIONS * 1000 for each in seen])
        for label in labels
    }
    total = median([sum(each.values()) / EXECUTIONS * 1000 for each in seen])
    return {"total": total, **{label: ms for label, ms in found.items() if ms >= 0.01}}


def _table(samples: Samples, result: dict[str, Any]) -> None:
    rate = [EXECUTIONS / seconds for seconds in samples.executions_s]
    ray_rate = [EXECUTIONS / seconds for seconds in samples.ray_s]
    memory = result["idle_memory_mb"]
    show(
        f"overhead, medians of {result['repeats']}",
        [
            ("chain, ms per step", str(result["chain_ms_per_step"]), spread(samples.chain_ms)),
            ("  first to last event", str(result["chain_inside_ms_per_step"]), ""),
            ("floor, ms per two acked hops", str(result["floor_ms"]), spread(samples.floor_ms)),
            ("  ratio", str(result["chain_ratio"]), EXPECTATION["chain_ratio"]),
            ("executions per second", str(result["executions_per_s"]), spread(rate)),
            ("  first to last event", str(result["executions_inside_per_s"]), ""),
            ("plain Ray tasks", str(result["ray_tasks_executions_per_s"]), spread(ray_rate)),
            ("  ratio", str(result["executions_ratio"]), EXPECTATION["executions_ratio"]),
            *(
                (f"CPU ms per execution, {what}", str(cpu["total"]), _parts(cpu))
                for what, cpu in result["cpu_ms_per_execution"].items()
            ),
            ("idle set, MB", str(memory["total"]), EXPECTATION["idle_memory_mb"]),
            *((f"  {name}", str(mb), "") for name, mb in memory.items() if name != "total"),
        ],
        ("", "median", "range or expectation"),
    )


def _parts(numbers: dict[str, float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in numbers.items() if name != "total")


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append to bench/results",
    )
    args = parser.parse_args()
    with local_set() as running:
        time.sleep(SETTLE_S)
        memory = pss_mb(running)
        samples = uvloop.run(measure(running, args.repeats))
    result = summarize(samples, memory)
    _table(samples, result)
    finish("overhead", result, keep=args.keep)


if __name__ == "__main__":
    main()
