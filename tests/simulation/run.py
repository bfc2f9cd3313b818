"""Many seeds on all cores: ``python -m tests.simulation.run --seeds N [--from F]``.

The last line is ``seeds=N violations=V seeds_per_minute=S``. A seed that fails is printed with what
went wrong and with the one command that runs it again, exactly as it was.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
import traceback

from tests.simulation.scenario import run_seed

PROGRESS_S = 10.0
SHOWN_MAX = 5


def one(seed: int) -> tuple[int, list[str]]:
    """A seed and what was wrong with it; a run that breaks is wrong as well."""
    try:
        return seed, run_seed(seed)
    except Exception:
        return seed, [traceback.format_exc()]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many (default: 2000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(argv)
    seeds = range(asked.first, asked.first + asked.seeds)
    began = told = time.monotonic()
    done = violations = 0
    with multiprocessing.get_context("spawn").Pool(asked.processes, initializer=_prepare) as pool:
        for seed, wrong in pool.imap_unordered(one, seeds, chunksize=4):
            done += 1
            if wrong:
                violations += 1
                shown = "\n  ".join(wrong[:SHOWN_MAX])
                _say(f"seed {seed}:\n  {shown}\nagain: make simulate SEEDS=1 FROM={seed}")
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                _say(f"{done} of {asked.seeds} seeds, {violations} with violations")
    per_minute = round(done * 60 / max(time.monotonic() - began, 1e-9))
    _say(f"seeds={done} violations={violations} seeds_per_minute={per_minute}")
    return 1 if violations else 0


def _prepare() -> None:
    # What is made to happen is no news; and nothing loaded by now is ever garbage.
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
