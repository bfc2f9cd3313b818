"""Records golden histories: ``python -m tests.golden.record [--check] [case …]``.

A golden file is what an engine of its day wrote. Record a new case freely; recording an old one
anew says that executions in flight may break, and needs a line in the changelog.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from noetl_ray.events.canonical import sha256_hex
from noetl_ray.replay import encode_history, normalised, replay, state_checksum
from noetl_ray.testing.simloop import SimLoop, run_simulated
from noetl_ray.wal.port import Recorded
from tests.golden.cases import CASES, Case
from tests.simulation.invariants import records
from tests.simulation.world import World

FOLDER = Path(__file__).resolve().parent
MANIFEST = FOLDER / "MANIFEST.json"
SEED = 2026


def record(case: Case) -> tuple[list[Recorded], list[int]]:
    """Run a case and give back the whole log and the executions it is about."""

    async def main(loop: SimLoop) -> tuple[list[Recorded], list[int]]:
        world = World(loop)
        world.wanted = ["conductor/0", "worker/0", "worker/1", "keeper/0"]
        world.start_all()
        await world.clock.sleep(0.5)
        ids = await case.story(world, case.playbook)
        if not await world.settle(ids, within_s=300):
            msg = f"{case.name} did not end"
            raise RuntimeError(msg)
        # What comes after the end (a cancelled command) belongs to the story.
        await world.clock.sleep(2)
        return records(world.log), ids

    made: tuple[list[Recorded], list[int]] = run_simulated(SEED, main)
    return made


def files_of(case: Case) -> dict[str, bytes]:
    """The files of a case by name."""
    history, ids = record(case)
    states = replay(history)
    told: dict[str, Any] = {
        "executions": {
            str(i): {"checksum": state_checksum(states[i]), "state": normalised(states[i])}
            for i in ids
        },
        "prefixes": {
            str(recorded.position): {
                str(i): state_checksum(s)
                for i, s in replay(history, as_of=recorded.position).items()
            }
            for recorded in history
        },
    }
    return {
        "playbook.yaml": case.playbook.encode(),
        "events.jsonl": encode_history(history),
        "state.json": (json.dumps(told, indent=1, sort_keys=True) + "\n").encode(),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("cases", nargs="*", help="names of cases; all when none is given")
    asked = parser.parse_args(argv)
    manifest: dict[str, str] = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}
    differing = []
    for case in CASES:
        if asked.cases and case.name not in asked.cases:
            continue
        for name, data in files_of(case).items():
            path = FOLDER / case.name / name
            if path.exists() and path.read_bytes() == data:
                continue
            differing.append(f"{case.name}/{name}")
            if not asked.check:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
        if not asked.check:
            manifest[case.name] = sha256_hex((FOLDER / case.name / "events.jsonl").read_bytes())
    if not asked.check:
        MANIFEST.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    for name in differing:
        sys.stdout.write(f"{'differs' if asked.check else 'written'}: {name}\n")
    return 1 if asked.check and differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
