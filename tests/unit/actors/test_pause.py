"""Pause and resume of whole executions over the roles: what runs finishes, nothing new begins."""

from __future__ import annotations

from noetl_ray.events.types import EventType
from noetl_ray.submit import cancel_execution, pause_execution, resume_execution
from tests.unit.actors.rig import Rig, simulated

TWO = """
workflow:
  - {step: a, tool: {kind: http, url: u, takes: 2}, next: b}
  - {step: b, tool: {kind: http, url: u}}
"""
MANY = """
workflow:
  - step: a
    loop: {in: [1, 2, 3, 4, 5, 6, 7, 8], iterator: x, spec: {mode: parallel, max_in_flight: 8}}
    tool: {kind: http, url: u, takes: 1}
"""


def status(rig: Rig, execution_id: int) -> str:
    return rig.state(execution_id).status


@simulated
async def test_what_runs_finishes_and_nothing_new_begins(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(TWO)
    await rig.until(lambda: rig.calls)
    await pause_execution(rig.submit_ports, rig.scope, execution_id, "look first")
    await rig.until(lambda: rig.events(EventType.COMMAND_COMPLETED))
    await rig.clock.sleep(10)
    assert (len(rig.calls), status(rig, execution_id)) == (1, "PAUSED")
    await resume_execution(rig.submit_ports, rig.scope, execution_id)
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert len(rig.calls) == 2


@simulated
async def test_a_pause_survives_a_new_conductor(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(TWO)
    await rig.until(lambda: rig.calls)
    await pause_execution(rig.submit_ports, rig.scope, execution_id, "look first")
    await rig.until(lambda: rig.events(EventType.EXECUTION_PAUSED))
    rig.loop.kill("c")
    rig.start("c2", rig.conductor("c2"))
    await rig.clock.sleep(10)
    assert (len(rig.calls), status(rig, execution_id)) == (1, "PAUSED")
    await resume_execution(rig.submit_ports, rig.scope, execution_id)
    assert (await rig.ended(execution_id)).status == "COMPLETED"


@simulated
async def test_commands_nobody_holds_stay_where_they_are(rig: Rig) -> None:
    """Eight are issued; a worker with two places took four, the rest go on waiting."""
    rig.cluster(slots=2)
    execution_id = await rig.submit(MANY)
    await rig.until(lambda: len(rig.calls) == 2)
    await pause_execution(rig.submit_ports, rig.scope, execution_id, "look first")
    await rig.clock.sleep(10)
    assert (len(rig.calls), len(rig.events(EventType.COMMAND_COMPLETED))) == (4, 4)
    await resume_execution(rig.submit_ports, rig.scope, execution_id)
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert len(rig.calls) == 8


@simulated
async def test_a_command_of_the_dead_is_not_taken_up_before_the_resume(rig: Rig) -> None:
    rig.cluster(workers=2)
    execution_id = await rig.submit(TWO.replace("takes: 2", "takes: 30"))
    await rig.until(lambda: rig.calls)
    await pause_execution(rig.submit_ports, rig.scope, execution_id, "look first")
    await rig.until(lambda: rig.events(EventType.EXECUTION_PAUSED))
    claim = rig.events(EventType.COMMAND_ISSUED)[0].payload["claim"]
    rig.loop.kill(claim["worker_id"])
    await rig.clock.sleep(30)
    assert len(rig.calls) == 1
    await resume_execution(rig.submit_ports, rig.scope, execution_id)
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert len(rig.calls) == 3


@simulated
async def test_a_paused_execution_can_be_cancelled(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(TWO)
    await rig.until(lambda: rig.calls)
    await pause_execution(rig.submit_ports, rig.scope, execution_id, "look first")
    await rig.until(lambda: rig.events(EventType.EXECUTION_PAUSED))
    await cancel_execution(rig.submit_ports, rig.scope, execution_id, "enough")
    assert (await rig.ended(execution_id)).status == "CANCELLED"
