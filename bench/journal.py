"""How long a tail does an append need: throughput against the bound of the journal?

``event_store.tail_max_events`` bounds what a process has sent and not seen acknowledged. Too short
a tail leaves the broker idle between answers; a longer one than it can use only grows what a killed
process leaves in doubt, and the time an append stands in the queue. All bounds are measured in
turns in one run, so that a busy machine slows all of them; answers are shares of the best.

Expectation: a broker on the same machine answers in about 0.3 ms and does some ten thousand
appends a second, so a few dozen records under way keep it busy: about 128 events for records of 3.
Large records need a longer tail for as many under way; above that only latency grows.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import uvloop

from bench._bare import BareSet
from bench._report import finish, median, say, show, spread, versions
from noetl_ray.clock import SystemClock
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.journal import MAX_EVENTS, Journal

BOUNDS = (8, 64, 128, 256, 512, 1_024, 2_048, 4_096)
EVENTS = 6_000
"""Of one round, whatever the size of its records."""
EVENTS_PER_RECORD = 3
REPEATS = 15

EXPECTATION = {"share_of_best_at_default": "at least 0.95"}


async def round_of(bare: BareSet, bound: int, events: int) -> tuple[float, float]:
    """Appends per second of many producers at once, and milliseconds from send to answer."""
    log = bare.log
    log.journal = Journal(SystemClock(), max_events=bound)
    mint = bare.submit.mint
    producers = EVENTS // events
    made = [
        (execution_id, sample_record(mint(), events=events, execution_id=execution_id))
        for execution_id in (mint() for _ in range(producers))
    ]
    began = time.perf_counter()
    appends = asyncio.gather(
        *(log.append(sample_subject(one), record, expected_version=0) for one, record in made)
    )
    ages: list[float] = []
    while not appends.done():
        await asyncio.sleep(0.002)
        ages.append(log.journal.gauge().oldest_s * 1000)
    await appends
    return producers / (time.perf_counter() - began), median(ages)


async def measure(repeats: int, events: int) -> dict[int, list[tuple[float, float]]]:
    """Rates and ages by bound; the first round of each only warms up."""
    seen: dict[int, list[tuple[float, float]]] = {bound: [] for bound in BOUNDS}
    async with BareSet("process") as bare:
        for turn in range(repeats + 1):
            # Every turn begins with another, so that none is always behind the same one.
            start = turn % len(BOUNDS)
            for bound in BOUNDS[start:] + BOUNDS[:start]:
                rate, age = await round_of(bare, bound, events)
                if turn:
                    seen[bound].append((rate, age))
                say(f"{bound} events: {rate:.0f} appends/s, oldest {age:.1f} ms")
    return seen


def summarize(seen: dict[int, list[tuple[float, float]]]) -> dict[str, Any]:
    """Medians by bound, and how much of the best rate the default reaches."""
    rates = {bound: median([rate for rate, _ in found]) for bound, found in seen.items()}
    best = max(rates.values())
    return {
        "appends_per_s": {str(bound): rate for bound, rate in rates.items()},
        "share_of_best": {str(bound): round(rate / best, 3) for bound, rate in rates.items()},
        "oldest_ms": {
            str(bound): median([age for _, age in found]) for bound, found in seen.items()
        },
        "default": MAX_EVENTS,
        "share_of_best_at_default": round(rates[MAX_EVENTS] / best, 3),
        "expectation": EXPECTATION,
        "versions": versions(),
    }


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.journal")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--events", type=int, default=EVENTS_PER_RECORD, help="of one record")
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append to bench/results",
    )
    args = parser.parse_args()
    seen = uvloop.run(measure(args.repeats, args.events))
    result = {"events_per_record": args.events, **summarize(seen)}
    rows = [
        (
            f"tail of {bound} events",
            f"{result['appends_per_s'][str(bound)]:.0f} appends/s",
            f"{result['share_of_best'][str(bound)]:.2f} of the best, "
            f"oldest {result['oldest_ms'][str(bound)]:.1f} ms, "
            + spread([rate for rate, _ in found]),
        )
        for bound, found in seen.items()
    ]
    show(f"journal, medians of {args.repeats}", rows, ("", "median", "share, age, range"))
    finish("journal", result, keep=args.keep)


if __name__ == "__main__":
    main()
