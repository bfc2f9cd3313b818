"""What does an item of a parallel loop cost, and does memory grow with the number of items?

Two questions in one run, on one local set.

1. Items per second of a parallel loop over 5 000 no-op items, submitted and awaited through the
   HTTP client, against plain Ray tasks, one per item, nothing durable; in turns, medians.
   Expectation: the loop is 16 frames of 313 items, each three events and one object; an item is
   about 50 microseconds of Python in the worker, so 5 000 take about 0.35 s with start and end. Ray
   pays about 0.9 ms per task on two cores: 4.5 s. The ratio is then about 13; 10 is wanted.
2. Memory of the two hosts (conductor, worker, keeper; projector, materializer, gateway), as PSS,
   at its highest while a loop over 1 000, 10 000 and 100 000 items runs, a list that a step before
   made. Expectation: flat. Items and results lie in the tier; only the list that `in` renders is
   there once, while the stage opens: 100 000 small numbers are about 4 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop

from bench._child import Child
from bench._local import local_set, ray_environment
from bench._processes import pss_mb
from bench._report import finish, median, say, show, spread, versions
from noetl_ray.client import Client
from noetl_ray.clock import parse_iso_utc

if TYPE_CHECKING:
    from actors.local import LocalSet

ITEMS = 5_000
GROWTH = (1_000, 10_000, 100_000)
REPEATS = 5
WAIT_S = 300.0
SAMPLE_S = 0.2
BOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: bench/loop}
workload: {items: 10}
workflow:
  - step: start
    loop: {in: "{{ range(workload.items) | list }}", iterator: n, spec: {mode: parallel}}
    tool: {kind: noop}
"""
MADE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: bench/made}
workload: {items: 10}
workflow:
  - step: start
    tool:
      kind: python
      input: {items: "{{ workload.items }}"}
      code: "result = {'rows': list(range(items))}"
    next: each
  - step: each
    loop: {in: "{{ start.rows }}", iterator: n, spec: {mode: parallel}}
    tool: {kind: noop}
"""
EXPECTATION = {"ratio": "at least 10", "memory_growth": "flat: under 1.2"}


@dataclass(slots=True)
class Samples:
    """What was seen, one entry per repetition."""

    loop_s: list[float] = field(default_factory=list)
    inside_s: list[float] = field(default_factory=list)
    ray_s: list[float] = field(default_factory=list)
    memory_mb: dict[int, float] = field(default_factory=dict)
    """Of the hosts at their highest, by the number of items."""
    growth_s: dict[int, float] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)


async def measure(running: LocalSet, repeats: int) -> Samples:
    """All repetitions, after one round that only warms up."""
    samples = Samples()
    async with Client(running.gateway_url, token=running.token or None, timeout_s=WAIT_S) as client:
        await client.register(BOOK)
        await client.register(MADE)
        with Child(
            "bench._ray_loop", running.ray_address, environment=ray_environment(running)
        ) as ray:
            for repeat in range(repeats + 1):
                seen = Samples() if repeat == 0 else samples
                seen.ray_s.append(float(await asyncio.to_thread(ray.ask, ITEMS)))
                seconds, inside, _ = await _loop(client, "bench/loop", ITEMS)
                seen.loop_s.append(seconds)
                seen.inside_s.append(inside)
                if repeat:
                    say(
                        f"loop {ITEMS / seconds:.0f} items/s (inside {ITEMS / inside:.0f}), "
                        f"Ray {ITEMS / seen.ray_s[-1]:.0f}"
                    )
        for items in GROWTH:
            peak = _Peak(running)
            async with peak.watching():
                seconds, _, events = await _loop(client, "bench/made", items)
            samples.growth_s[items], samples.events[items] = seconds, events
            samples.memory_mb[items] = peak.mb
            say(f"{items} items: {samples.growth_s[items]:.2f} s, hosts {peak.mb:.0f} MB")
    return samples


async def _loop(client: Client, path: str, items: int) -> tuple[float, float, int]:
    """Seconds as the client sees them, from the first to the last event, and how many events."""
    began = time.perf_counter()
    started = await client.submit(path, workload={"items": items})
    ended = await client.wait(started.execution_id, timeout_s=WAIT_S)
    seconds = time.perf_counter() - began
    if not ended.succeeded:
        msg = f"{ended.execution_id} ended as {ended.status}: {ended.error}"
        raise RuntimeError(msg)
    assert ended.started_at is not None
    assert ended.ended_at is not None
    inside = (parse_iso_utc(ended.ended_at) - parse_iso_utc(ended.started_at)) / 1000
    return seconds, max(inside, 0.001), int(ended.event_count)


class _Peak:
    """The most memory the hosts had while something ran."""

    def __init__(self, running: LocalSet) -> None:
        self._running = running
        self.mb = 0.0

    @contextlib.asynccontextmanager
    async def watching(self) -> Any:
        task = asyncio.create_task(self._watch())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._look()

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(SAMPLE_S)

    async def _look(self) -> None:
        found = await asyncio.to_thread(pss_mb, self._running)
        self.mb = max(self.mb, found.get("hosts", 0.0))


def summarize(samples: Samples) -> dict[str, Any]:
    """The numbers of the last line."""
    rate = median([ITEMS / seconds for seconds in samples.loop_s])
    ray_rate = median([ITEMS / seconds for seconds in samples.ray_s])
    few, many = samples.memory_mb[GROWTH[0]], samples.memory_mb[GROWTH[-1]]
    return {
        "items": ITEMS,
        "items_per_s": rate,
        "items_inside_per_s": median([ITEMS / seconds for seconds in samples.inside_s]),
        "ray_tasks_per_s": ray_rate,
        "ratio": round(rate / ray_rate, 2),
        "hosts_memory_mb": {str(items): round(mb, 1) for items, mb in samples.memory_mb.items()},
        "memory_growth": round(many / few, 3),
        "growth_s": {str(items): round(s, 3) for items, s in samples.growth_s.items()},
        "events": {str(items): count for items, count in samples.events.items()},
        "repeats": len(samples.loop_s),
        "expectation": EXPECTATION,
        "versions": versions(),
    }


def _table(samples: Samples, result: dict[str, Any]) -> None:
    rate = [ITEMS / seconds for seconds in samples.loop_s]
    ray_rate = [ITEMS / seconds for seconds in samples.ray_s]
    show(
        f"loops of {ITEMS} items, medians of {result['repeats']}",
        [
            ("items per second", str(result["items_per_s"]), spread(rate)),
            ("  first to last event", str(result["items_inside_per_s"]), ""),
            ("plain Ray tasks", str(result["ray_tasks_per_s"]), spread(ray_rate)),
            ("  ratio", str(result["ratio"]), EXPECTATION["ratio"]),
            *(
                (
                    f"{items} items: hosts, MB",
                    f"{mb:.0f}",
                    f"{samples.growth_s[items]:.2f} s, {samples.events[items]} events",
                )
                for items, mb in samples.memory_mb.items()
            ),
            ("  growth", str(result["memory_growth"]), EXPECTATION["memory_growth"]),
        ],
        ("", "median", "range or expectation"),
    )


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.loops")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append to bench/results",
    )
    args = parser.parse_args()
    with local_set() as running:
        samples = uvloop.run(measure(running, args.repeats))
    result = summarize(samples)
    _table(samples, result)
    finish("loops", result, keep=args.keep)


if __name__ == "__main__":
    main()
