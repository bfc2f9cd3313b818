"""What does an ack that survives the host cost, over one that survives the process?

``event_store.durability`` is ``process`` by default: a single NATS syncs its files now and then, so
an acknowledged append survives a killed server, not a lost host. ``disk`` syncs before each ack.
Both servers run side by side and every measure is taken from one, then from the other; the answers
are ratios, because a disk's own time says nothing about ours.

Expectation: one sync costs 0.2 to 1 ms on a solid-state disk against 0.3 ms for an append without.
One append at a time then falls to a third or a half; 64 at once to a fifth, because one stream
syncs each message by itself; a step, which is two appends in a row, takes twice as long.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from typing import Any, Literal

import uvloop

from bench._bare import BareSet
from bench._local import chain
from bench._report import finish, median, say, show, spread, versions
from noetl_ray.testing.samples import sample_record, sample_subject

LEVELS: tuple[Literal["process", "disk"], ...] = ("process", "disk")
APPENDS = 400
AT_ONCE = 64
EVENTS_PER_RECORD = 3
STEPS = 100
REPEATS = 5

EXPECTATION = {
    "appends_one_at_a_time_ratio": "2 to 3",
    "appends_64_at_once_ratio": "about 5",
    "ms_per_step_ratio": "about 2",
}
MEASURES = {
    "appends_one_at_a_time": "appends/s, one at a time",
    "appends_64_at_once": f"appends/s, {AT_ONCE} at once",
    "ms_per_step": f"ms per step, chain of {STEPS}",
}


async def appends_per_s(bare: BareSet, at_once: int) -> float:
    """Acknowledged appends per second, each on a subject of its own with an expected version."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with gate:
            execution_id = bare.submit.mint()
            record = sample_record(
                bare.submit.mint(), events=EVENTS_PER_RECORD, execution_id=execution_id
            )
            await bare.log.append(sample_subject(execution_id), record, expected_version=0)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(APPENDS)))
    return APPENDS / (time.perf_counter() - began)


async def measure(repeats: int) -> dict[str, dict[str, list[float]]]:
    """Samples by measure and level; the first round of each only warms up."""
    seen: dict[str, dict[str, list[float]]] = {
        name: {level: [] for level in LEVELS} for name in MEASURES
    }
    source = chain("bench/durability", STEPS)
    async with contextlib.AsyncExitStack() as stack:
        sets = [await stack.enter_async_context(BareSet(level)) for level in LEVELS]
        for _ in range(repeats + 1):
            for bare in sets:
                alone = await appends_per_s(bare, 1)
                crowd = await appends_per_s(bare, AT_ONCE)
                seen["appends_one_at_a_time"][bare.durability].append(alone)
                seen["appends_64_at_once"][bare.durability].append(crowd)
                say(f"{bare.durability}: {alone:.0f} and {crowd:.0f} appends/s")
        for bare in sets:
            await bare.begin()
        for _ in range(repeats + 1):
            for bare in sets:
                ms = await bare.run_s(source) / STEPS * 1000
                seen["ms_per_step"][bare.durability].append(ms)
                say(f"{bare.durability}: {ms:.2f} ms per step")
    return {
        name: {level: values[1:] for level, values in by_level.items()}
        for name, by_level in seen.items()
    }


def summarize(seen: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Medians, and how many times ``disk`` is dearer."""
    result: dict[str, Any] = {}
    for name, by_level in seen.items():
        process, disk = median(by_level["process"]), median(by_level["disk"])
        dearer = disk / process if name == "ms_per_step" else process / disk
        result |= {
            f"{name}_process": process,
            f"{name}_disk": disk,
            f"{name}_ratio": round(dearer, 2),
        }
    return {**result, "expectation": EXPECTATION, "versions": versions()}


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.durability")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append to bench/results",
    )
    args = parser.parse_args()
    seen = uvloop.run(measure(args.repeats))
    result = summarize(seen)
    rows: list[tuple[str, str, str]] = []
    for name, title in MEASURES.items():
        for level in LEVELS:
            value = str(result[f"{name}_{level}"])
            rows.append((f"{title}, {level}", value, spread(seen[name][level])))
        ratio = f"{name}_ratio"
        rows.append(("  disk is dearer by", str(result[ratio]), f"expected {EXPECTATION[ratio]}"))
    show(f"durability, medians of {args.repeats}", rows, ("", "median", "range"))
    finish("durability", result, keep=args.keep)


if __name__ == "__main__":
    main()
