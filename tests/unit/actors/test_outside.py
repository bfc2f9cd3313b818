"""What comes from outside, among live roles: claims by name, events in the inbox."""

from __future__ import annotations

import pytest

from noetl_ray.errors import ConflictError
from noetl_ray.events.types import EventType
from noetl_ray.submit.commands import claim_command
from noetl_ray.submit.outside import OutsideFact, tell
from tests.unit.actors.rig import LEASE_MS, ONE, Rig, simulated


@simulated
async def test_p16_a_command_given_to_a_worker_by_name_runs_there_once(rig: Rig) -> None:
    rig.cluster(slots=1)
    await rig.clock.sleep(1)
    running = [await rig.submit(ONE % 20) for _ in range(3)]
    await rig.until(lambda: len(rig.events(EventType.COMMAND_ISSUED)) == 3)
    (waiting,) = [
        (r.position, event)
        for r in rig.records()
        for event in r.record.events
        if event.event_type is EventType.COMMAND_ISSUED and not event.payload.get("claim")
    ]
    position, issued = waiting
    given = {"issued_position": position, "worker_id": "w1", "lease_ms": LEASE_MS}
    command_id = issued.command_id or ""
    with pytest.raises(ConflictError, match="has not joined"):
        await claim_command(
            rig.submit_ports,
            rig.scope,
            issued.execution_id,
            command_id,
            incarnation="other",
            **given,
        )
    claimed = await claim_command(
        rig.submit_ports, rig.scope, issued.execution_id, command_id, incarnation="i1", **given
    )
    assert claimed.attempt == 1
    for execution_id in running:
        assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert len(rig.calls) == 3
    claims = [e for e in rig.events(EventType.COMMAND_CLAIMED) if e.command_id == command_id]
    assert len(claims) == 1
    with pytest.raises(ConflictError, match="has ended"):
        await claim_command(
            rig.submit_ports, rig.scope, issued.execution_id, command_id, incarnation="i1", **given
        )


@simulated
async def test_p10_events_from_outside_disturb_no_decision(rig: Rig) -> None:
    rig.cluster()
    execution_id = await rig.submit(ONE % 5)
    await rig.until(lambda: rig.calls)
    for number in range(3):
        facts = [OutsideFact(name="ping", data={"n": number})]
        await tell(rig.submit_ports, rig.scope, execution_id, facts, batch=False)
    state = await rig.ended(execution_id)
    assert state.status == "COMPLETED"
    assert not state.pending
    told = rig.events(EventType.EXTERNAL_RECEIVED)
    assert [event.payload["data"]["n"] for event in told] == [0, 1, 2]
    known = {event.event_id for event in rig.events()}
    assert all(event.prev_event_id in known for event in told)
    with pytest.raises(ConflictError, match="has ended"):
        await tell(
            rig.submit_ports, rig.scope, execution_id, [OutsideFact(name="late")], batch=False
        )
