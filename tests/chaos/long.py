"""Chaos for as long as wanted: ``python -m tests.chaos.long [--minutes M] [--seed S]``.

Work with counted effects goes on all the time while a seed picks what happens to the set: any
host, NATS or Postgres is killed, a host is stopped for longer than its lease, a disk is full for a
while. At the end everything asked for must have completed, and the history is judged. The last
line is the verdict; the exit code says whether it is sound.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.faults import HOSTS, LEASE_MS, SERVERS, STORES, Fire, fire

BETWEEN_S = (1.0, 6.0)
FULL_S = (1.0, 5.0)


def strike(under_fire: Fire, chance: random.Random) -> str:
    """One terrible thing; what it was."""
    kind = chance.choices(("kill", "server", "stop", "full"), weights=(5, 2, 2, 1))[0]
    if kind == "full" and not under_fire.mounted:
        kind = "kill"
    if kind == "server":
        title = chance.choice(SERVERS)
        under_fire.kill_server(title)
        under_fire.server_is_back(title)
        return f"kill {title}"
    if kind == "full":
        store = chance.choice(sorted(STORES))
        with under_fire.full(store):
            time.sleep(chance.uniform(*FULL_S))
        return f"full {store}"
    host = chance.choice(HOSTS)
    if kind == "stop":
        with under_fire.stopped(host):
            time.sleep(LEASE_MS / 1000 * chance.uniform(0.3, 2.0))
        return f"stop {host}"
    under_fire.kill_host(host)
    return f"kill {host}"


def main(argv: list[str]) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.long", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    chance = random.Random(asked.seed)
    done: Counter[str] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nc-") as folder, fire(Path(folder)) as under_fire:
        while time.monotonic() - began < asked.minutes * 60:
            under_fire.submit(chance.randint(1, 4), delay_s=chance.choice([0.0, 0.2, 1.0]))
            time.sleep(chance.uniform(0, 1))
            what = strike(under_fire, chance)
            done[what] += 1
            _say(f"{time.monotonic() - began:6.1f} s  {what}, {len(under_fire.asked)} executions")
            time.sleep(chance.uniform(*BETWEEN_S))
        verdict = under_fire.verdict()
    for problem in (*verdict.lost, *verdict.doubled, *verdict.reordered, *verdict.broken):
        _say(problem)
    for what, times in sorted(done.items()):
        _say(f"{times:4d} x {what}")
    _say(f"seed={asked.seed} executions={len(under_fire.asked)} faults={done.total()} {verdict}")
    return 0 if verdict.sound else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
