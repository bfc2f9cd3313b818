"""When executions begin: finishing comes first, and nobody waits for long."""

from __future__ import annotations

from typing import Any

from actors.beginning import WAIT_S_MAX, Beginnings
from actors.fleet import OVERCOMMIT, Fleet
from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.types import EventType
from noetl_ray.submit import cancel_execution
from noetl_ray.testing.samples import sample_event
from placement.offer import Place
from tests.unit.actors.rig import Rig, simulated

TWO = """
workflow:
  - {step: a, tool: {kind: http, url: u}, next: b}
  - {step: b, tool: {kind: http, url: u}}
"""


class Line:
    """Beginnings over a fleet of one worker with one slot."""

    def __init__(self, *, workers: bool = True) -> None:
        self.now = 0.0
        self.fleet = Fleet(Place(region="", zone="", node=""), 1_000, lambda: self.now)
        if workers:
            payload = {"worker_id": "w", "incarnation": "i", "slots": 1}
            self.fleet.observe(sample_event(event_type=EventType.WORKER_JOINED, payload=payload))
        self.deciding: set[int] = set()
        self.line = Beginnings(self.fleet, lambda: self.now, lambda: len(self.deciding))

    def asks(self, execution_id: int, **more: Any) -> bool:
        state = ExecutionState(execution_id=execution_id, tenant_id="t", organization_id="o")
        state.pending = more.get("pending", {1: (sample_event(1),)})
        state.control_version = more.get("control_version", 0)
        held = self.line.holds_back(state)
        if not held:
            self.deciding.add(execution_id)
        return held

    def decided(self, execution_id: int) -> None:
        self.deciding.discard(execution_id)
        self.line.settled(execution_id)


def test_there_is_room_for_as_many_as_the_workers_have_commands_to_do() -> None:
    line = Line()
    held = [line.asks(n) for n in range(5)]
    assert held == [n >= OVERCOMMIT for n in range(5)]
    assert line.line.due() == []
    assert len(line.line) == 5 - OVERCOMMIT
    line.decided(0)
    assert line.line.due() == [OVERCOMMIT], "in the order they came"
    assert not line.asks(OVERCOMMIT), "who was let go is not held back again"


def test_what_the_fleet_holds_counts() -> None:
    line = Line()
    for n in range(OVERCOMMIT):
        line.fleet.choose(f"c{n}")
    assert line.asks(1)
    line.fleet.release("w", "c0")
    assert line.line.due() == [1]


def test_nobody_overtakes() -> None:
    line = Line()
    held = [line.asks(n) for n in range(OVERCOMMIT + 1)]
    assert held[-1]
    line.decided(0)
    assert line.asks(99), "there is room, but another came first"
    assert line.line.due() == [OVERCOMMIT]


def test_nobody_waits_for_long() -> None:
    line = Line()
    for n in range(4):
        line.asks(n)
    line.now = WAIT_S_MAX
    assert line.line.due() == [2, 3]


def test_who_has_begun_or_was_told_something_goes_on() -> None:
    line = Line()
    for n in range(4):
        line.asks(n)
    assert not line.asks(7, control_version=3)
    assert not line.asks(3, pending={1: (sample_event(1),), 2: (sample_event(2),)})
    assert len(line.line) == 1


def test_without_workers_nobody_is_held_back() -> None:
    line = Line(workers=False)
    assert not any(line.asks(n) for n in range(100))


def test_who_is_gone_is_forgotten() -> None:
    line = Line()
    for n in range(4):
        line.asks(n)
    for n in range(4):
        line.decided(n)
        line.line.forget(n)
    assert len(line.line) == 0
    assert not line.asks(9)


@simulated
async def test_a_crowd_is_worked_off_instead_of_moving_in_lockstep(rig: Rig) -> None:
    rig.cluster(slots=1)
    submitted = [await rig.submit(TWO) for _ in range(30)]
    for execution_id in submitted:
        assert (await rig.ended(execution_id)).status == "COMPLETED"
    kinds = (EventType.PLAYBOOK_INITIALIZED, EventType.PLAYBOOK_COMPLETED)
    open_now = most = 0
    for event in rig.events(*kinds):
        open_now += 1 if event.event_type is EventType.PLAYBOOK_INITIALIZED else -1
        most = max(most, open_now)
    assert most <= 3 * OVERCOMMIT


@simulated
async def test_p23_a_cancel_does_not_wait_in_line(rig: Rig) -> None:
    async def long(_config: Any, _context: Any) -> Any:
        await rig.clock.sleep(60)

    rig.act = long
    rig.cluster(slots=1)
    for _ in range(OVERCOMMIT + 1):
        last = await rig.submit(TWO)
    await cancel_execution(rig.submit_ports, rig.scope, last, "no")
    assert (await rig.ended(last, within_s=5)).status == "CANCELLED"


@simulated
async def test_workers_that_never_come_free_hold_nobody_back_for_good(rig: Rig) -> None:
    async def long(_config: Any, _context: Any) -> Any:
        await rig.clock.sleep(600)

    rig.act = long
    rig.cluster(slots=1)
    for _ in range(OVERCOMMIT + 3):
        last = await rig.submit(TWO)
    await rig.until(lambda: rig.state(last).control_version > 0, within_s=5)
