"""The simulator has teeth: take one safeguard away and it says so within a few seeds.

Each safeguard is removed by patching the product, and a scenario that leans on it is run seed after
seed until an invariant breaks. The same seeds hold with the safeguard in place. Seeds that caught a
mutation when this was written stand beside it; the search goes on past them, since a change of
timing elsewhere moves which seed it is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors import dispatcher
from actors.command_run import CommandRun
from actors.lease import WorkerLease
from actors.worker import Worker
from noetl_ray.submit import Submission, submit_execution
from noetl_ray.testing.simloop import SimLoop, run_simulated
from noetl_ray.wal.memory import MemoryLog
from tests.simulation.invariants import check_log
from tests.simulation.world import CALM, FaultPlan, World

SEEDS_MAX = 40
SEEDS_HELD = 15
PAUSES_S = 40.0
SLOW_ACKS = FaultPlan(slow_log=0.5, slow_delivery=0.2)

TWO_TASKS = "[{{name: one, kind: http, url: u, value: {{}}, takes_ms: {ms}}}, " + (
    "{{name: two, kind: http, url: u, value: {{}}, takes_ms: {ms}}}]"
)
ONE_TASK = "{{kind: http, url: u, value: {{}}, takes_ms: {ms}}}"


def chain(tool: str, ms: int) -> str:
    steps = [
        {"name": f"s{i}", "next": f", next: s{i + 1}" if i < 5 else "", "tool": tool.format(ms=ms)}
        for i in range(6)
    ]
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: chain}\nworkflow:\n"
    return head + "".join(f"- {{step: {s['name']}, tool: {s['tool']}{s['next']}}}\n" for s in steps)


async def _run(loop: SimLoop, book: str, plan: FaultPlan, *, pauses: bool) -> list[str]:
    world = World(loop, CALM, conductors=2, leases=False)
    world.start_all()
    await world.clock.sleep(0.5)
    ids = []
    for _ in range(3):
        asked = Submission(source=book)
        done = await submit_execution(world.submit_ports, world.scope, "default", asked)
        ids.append(done.execution_id)
    world.faults = plan
    if pauses:
        await _pause_workers(world)
    ended = await world.settle(ids, within_s=200)
    world.faults = CALM
    await world.clock.sleep(25)
    wrong = list(world.violations) + check_log(world.log)
    return wrong if ended else [*wrong, "not ended"]


async def _pause_workers(world: World) -> None:
    """Freeze one worker after the other for longer than its lease."""
    rng = world.loop.rng
    until = world.loop.time() + PAUSES_S
    while world.loop.time() < until:
        process = world.processes[rng.choice(["worker/0", "worker/1"])]
        world.loop.freeze(process)
        await world.clock.sleep(rng.uniform(11, 16))
        world.loop.thaw(process)
        await world.clock.sleep(rng.uniform(0.1, 2))


def paused(seed: int) -> list[str]:
    """Slow two-task steps; workers pause for longer than a lease."""
    book = chain(TWO_TASKS, 700)
    return _held(seed, lambda loop: _run(loop, book, CALM, pauses=True))


def slow_acks(seed: int) -> list[str]:
    """Quick steps; half of all acks come after what they led to."""
    book = chain(ONE_TASK, 5)
    return _held(seed, lambda loop: _run(loop, book, SLOW_ACKS, pauses=False))


def _held(seed: int, main: Callable[[SimLoop], Any]) -> list[str]:
    try:
        found: list[str] = run_simulated(seed, main)
    except Exception as error:
        # A log so wrong that not even the checks get through it.
        return [f"{type(error).__name__}: {error}"]
    return found


def caught_by(scenario: Callable[[int], list[str]]) -> int | None:
    """The first seed under which an invariant breaks."""
    return next((seed for seed in range(SEEDS_MAX) if scenario(seed)), None)


def _unversioned(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    real = MemoryLog.append

    async def append(self: Any, subject: str, record: Any, *, expected_version: Any) -> int:
        expected = None if part in subject else expected_version
        return await real(self, subject, record, expected_version=expected)

    monkeypatch.setattr(MemoryLog, "append", append)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("scenario", [paused, slow_acks])
def test_the_seeds_hold_while_every_safeguard_is_there(
    scenario: Callable[[int], list[str]],
) -> None:
    for seed in range(SEEDS_HELD):
        assert scenario(seed) == [], f"seed {seed}"


def test_p3_an_append_to_control_without_its_version_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Caught by every seed."""
    _unversioned(monkeypatch, ".control")
    assert caught_by(slow_acks) is not None


def test_p16_a_completion_without_its_version_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by seeds 0, 1, 7, 11, 15, 17, 18, 21 …"""
    _unversioned(monkeypatch, ".cmd-")
    assert caught_by(paused) is not None


def test_p22_a_worker_that_does_not_check_its_lease_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Caught by seeds 3, 4, 7, 8, 10, 14, 19, 21 …"""

    async def ensure(_self: WorkerLease) -> None:
        return

    monkeypatch.setattr(WorkerLease, "ensure", ensure)
    assert caught_by(paused) is not None


def test_p16_an_offer_after_the_completion_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by seeds 0, 1, 2, 3, 5, 6, 7, 8 …

    The worker knows the version of its own completion too, so both have to look away.
    """
    real, see = dispatcher._returned, Worker._see

    def returned(state: Any, command: Any) -> bool:
        # Only the check in `offer` goes; the sweep keeps its own.
        return sys._getframe(1).f_code.co_name != "offer" and real(state, command)

    def of_offers(self: Worker, command_id: str, version: int) -> None:
        if sys._getframe(1).f_code.co_name != "advanced":
            see(self, command_id, version)

    monkeypatch.setattr(dispatcher, "_returned", returned)
    monkeypatch.setattr(Worker, "_see", of_offers)
    assert caught_by(slow_acks) is not None


def test_p18_a_holder_that_ignores_the_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by seeds 0, 1, 2, 3, 4, 5, 6, 7 …"""

    async def recorded(_self: CommandRun) -> None:
        return None

    monkeypatch.setattr(CommandRun, "_recorded", recorded)
    assert caught_by(paused) is not None
