"""How fast is the patient-flow test, against a script that does the same with no runtime?

In one run, for each way of working off a frame: the bare script and the playbook by turns, on one
local set and one API, every row of every run checked. Rows per second are claimed rows (patients of
five domains, and documents) over the time of the execution; the reference is timed the same way.

Expectation: HTTP costs about a millisecond of CPU a request on each side, in both; the runtime adds
rendering and one pipeline per row, and per frame three appends, two decisions and one object. With
50 rows a frame that is at least 0.7 of the bare script, row by row and frame by frame.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from bench._child import Child
from bench._local import local_set, ray_environment
from bench._report import finish, median, say, show, versions
from bench.pft.bare import Size
from bench.pft.drive import Drive, Ran, world_dsn
from bench.pft.plot import plot
from bench.pft.world import look, make_tables
from noetl_ray.cli.demo import fixture_api
from noetl_ray.client import Client
from noetl_ray.config.environ import environ
from noetl_ray.config.settings import RaySettings, RuntimeSettings, Settings

if TYPE_CHECKING:
    from actors.local import LocalSet

ANSWER_S = 3_600.0
TOLD_S = 6.0
FULL_PATIENTS = 10_000
ABANDONED_MIN = 20
EXPECTATION = {
    "ratio": "at least 0.7, aimed at 0.8",
    "postgres_connections_high": "below 20",
    "command_events_at_full_size": "below 20 000",
}


class Bench:
    """One invocation."""

    def __init__(self, args: argparse.Namespace, running: LocalSet, api_url: str) -> None:
        self._args = args
        self._running = running
        self._api_url = api_url
        self.drive = Drive(running, api_url)
        self.wrong: list[str] = []

    def size(self, process: str) -> Size:
        """What is asked for on the command line."""
        args = self._args
        return Size(
            process=process,
            facilities=args.facilities,
            patients=args.patients,
            max_rows=args.max_rows,
            in_flight=args.in_flight,
            row_concurrency=args.row_concurrency,
        )

    async def compare(self, process: str) -> dict[str, Any]:
        """Bare and playbook by turns."""
        bare: list[dict[str, float]] = []
        ran: list[Ran] = []
        arguments = ("bench.pft.bare", self._api_url, world_dsn(self._running))
        with Child(*arguments, environment=environ()) as script:
            for _ in range(self._args.repeats):
                bare.append(await self._bare(script, process))
                ran.append(await self._runtime(process))
        self._draw(ran[-1], "nothing killed")
        bare_rate = median([each["rows"] / each["seconds"] for each in bare])
        rate = median([each.rows / each.seconds for each in ran])
        return {
            "rows": ran[-1].rows,
            "rows_per_s": rate,
            "bare_rows_per_s": bare_rate,
            "ratio": round(rate / bare_rate, 3),
            "bare_cpu_s": median([each["cpu_s"] for each in bare]),
            "cpu_s": ran[-1].cpu_s,
            "metrics": ran[-1].metrics,
            "command_events_at_full_size": _at_full_size(ran[-1], self._args),
        }

    async def under_fire(self) -> dict[str, Any]:
        """The playbook while hosts with workers are killed; no reference could finish this."""
        args = self._args
        environment = ray_environment(self._running)
        with Child(
            "bench.pft.killer", self._running.ray_address, environment=environment
        ) as killer:
            size = self.size("row" if args.process == "both" else args.process)
            ran = await self.drive.run(size, killer, args.kill_every)
        self._note(ran)
        self._draw(ran, f"{len(ran.kills)} workers killed")
        more = ran.metrics["more"]
        if more["frames_abandoned"] < args.abandoned_min:
            self.wrong.append(
                f"{more['frames_abandoned']} frames abandoned: kill oftener or longer"
            )
        if more["writes_repeated"] > 5 * more["rows_that_may_repeat"]:
            self.wrong.append("more was repeated than abandoned frames explain")
        return {
            "process": ran.process,
            "rows": ran.rows,
            "rows_per_s": round(ran.rows / ran.seconds, 1),
            "kills": len(ran.kills),
            "kill_every_s": args.kill_every,
            "metrics": ran.metrics,
        }

    async def tiers(self) -> dict[str, Any]:
        """What the result tiers of the set did meanwhile, once every host has told it."""
        await asyncio.sleep(TOLD_S)
        running = self._running
        async with Client(running.gateway_url, token=running.token or None) as client:
            page = await client.tiers()
        return {"totals": page["totals"], "served_by": page["served_by"]}

    async def _bare(self, script: Child, process: str) -> dict[str, float]:
        await make_tables(world_dsn(self._running))
        asked = asdict(self.size(process))
        took: dict[str, float] = await asyncio.to_thread(script.ask, asked, ANSWER_S)
        found = await look(world_dsn(self._running), self._args.facilities * self._args.patients)
        self.wrong += [f"bare {process}: {each}" for each in found.wrong]
        say(f"{process}: bare {took['rows'] / took['seconds']:.0f} rows/s")
        return took

    async def _runtime(self, process: str) -> Ran:
        ran = await self.drive.run(self.size(process))
        self._note(ran)
        return ran

    def _draw(self, ran: Ran, what: str) -> None:
        """A picture beside the numbers, when one is asked for."""
        if self._args.plot is None:
            return
        args = self._args
        size = f"{args.facilities} x {args.patients} patients, process: {ran.process}"
        shown = f"Patient-flow test, {size}, {ran.rows} rows in {ran.seconds:.1f} s, {what}"
        path = self._args.plot
        if args.process == "both" and not args.kill_every:
            path = path.with_stem(f"{path.stem}_{ran.process}")
        plot(ran, path, shown)
        say(f"drawn into {path}")

    def _note(self, ran: Ran) -> None:
        self.wrong += [f"{ran.process}: {each}" for each in ran.wrong]
        say(f"{ran.process}: noetl-ray {ran.rows / ran.seconds:.0f} rows/s; wrong: {ran.wrong}")


def _at_full_size(ran: Ran, args: argparse.Namespace) -> int:
    """Command events of ten facilities of a thousand patients, as far as this run can tell."""
    scale = FULL_PATIENTS / (args.facilities * args.patients)
    return int(ran.metrics["command_events"] * scale)


async def _measure(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if args.kill_every:
        result["under_fire"] = await bench.under_fire()
    else:
        bench.wrong += await bench.drive.continuation(min(args.patients, 200))
        for process in ("row", "frame"):
            if args.process in ("both", process):
                result[process] = await bench.compare(process)
    result["tiers"] = await bench.tiers()
    return result


def _table(result: dict[str, Any]) -> None:
    rows = []
    for process in ("row", "frame", "under_fire"):
        found = result.get(process)
        if found is None:
            continue
        if "ratio" in found:
            rows.append((f"{process}: rows per second", str(found["rows_per_s"]), ""))
            rows.append(("  bare script", str(found["bare_rows_per_s"]), ""))
            rows.append(("  ratio", str(found["ratio"]), EXPECTATION["ratio"]))
        metrics = found["metrics"]
        rows += [
            (f"  {k}", str(v), EXPECTATION.get(k, "")) for k, v in metrics.items() if k != "more"
        ]
        rows += [(f"    {k}", str(v), "") for k, v in metrics["more"].items()]
    show("patient-flow test", rows, ("", "", "expectation"))


def main() -> None:
    """Run and report; the exit code says whether every row was right."""
    parser = argparse.ArgumentParser(prog="python -m bench.pft", description=__doc__)
    parser.add_argument("--facilities", type=int, default=1)
    parser.add_argument("--patients", type=int, default=100, help="per facility")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="of every answer of the API")
    parser.add_argument("--rate-limit", type=int, default=0, help="requests per second; 0 = none")
    parser.add_argument("--process", choices=("both", "row", "frame"), default="both")
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds between two kills")
    parser.add_argument("--abandoned-min", type=int, default=ABANDONED_MIN)
    parser.add_argument("--max-rows", type=int, default=50, help="rows of a frame")
    parser.add_argument("--in-flight", type=int, default=4, help="frames at once")
    parser.add_argument("--row-concurrency", type=int, default=8, help="rows of a frame at once")
    parser.add_argument("--plot", type=Path, help="PNG file to draw the run into")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    runtime = RuntimeSettings(workers=3) if args.kill_every else RuntimeSettings()
    settings = Settings(runtime=runtime, ray=RaySettings(dashboard=False))
    api = ("--rate-limit", str(args.rate_limit), "--latency-ms", str(args.latency_ms))
    with contextlib.ExitStack() as stack:
        api_url = stack.enter_context(fixture_api(*api))
        bench = Bench(args, stack.enter_context(local_set(settings)), api_url)
        result = uvloop.run(_measure(bench, args))
    asked = {k: v for k, v in vars(args).items() if k not in ("keep", "plot")}
    result |= {"asked": asked, "complete": not bench.wrong, "wrong": bench.wrong[:20]}
    result |= {"expectation": EXPECTATION, "versions": versions()}
    _table(result)
    finish("pft", result, keep=args.keep)
    if bench.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
