"""How fast are the jobs over the history, against a loop and against bare reading?

The same log, of one shard, is worked over twice: by jobs on Spark (`local[2]` in this process; the
same jobs run on RayDP), and by one Python process that calls the same functions one by one.

1. Lake build, compaction and bulk audit in events/s, each against its loop. One field of one row of
   the read model is flipped before; both audits must find that and nothing else.
2. The same at an eighth of the size: two points give the part that does not depend on the size, and
   so the number of events from which on Spark is the faster one.
3. Reading the lake's bytes with bare pyarrow: the floor of anything that reads it.
4. The compactor: archive and trim, events/s of one shard (CMP-3 asks for 10 000).
5. The session: seconds to the first answer, and memory of JVM and Python workers.

Expectation: all three jobs are Python over Arrow with little for the JVM to do, so two cores give
at most twice the loop; a job costs about half a second before its first record. Above 100 000
events Spark should win, and reach 1.5 to 1.9 of the loop at a million.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from bench._lake_world import EVENTS_PER_EXECUTION, RECORDS_PER_EXECUTION, made, plant
from bench._report import finish, say, show, versions
from noetl_ray.config.settings import Settings, SparkSettings
from noetl_ray.lake import compact
from noetl_ray.lake.audit import check_all
from noetl_ray.lake.build import write_range
from noetl_ray.lake.commits import Part, make_commit, read_snapshot
from noetl_ray.lake.files import Files
from noetl_ray.lake.histories import executions, ranges, window
from noetl_ray.lake.session import LocalSpark
from noetl_ray.lake.tier import tier_place
from noetl_ray.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench._lake_world import World

SPLIT = 20_000
MANY_FILES = 24
"""Files of a partition of the lake that is compacted."""
LATER_MS = 4_000_000_000_000
EXPECTATION = {
    "build": "1.5 to 1.9 of the loop at a million",
    "compact": "1.2 to 1.9 of the loop",
    "audit": "1.5 to 1.9 of the loop at a million",
    "compactor": "at least 10 000 events/s per shard",
}


class Bench:
    """One invocation."""

    def __init__(self, world: World, spark: LocalSpark) -> None:
        self.world = world
        self.spark = spark
        self.wrong: list[str] = []

    def place(self, name: str) -> dict[str, str]:
        """A lake of its own."""
        url = (self.world.folder / name).as_uri()
        return {"url": url, "endpoint_url": "", "access_key": "", "secret_key": ""}

    def build(self, name: str, to: int, split: int = SPLIT) -> float:
        """Seconds of the job."""
        arguments = {"lake": self.place(name), "log": self.world.log, "split_records": split}
        return _timed(lambda: self._run("build:build", {**arguments, "to": to}))

    def build_loop(self, name: str, to: int, split: int = SPLIT) -> float:
        """Seconds of one process."""
        place = self.place(name)
        return _timed(lambda: build_alone(place, self.world.log, to, split))

    def compact(self, name: str) -> float:
        """Seconds of the job."""
        arguments = {"lake": self.place(name), "parts": 2, "kept_s": 1e9}
        return _timed(lambda: self._run("compact:compact", arguments))

    def compact_loop(self, name: str) -> float:
        """Seconds of one process."""
        return _timed(lambda: compact_alone(self.place(name)))

    def audit(self, name: str, planted: int | None) -> float:
        """Seconds of the job; what it finds is held against what was planted."""
        arguments = {"lake": self.place(name), "dsn": self.world.dsn}
        began = time.monotonic()
        found = self._run("audit:audit", arguments)
        took = time.monotonic() - began
        self._judge(name, [one["execution_id"] for one in found["mismatches"]], planted)
        return took

    def audit_loop(self, name: str, planted: int | None) -> float:
        """Seconds of one process."""
        began = time.monotonic()
        found = audit_alone(self.place(name), self.world.dsn)
        took = time.monotonic() - began
        self._judge(f"{name}, loop", found, planted)
        return took

    def compactor(self, name: str) -> dict[str, Any]:
        """Archive and trim."""
        tier = tier_place(Settings(data_dir=str(self.world.folder)), Scope())
        arguments = {"lake": self.place(name), "tier": tier, "before_ms": LATER_MS}
        kept = self._run("archive:archive", arguments)
        removed = self._run("trim:trim", {"tier": tier, "log": self.world.log, "dsn": ""})
        if (kept["executions"], removed["executions"]) != (self.world.executions,) * 2:
            self.wrong.append(f"archived {kept['executions']}, trimmed {removed['executions']}")
        whole_s = kept["took_s"] + removed["took_s"]
        return {
            "archive_events_per_s": kept["events_per_second"],
            "trim_events_per_s": removed["events_per_second"],
            "events_per_s": round(kept["events"] / whole_s),
            "segments": kept["segments"],
            "archive_bytes_per_event": round(kept["bytes"] / max(kept["events"], 1), 1),
        }

    def _judge(self, what: str, found: list[int], planted: int | None) -> None:
        wanted = [] if planted is None else [planted]
        if found != wanted:
            self.wrong.append(f"audit of {what}: found {found[:5]}, planted {wanted}")

    def _run(self, job: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.spark.run(f"noetl_ray.lake.{job}", arguments)


def build_alone(place: dict[str, str], log: dict[str, Any], to: int, split: int) -> None:
    """The build without Spark: range after range, then one commit."""
    parts: list[Part] = []
    for first in range(1, to + 1, split):
        batch = write_range(place, log, first, min(to, first + split - 1), "alone")
        told = [one for one in batch.column(0).to_pylist() if one]
        parts += [msgspec.json.decode(one, type=Part) for one in told]
    files = Files(place)
    make_commit(files, read_snapshot(files), what="build", position=to, added=parts, made_at="")


def compact_alone(place: dict[str, str]) -> None:
    """The compaction without Spark: group after group, then one commit."""
    files = Files(place)
    snapshot = read_snapshot(files)
    groups = compact._groups(snapshot, 2)
    told = [[msgspec.to_builtins(part) for part in group] for group in groups]
    merged = [compact.merge_group(place, group, "alone") for group in told]
    gone = [part.key for group in groups for part in group]
    make_commit(
        files,
        snapshot,
        what="compact",
        position=snapshot.position,
        added=merged,
        removed=gone,
        made_at="",
    )


def audit_alone(place: dict[str, str], dsn: str) -> list[int]:
    """The audit without Spark: range after range, execution after execution."""
    snapshot = read_snapshot(Files(place))
    mismatches: list[int] = []
    for one in ranges(window(snapshot), 1):
        _, found, _ = check_all(dsn, snapshot.position, executions(place, one))
        mismatches += [each.execution_id for each in found]
    return mismatches


def read_bare(place: dict[str, str]) -> tuple[float, int]:
    """Seconds to read every file of the lake with pyarrow alone, and its bytes."""
    files = Files(place)
    parts = read_snapshot(files).parts.values()
    began = time.monotonic()
    for part in parts:
        pq.read_table(files.path(part.key), partitioning=None)
    return time.monotonic() - began, sum(part.bytes for part in parts)


def crossover(events: tuple[int, int], job: tuple[float, float], loop: tuple[float, float]) -> Any:
    """From how many events on the job is faster, by lines through two points; None for never."""
    per_job = (job[1] - job[0]) / (events[1] - events[0])
    per_loop = (loop[1] - loop[0]) / (events[1] - events[0])
    fixed = (job[0] - per_job * events[0]) - (loop[0] - per_loop * events[0])
    if per_loop <= per_job:
        return None
    return max(0, round(fixed / (per_loop - per_job)))


def session_memory_mb() -> dict[str, float]:
    """Resident megabytes of the JVM and the Python workers below this process."""
    found = {"jvm": 0.0, "python_workers": 0.0}
    below = {os.getpid()}
    stats: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        stats[int(path.parent.name)] = (int(rest.split()[1]), head.partition("(")[2])
    for _ in range(6):
        below |= {pid for pid, (parent, _) in stats.items() if parent in below}
    for pid in below - {os.getpid()}:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
        name = stats[pid][1]
        label = "jvm" if name == "java" else "python_workers" if "python" in name else ""
        if label:
            found[label] += pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return {label: round(value) for label, value in found.items()}


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _pair(what: str, events: tuple[int, int], run: Any, loop: Any) -> dict[str, Any]:
    """A job and its loop at both sizes."""
    job_s, loop_s = [], []
    for size in (0, 1):
        loop_s.append(loop(size))
        job_s.append(run(size))
        say(f"{what}, {events[size]:,} events: Spark {job_s[-1]:.1f} s, loop {loop_s[-1]:.1f} s")
    return {
        "events_per_s": round(events[1] / job_s[1]),
        "loop_events_per_s": round(events[1] / loop_s[1]),
        "ratio": round(loop_s[1] / job_s[1], 2),
        "ratio_at_an_eighth": round(loop_s[0] / job_s[0], 2),
        "crossover_events": crossover(events, (job_s[0], job_s[1]), (loop_s[0], loop_s[1])),
    }


def measure(bench: Bench) -> dict[str, Any]:
    """Everything, the loop before the job each time, so that the job gets no colder cache."""
    world = bench.world
    few = max(1, world.executions // 8)
    to = (few * RECORDS_PER_EXECUTION, world.records)
    events = (few * EVENTS_PER_EXECUTION, world.events)
    bench.build("warm", min(to[0], 2_000))
    result: dict[str, Any] = {}
    result["build"] = _pair(
        "build", events,
        lambda size: bench.build(f"job{size}", to[size]),
        lambda size: bench.build_loop(f"loop{size}", to[size]),
    )  # fmt: skip
    read_s, size = read_bare(bench.place("job1"))
    result["bare_pyarrow_events_per_s"] = round(world.events / read_s)
    result["lake_bytes_per_event"] = round(size / world.events, 1)
    for name in ("many0", "many1"):
        positions = to[int(name[-1])]
        bench.build(name, positions, -(-positions // MANY_FILES))
        shutil.copytree(world.folder / name, world.folder / f"{name}-loop")
    result["compact"] = _pair(
        "compact", events,
        lambda size: bench.compact(f"many{size}"),
        lambda size: bench.compact_loop(f"many{size}-loop"),
    )  # fmt: skip
    victim = world.executions - 1
    planted = asyncio.run(plant(world.dsn, victim))
    held = (None, planted)
    result["audit"] = _pair(
        "audit", events,
        lambda size: bench.audit(f"job{size}", held[size]),
        lambda size: bench.audit_loop(f"loop{size}", held[size]),
    )  # fmt: skip
    result["session_mb"] = session_memory_mb()
    result["compactor"] = bench.compactor("job1")
    say(f"compactor: {result['compactor']}")
    return result


def main() -> None:
    """Read the command line, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    count = max(8, args.events // EVENTS_PER_EXECUTION)
    began = time.monotonic()
    world, stack = made(count)
    say(f"generated {world.events:,} events of {count:,} executions")
    generated_s = time.monotonic() - began
    with stack:
        spark = LocalSpark(SparkSettings(master=f"local[{args.cores}]", executor_cores=args.cores))
        try:
            started = time.monotonic()
            spark.run("noetl_ray.lake.probe:ping", {})
            first_answer_s = time.monotonic() - started
            bench = Bench(world, spark)
            result = measure(bench)
        finally:
            spark.stop()
    result |= {
        "events": world.events,
        "executions": count,
        "record_mb": round(world.record_bytes / (1 << 20), 1),
        "generated_s": round(generated_s, 1),
        "session_first_answer_s": round(first_answer_s, 1),
        "complete": not bench.wrong,
        "wrong": bench.wrong,
        "cores": args.cores,
        "expectation": EXPECTATION,
        "versions": versions(),
    }
    _table(result)
    finish("lake", result, keep=args.keep)
    if bench.wrong:
        raise SystemExit(1)


def _table(result: dict[str, Any]) -> None:
    rows = []
    for name in ("build", "compact", "audit"):
        found = result[name]
        rows.append((f"{name}: events/s on Spark", f"{found['events_per_s']:,}", ""))
        rows.append(("  one Python loop", f"{found['loop_events_per_s']:,}", ""))
        rows.append(("  ratio", str(found["ratio"]), EXPECTATION[name]))
        rows.append(("  Spark is faster from, events", str(found["crossover_events"]), ""))
    rows.append(("bare pyarrow: events/s read", f"{result['bare_pyarrow_events_per_s']:,}", ""))
    found = result["compactor"]
    rows.append(("compactor: events/s", f"{found['events_per_s']:,}", EXPECTATION["compactor"]))
    rows.append(("session: s to the first answer", str(result["session_first_answer_s"]), ""))
    rows += [(f"session: {k}, MB", str(v), "") for k, v in result["session_mb"].items()]
    show(f"the lake over {result['events']:,} events", rows, ("", "", "expectation"))


if __name__ == "__main__":
    main()
