"""Scenarios that each lean on one safeguard, so that taking it away shows within a few seeds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from noetl_ray.submit import Submission, submit_execution
from noetl_ray.testing.simloop import SimLoop, run_simulated
from tests.simulation.derived import check_read_model
from tests.simulation.faults import CALM, FaultPlan
from tests.simulation.torment import back
from tests.simulation.world import LEASE_MS, World

TROUBLE_S = 40.0
AFTER_S = 20.0
SLOW_ACKS = FaultPlan(slow_log=0.5, slow_delivery=0.2)
SLOW_LOG = FaultPlan(slow_log=0.5)
DOUBLED = FaultPlan(doubled_hint=0.5, late_hint=0.5, doubled_delivery=0.3)

TWO_TASKS = "[{{name: one, kind: http, url: u, value: {{}}, takes_ms: {ms}}}, " + (
    "{{name: two, kind: http, url: u, value: {{}}, takes_ms: {ms}}}]"
)
RETRIED = (
    "{{kind: http, url: u, value: {{}}, takes_ms: {ms}, fail_first: 2, spec: {{policy: {{rules: "
    "[{{when: \"{{{{ output.status == 'error' }}}}\", then: {{do: retry, attempts: 4}}}}]}}}}}}"
)
ONE_TASK = "{{kind: http, url: u, value: {{}}, takes_ms: {ms}}}"


def chain(tool: str, ms: int) -> str:
    steps = [
        {"name": f"s{i}", "next": f", next: s{i + 1}" if i < 5 else "", "tool": tool.format(ms=ms)}
        for i in range(6)
    ]
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: chain}\nworkflow:\n"
    return head + "".join(f"- {{step: {s['name']}, tool: {s['tool']}{s['next']}}}\n" for s in steps)


LARGE = "{{kind: http, url: u, value: {{text: " + "x" * 2000 + "}}, takes_ms: {ms}}}"
"""Its result is stored outside the log, so a crash may fall between result and completion."""

FRAMES = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: frames}\nworkflow:\n"
    "- {step: work, tool: {kind: http, url: u, value: {}, takes_ms: 300}, loop: {in: "
    "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], iterator: row, spec: {mode: parallel, "
    "max_in_flight: 3, frame: {max_rows: 2, heartbeat_seconds: 1, lease_seconds: 5}}}}\n"
)

Meanwhile = Callable[[World], Awaitable[None]]


def paused(seed: int) -> list[str]:
    """Slow two-task steps; workers pause for longer than a lease."""
    return _held(seed, chain(TWO_TASKS, 700), CALM, _pause_workers)


def retried(seed: int) -> list[str]:
    """Slow steps that succeed at the third attempt; workers pause for longer than a lease."""
    return _held(seed, chain(RETRIED, 500), CALM, _pause_workers)


def crashed(seed: int) -> list[str]:
    """Steps with large results; workers die at any await, and the log is slow."""
    return _held(seed, chain(LARGE, 200), SLOW_LOG, _kill_workers, strict_barrier=True)


def slow_acks(seed: int) -> list[str]:
    """Quick steps; half of all acks come after what they led to."""
    return _held(seed, chain(ONE_TASK, 5), SLOW_ACKS)


def doubled_frames(seed: int) -> list[str]:
    """A loop in frames; hints and deliveries come late and again."""
    return _held(seed, FRAMES, DOUBLED)


def doubled(seed: int) -> list[str]:
    """Quick steps; hints and deliveries come late and again, and every request is made twice."""
    return _held(seed, chain(ONE_TASK, 5), DOUBLED, keyed=True)


def _held(seed: int, book: str, plan: FaultPlan, *more: Meanwhile, **kinds: bool) -> list[str]:
    async def main(loop: SimLoop) -> list[str]:
        return await _run(loop, book, plan, *more, **kinds)

    try:
        found: list[str] = run_simulated(seed, main)
    except Exception as error:
        # A log so wrong that not even the checks get through it.
        return [f"{type(error).__name__}: {error}"]
    return found


async def _run(
    loop: SimLoop,
    book: str,
    plan: FaultPlan,
    *meanwhile: Meanwhile,
    keyed: bool = False,
    strict_barrier: bool = False,
) -> list[str]:
    world = World(loop, CALM, conductors=2, leases=False)
    world.strict_barrier = strict_barrier
    world.start_all()
    await world.clock.sleep(0.5)
    world.faults = plan
    ids = []
    for number in range(3):
        asked = Submission(source=book, idempotency_key=f"key-{number}" if keyed else None)
        for _ in range(1 + keyed):
            done = await submit_execution(world.submit_ports, world.scope, "default", asked)
            ids.append(done.execution_id)
    if len(set(ids)) > 3:
        world.violations.append(f"three requests made {len(set(ids))} executions")
    for each in meanwhile:
        await each(world)
    ended = await world.settle(ids, within_s=200)
    world.faults = CALM
    await world.clock.sleep(AFTER_S)
    wrong = [*world.violations, *world.ledger.at_end()]
    if ended and not wrong:
        wrong += await check_read_model(world, sorted(set(ids)))
    return wrong if ended else [*wrong, "not ended"]


async def _pause_workers(world: World) -> None:
    """Freeze one worker after the other for longer than its lease."""
    rng = world.loop.rng
    until = world.loop.time() + TROUBLE_S
    while world.loop.time() < until:
        process = world.processes[rng.choice(["worker/0", "worker/1"])]
        world.loop.freeze(process)
        await world.clock.sleep(LEASE_MS / 1000 + rng.uniform(1, 6))
        world.loop.thaw(process)
        await world.clock.sleep(rng.uniform(0.1, 2))


async def _kill_workers(world: World) -> None:
    """Kill one worker after the other, each in the middle of whatever it does."""
    rng = world.loop.rng
    until = world.loop.time() + TROUBLE_S / 2
    while world.loop.time() < until:
        name = rng.choice(["worker/0", "worker/1"])
        if name in world.live:
            world.crash_at(name, rng.randint(1, 60), lambda n=name: back(world, n))
        await world.clock.sleep(rng.uniform(0.1, 1))
