"""How far is a result, in each of its tiers?

One run, on one local set and a real S3 server, the ways interleaved; medians are given.

1. A 100 MB table made by one process of a node and read by another, from call to a summed column:
   through plasma, the mapped file of Tier 2, the mapped folder of Tier 3, and S3; against a bare
   ``ray.get`` of the same bytes. Expectation: plasma costs two calls to an actor, a few
   milliseconds, so within twice a bare ``ray.get`` needs luck at these sizes and ten times faster
   than S3 needs none.
2. A 20 MB table handed from one step to the next: an execution of two Python steps against one
   whose first step makes the same table and gives nothing. Wanted: under half a second.
3. Hits of shared memory when producer and consumer share a node, each table read once. Wanted:
   over 60 %, aimed at 95.
4. Rows to Feather bytes with tier, digest and extracted block, against bare pyarrow doing the
   same rows. Wanted: at least 0.8.
5. Memory of a process that stores and reads back 10 GB in pieces of 100 MB. Wanted: flat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

from bench._child import Child
from bench._local import local_set, ray_environment
from bench._report import finish, median, say, show, versions
from bench._s3 import ACCESS, BUCKET, SECRET, s3_server
from bench._tier_child import MB, table_rows
from noetl_ray.client import Client
from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import RaySettings, ResultSettings, Settings
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.locator.result import ResultName
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.tiers import MemoryTier, Tiers
from noetl_ray.results.store import ResultStore
from noetl_ray.results.tier import decide_tier
from noetl_ray.scope import Scope

WAYS = ("plasma", "tier2", "tier3_local", "s3")
TABLE_MB, HANDED_MB, PIECE_MB = 100, 20, 100
HIT_TABLES, HIT_MB = 20, 4
WAIT_S = 300.0

EXPECTATION = {
    "s3_to_plasma": "at least 10",
    "plasma_to_ray_get": "at most 2",
    "handed_s": "under 0.5",
    "plasma_hits": "over 0.6, aimed at 0.95",
    "encode_to_pyarrow": "at least 0.8",
    "memory_grew_mb": "flat: less than one piece",
}

MAKE = f"""
      code: |
        rows = [{{"n": n, "text": f"{{n:0160d}}"}} for n in range({HANDED_MB * MB // 172})]
"""
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: bench/{name}}}\n"
HANDING = (
    HEAD.format(name="handing")
    + "workflow:\n  - step: make\n    tool:\n      kind: python"
    + MAKE
    + "        result = {'rows': rows}\n    next: use\n"
    + "  - step: use\n    tool:\n      kind: python\n      input:\n"
    + "        table: \"{{ make.rows }}\"\n      code: |\n        result = {'n': len(table)}\n"
)
KEEPING = (
    HEAD.format(name="keeping")
    + "workflow:\n  - step: make\n    tool:\n      kind: python"
    + MAKE
    + "        result = {'n': len(rows)}\n    next: use\n"
    + "  - step: use\n    tool:\n      kind: python\n      input:\n"
    + "        n: \"{{ make.n }}\"\n      code: |\n        result = {'n': n}\n"
)


def passing(producer: Child, consumer: Child, folder: Path, repeats: int) -> dict[str, Any]:
    """The first question."""
    made = producer.ask({"do": "produce", "mb": TABLE_MB, "n": 0, "s3": True}, WAIT_S)
    block = made["block"]
    name = ResultName(tenant="default", project="bench", execution_id=1 << 40, step="load")
    path = folder / "objects" / result_key(Placement(), name, "feather")
    seconds: dict[str, list[float]] = {way: [] for way in (*WAYS, "ray_get")}
    first: dict[str, float] = {}
    allocated: dict[str, int] = {}
    for repeat in range(repeats + 1):
        bare = consumer.ask({"do": "bare", "path": str(path)}, WAIT_S)
        sums = {bare["sum"]}
        for way in WAYS:
            read = consumer.ask({"do": "consume", "way": way, "block": block}, WAIT_S)
            sums.add(read["sum"])
            if repeat:
                seconds[way].append(read["s"])
            else:
                first[way] = round(read["s"] * 1000, 2)
                allocated[way] = read["allocated"] // MB
        if repeat:
            seconds["ray_get"].append(bare["s"])
        if len(sums) != 1:
            msg = f"the ways do not give the same table: {sums}"
            raise RuntimeError(msg)
    ms = {way: median([each * 1000 for each in found]) for way, found in seconds.items()}
    return {
        "table_mb": round(block["reference"]["bytes"] / MB, 1),
        "persist_s": round(made["persist_s"], 2),
        "ms": ms,
        "first_ms": first,
        "allocated_mb": allocated,
        "s3_to_plasma": round(ms["s3"] / ms["plasma"], 1),
        "plasma_to_ray_get": round(ms["plasma"] / ms["ray_get"], 2),
    }


def hits(producer: Child, consumer: Child) -> dict[str, Any]:
    """The third question: tables after the first, each read once through shared memory."""
    before = consumer.ask(_read(producer, 1), WAIT_S)["counts"]["plasma"]
    counts: dict[str, int] = {}
    for number in range(2, HIT_TABLES + 2):
        counts = consumer.ask(_read(producer, number), WAIT_S)["counts"]["plasma"]
    found = counts.get("hit", 0) - before.get("hit", 0)
    return {"reads": HIT_TABLES, "hits": found, "plasma_hits": round(found / HIT_TABLES, 3)}


def _read(producer: Child, number: int) -> dict[str, Any]:
    made = producer.ask({"do": "produce", "mb": HIT_MB, "n": number, "s3": False}, WAIT_S)
    return {"do": "consume", "way": "plasma", "block": made["block"]}


async def handing(url: str, token: str, repeats: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The second question, and the tier counters of the set when it is over."""
    seconds: dict[str, list[float]] = {"handing": [], "keeping": []}
    async with Client(url, token=token or None, timeout_s=WAIT_S) as client:
        await client.register(HANDING)
        await client.register(KEEPING)
        for repeat in range(repeats + 1):
            for name, seen in seconds.items():
                began = time.perf_counter()
                started = await client.submit(f"bench/{name}")
                ended = await client.wait(started.execution_id, timeout_s=WAIT_S)
                if not ended.succeeded:
                    msg = f"bench/{name} ended as {ended.status}: {ended.error}"
                    raise RuntimeError(msg)
                if repeat:
                    seen.append(time.perf_counter() - began)
        await asyncio.sleep(6)
        tiers = await client.tiers()
    whole, without = median(seconds["handing"]), median(seconds["keeping"])
    answer = {"handing_s": whole, "keeping_s": without, "handed_s": round(whole - without, 3)}
    return answer, {"totals": tiers["totals"], "served_by": tiers["served_by"]}


def encoding(repeats: int) -> dict[str, Any]:
    """The fourth question."""
    rows = table_rows(30)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        decide_tier(rows)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        sink = pa.BufferOutputStream()
        feather.write_feather(pa.Table.from_pylist(rows), sink, compression="uncompressed")
        bare.append(time.perf_counter() - began)
    return {
        "ours_s": median(ours),
        "pyarrow_s": median(bare),
        "encode_to_pyarrow": round(median(bare) / median(ours), 2),
    }


async def memory(folder: Path, pieces: int) -> dict[str, Any]:
    """The fifth question."""
    tiers = Tiers(SystemClock(), memory=MemoryTier(128 * MB))
    store = ResultStore(FileObjects(folder / "pieces"), Placement(), tiers=tiers)
    rows_of_a_page = "x" * (PIECE_MB * MB)
    seen: list[int] = []
    for number in range(pieces):
        name = ResultName(
            tenant="default", project="bench", execution_id=(1 << 40) + number, step="piece"
        )
        value = {"number": number, "text": rows_of_a_page}
        block = await store.persist(Scope(), name, value)
        read = await store.load(Scope(), block)
        if read["number"] != number:
            msg = "another piece came back"
            raise RuntimeError(msg)
        del read
        await store.objects.delete(result_key(Placement(), name, "json"))
        seen.append(_rss_mb())
    settled = seen[min(4, len(seen) - 1)]
    return {
        "pieces": pieces,
        "gb": round(pieces * PIECE_MB / 1024, 1),
        "rss_mb": {"after_5": settled, "end": seen[-1], "highest": max(seen)},
        "memory_grew_mb": max(seen[5:], default=settled) - settled,
    }


def _rss_mb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) >> 10
    return 0


def run(repeats: int, pieces: int) -> dict[str, Any]:
    """All questions."""
    settings = Settings(
        ray=RaySettings(object_store_mb=1_024, dashboard=False),
        results=ResultSettings(plasma_budget_mb=256),
    )
    result: dict[str, Any] = {"encoding": encoding(repeats)}
    say(f"encoding: {result['encoding']}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nb-t-")))
        result["memory"] = asyncio.run(memory(folder, pieces))
        say(f"memory: {result['memory']}")
        endpoint = stack.enter_context(s3_server(folder / "s3"))
        running = stack.enter_context(local_set(settings))
        environment = ray_environment(running)
        ends = (running.ray_address, str(folder), f"s3://{BUCKET}/tiers", endpoint, ACCESS, SECRET)
        module = "bench._tier_child"
        producer, consumer = (
            stack.enter_context(Child(module, *ends, "bench-tiers", environment=environment))
            for _ in range(2)
        )
        result["passing"] = passing(producer, consumer, folder, repeats)
        say(f"passing: {result['passing']}")
        result["hits"] = hits(producer, consumer)
        say(f"hits: {result['hits']}")
        answer, counters = asyncio.run(handing(running.gateway_url, running.token, repeats))
        result["handing"], result["counters"] = answer, counters
    return result


def main() -> None:
    """Ask, show, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pieces", type=int, default=100, help="pieces of 100 MB")
    parser.add_argument("--no-keep", action="store_true", help="do not append to bench/results")
    args = parser.parse_args()
    result = run(args.repeats, args.pieces)
    rows = [(way, f"{ms:.2f} ms", "") for way, ms in result["passing"]["ms"].items()]
    rows += [
        (name, str(result[part][name]), EXPECTATION[name])
        for part, name in (
            ("passing", "s3_to_plasma"),
            ("passing", "plasma_to_ray_get"),
            ("handing", "handed_s"),
            ("hits", "plasma_hits"),
            ("encoding", "encode_to_pyarrow"),
            ("memory", "memory_grew_mb"),
        )
    ]
    show("tiers", rows, ("measure", "found", "wanted"))
    facts = {"expectation": EXPECTATION, "versions": versions()}
    finish("tiers", {**result, **facts}, keep=not args.no_keep)


if __name__ == "__main__":
    main()
