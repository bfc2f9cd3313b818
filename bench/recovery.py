"""How long does work stand still when a process is killed, and is anything done twice?

A set works on executions whose steps call out to a service that counts effects by key. A process is
killed with SIGKILL and the log is watched from outside: the pause ends with the first decision of a
successor or, when a worker is killed, with the first completion of a command it held. Default
settings, first as a laptop has it (one host that decides and works), then with hosts of their own
for a second conductor and a second worker. Also: everything killed at once and started again; a
loop of 1 000 items whose worker is killed half way; what the row barrier costs; how old checkpoints
get.

Expectation: Ray starts a process in about 2 s on two cores, importing included; whoever else lives
takes over sooner. Everything at once takes what an `up` takes, and a second more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from actors import local, state_file
from actors.ray_head import processes
from bench._child import Child
from bench._local import local_set, ray_environment
from bench._report import finish, median, say, show, spread, versions
from bench._watch import PAUSE_MAX_S, Watch
from noetl_ray.cli.demo import fixture_api
from noetl_ray.client import Client
from noetl_ray.config.settings import RaySettings, RuntimeSettings, Settings
from noetl_ray.errors import NoetlError
from noetl_ray.events.types import EventType
from noetl_ray.locator.shard import shard_of
from noetl_ray.wal.jetstream import JetStreamLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.local import LocalSet


REPEATS = 3
EXECUTIONS = 24
ITEMS = 1_000
WARM_S = 3.0
SETTLE_S = 0.05
KILLS_MAX = 3
"""So many kills per measure at most: one that finds a worker idle measures nothing."""

EXPECTATION = {
    "conductor_s": "at most 5, best peer 1.7",
    "worker_s": "at most 5, best peer 1.7",
    "everything_after_up_s": "at most 15",
    "repeated_iterations": 0,
    "effects_under_way_seen_again": "at most 8, one per lane, with the same key",
    "checkpoint_age_p99_ms": "at most 1500",
}
CYCLE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: recovery, path: bench/recovery}
workload: {api_url: "", turns: 100000}
workflow:
  - step: call
    tool:
      kind: http
      method: POST
      url: "{{ workload.api_url }}/api/v1/effects"
      params: {delay_seconds: 0.1}
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {arcs: [{step: again, when: "{{ ctx.n < workload.turns }}"}]}
  - step: again
    next: call
"""
LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: half, path: bench/half}}
workload: {{api_url: ""}}
workflow:
  - step: each
    loop:
      in: "{{{{ range({items}) | list }}}}"
      iterator: item
      spec: {{mode: parallel, max_in_flight: 8, frame: {{max_rows: 250, row_barrier: {barrier}}}}}
    tool:
      kind: {kind}
      method: POST
      url: "{{{{ workload.api_url }}}}/api/v1/effects"
      params: {{delay_seconds: 0.02}}
"""


@contextlib.contextmanager
def hosts(running: LocalSet) -> Iterator[Child]:
    """Who answers for the hosts of a set."""
    environment = ray_environment(running)
    with Child("bench._hosts", running.ray_address, environment=environment) as child:
        yield child


def settled(child: Child, name: str, other_than: str = "") -> dict[str, Any]:
    """A host once it runs, as another process than the one given."""
    deadline = time.monotonic() + PAUSE_MAX_S
    while time.monotonic() < deadline:
        told: dict[str, Any] = child.ask(name)
        if told.get("state") == "running" and told["incarnation"] != other_than:
            return told
        time.sleep(0.2)
    msg = f"{name} does not run"
    raise RuntimeError(msg)


async def submit(running: LocalSet, api_url: str, count: int) -> list[int]:
    """Executions that go on for ever."""
    async with Client(running.gateway_url, token=running.token or None) as client:
        asked = {"api_url": api_url}
        return [
            (await client.submit(playbook=CYCLE, workload=asked)).execution_id for _ in range(count)
        ]


async def cancel(running: LocalSet, ids: list[int]) -> None:
    """End what would go on for ever."""
    async with Client(running.gateway_url, token=running.token or None) as client:
        for each in ids:
            await client.cancel(each)


async def pauses(
    running: LocalSet, api_url: str, name: str, repeats: int, ages: list[float]
) -> list[float]:
    """How long executions of a host stood still, each time it was killed."""
    found: list[float] = []
    ids = await submit(running, api_url, EXECUTIONS)
    with hosts(running) as child:
        async with Watch(running).looking() as watch:
            for _ in range(repeats * KILLS_MAX):
                await asyncio.sleep(WARM_S)
                before = settled(child, name)
                conductor = before["runtime"].get("conductor", {})
                ages += [float(conductor.get("checkpoints", {}).get("age_ms", 0))]
                shards = set(conductor.get("shards", ()))
                mine = {run for run in ids if _shard(run) in shards}
                pause = await _pause(watch, name, before["pid"], mine)
                if pause is not None:
                    found.append(pause)
                say(f"{name}: {'held nothing' if pause is None else f'{pause:.2f} s'}")
                await asyncio.to_thread(settled, child, name, before["incarnation"])
                if len(found) == repeats:
                    break
            ages += await _ages(child)
    await cancel(running, ids)
    if len(found) < repeats:
        msg = f"{name} held something in {len(found)} of {repeats * KILLS_MAX} kills only"
        raise RuntimeError(msg)
    return found


async def _pause(watch: Watch, name: str, pid: int, mine: set[int]) -> float | None:
    """Kill a host: seconds until its executions, or what it held, went on; None if it held nothing.

    What was on its way when the process died may still arrive, so what it held is what has not come
    back a moment after the kill: a command that came back just before would never do so again.
    """
    if not mine:
        await watch.busy(name)
    os.kill(pid, signal.SIGKILL)
    moment = time.monotonic() + SETTLE_S
    if mine:
        return SETTLE_S + await watch.decided(moment, mine)
    held = await _left_behind(watch, name)
    return SETTLE_S + await watch.returned(moment, held) if held else None


async def _left_behind(watch: Watch, name: str) -> set[str]:
    await asyncio.sleep(SETTLE_S)
    await watch.caught_up()
    return watch.held_by(name)


def _shard(execution_id: int) -> int:
    return shard_of("default", "default", execution_id)


async def _ages(child: Child) -> list[float]:
    """How old the oldest unsaved change of a conductor was, looked at for a while."""
    ages: list[float] = []
    for _ in range(100):
        told = await asyncio.to_thread(child.ask, "hot/0")
        saved = told.get("runtime", {}).get("conductor", {}).get("checkpoints", {})
        ages.append(float(saved.get("age_ms", 0)))
        await asyncio.sleep(0.05)
    return ages


async def everything(running: LocalSet, settings: Settings, api_url: str) -> dict[str, float]:
    """Kill hosts, Ray, NATS and Postgres at once, and start them again."""
    ids = await submit(running, api_url, EXECUTIONS)
    await asyncio.sleep(WARM_S)
    record = state_file.read(_folder(running))
    if record is None:
        msg = "the set has no state"
        raise RuntimeError(msg)
    began = time.monotonic()
    for ref in (*processes(record.set_id), *record.processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(ref.pid, signal.SIGKILL)
    again = await asyncio.to_thread(local.up, settings)
    up_s = time.monotonic() - began
    async with Watch(again).looking() as watch:
        after_up_s = await watch.decided(time.monotonic(), set(ids))
    await cancel(again, ids)
    return {"up_s": up_s, "after_up_s": after_up_s}


def _folder(running: LocalSet) -> Path:
    return Path(running.data_dir)


async def half_way(running: LocalSet, api_url: str, *, barrier: bool, kill: bool) -> dict[str, Any]:
    """A loop of 1 000 items, its worker killed half way or not; how long, and what was repeated."""
    text = LOOP.format(items=ITEMS, barrier=str(barrier).lower(), kind="http")
    async with (
        httpx.AsyncClient() as api,
        Client(running.gateway_url, token=running.token or None) as client,
    ):
        await api.post(f"{api_url}/api/v1/effects/reset")
        began = time.monotonic()
        started = await client.submit(playbook=text, workload={"api_url": api_url})
        if kill:
            with hosts(running) as child:
                pid = settled(child, "hot/0")["pid"]
                total = 0
                while total < ITEMS // 2:
                    total = (await api.get(f"{api_url}/api/v1/effects")).json()["total"]
                    await asyncio.sleep(0.02)
                os.kill(pid, signal.SIGKILL)
        ended = await _ended(client, started.execution_id)
        took = time.monotonic() - began
        effects = (await api.get(f"{api_url}/api/v1/effects", timeout=30)).json()
    finished = await _finished(running, started.execution_id)
    return {
        "status": ended,
        "seconds": took,
        "items": effects["keys"],
        "again": sum(count - 1 for count in finished.values()),
        "effects_again": effects["total"] - effects["keys"],
    }


async def _finished(running: LocalSet, execution_id: int) -> Counter[tuple[str, str]]:
    """How often each item was recorded as finished while its frame went on."""
    times: Counter[tuple[str, str]] = Counter()
    log = await JetStreamLog.open(running.nats_url, token=running.nats_token or None)
    try:
        async for recorded in log.read(f"noetl.events.*.*.*.{execution_id}.>"):
            for event in recorded.record.events:
                if event.event_type is EventType.FRAME_ROWS_DONE:
                    rows = event.payload["rows"]
                    times.update((event.frame_id or "", str(row["key"])) for row in rows)
    finally:
        await log.close()
    return times


async def _ended(client: Client, execution_id: int) -> str:
    deadline = time.monotonic() + 4 * PAUSE_MAX_S
    while time.monotonic() < deadline:
        with contextlib.suppress(NoetlError):
            found = await client.execution(execution_id)
            if found.ended:
                return found.status
        await asyncio.sleep(0.05)
    return "not ended"


def measure(repeats: int) -> dict[str, Any]:
    """Every measure, one after the other."""
    result: dict[str, Any] = {}
    ages: list[float] = []
    run = asyncio.run
    ray = RaySettings(dashboard=False)
    with fixture_api() as api_url:
        with local_set(Settings(ray=ray)) as running:
            result["laptop"] = run(pauses(running, api_url, "hot/0", repeats, ages))
            costs = [run(half_way(running, api_url, barrier=b, kill=False)) for b in (False, True)]
            result["row_barrier_ratio"] = round(costs[1]["seconds"] / costs[0]["seconds"], 2)
            result["half_way"] = run(half_way(running, api_url, barrier=True, kill=True))
            result["half_way_without"] = run(half_way(running, api_url, barrier=False, kill=True))
            settings = Settings(ray=ray, data_dir=running.data_dir)
            result |= {
                f"everything_{name}": round(value, 2)
                for name, value in run(everything(running, settings, api_url)).items()
            }
        apart = RuntimeSettings(conductors=2, workers=2)
        with local_set(Settings(ray=ray, runtime=apart)) as running:
            result["conductor"] = run(pauses(running, api_url, "conductor/1", repeats, ages))
            result["worker"] = run(pauses(running, api_url, "worker/1", repeats, ages))
    result["ages"] = sorted(ages)
    return result


def summarize(seen: dict[str, Any]) -> dict[str, Any]:
    """Medians and the worst."""
    result: dict[str, Any] = {}
    for name in ("laptop", "conductor", "worker"):
        result |= {
            f"{name}_s": round(median(seen[name]), 2),
            f"{name}_worst_s": round(max(seen[name]), 2),
        }
    half = seen["half_way"]
    return {
        **result,
        "everything_up_s": seen["everything_up_s"],
        "everything_after_up_s": seen["everything_after_up_s"],
        "half_way_status": half["status"],
        "half_way_items": half["items"],
        "repeated_iterations": half["again"],
        "effects_under_way_seen_again": half["effects_again"],
        "effects_seen_again_without_row_barrier": seen["half_way_without"]["effects_again"],
        "row_barrier_ratio": seen["row_barrier_ratio"],
        "checkpoint_age_p99_ms": seen["ages"][int(len(seen["ages"]) * 0.99)],
        "expectation": EXPECTATION,
        "versions": versions(),
    }


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append to bench/results",
    )
    args = parser.parse_args()
    seen = measure(args.repeats)
    result = summarize(seen)
    rows = [
        (f"kill -9, {name}: s to progress", str(result[f"{name}_s"]), spread(seen[name]))
        for name in ("laptop", "conductor", "worker")
    ]
    rows += [
        (name.replace("_", " "), str(value), str(EXPECTATION.get(name, "")))
        for name, value in result.items()
        if not isinstance(value, dict) and not name.endswith("_s")
    ]
    rows += [
        ("everything: s until up", str(result["everything_up_s"]), ""),
        ("everything: s from up to progress", str(result["everything_after_up_s"]), "at most 15"),
    ]
    show(f"recovery, medians of {args.repeats}", rows, ("", "found", "range or wanted"))
    finish("recovery", result, keep=args.keep)


if __name__ == "__main__":
    main()
