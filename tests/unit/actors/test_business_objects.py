"""Business objects from a playbook to the log: in the completion's own record, never without it."""

from __future__ import annotations

from typing import Any

from noetl_ray.errors import ToolError
from noetl_ray.events.types import AggregateType, EventType
from tests.unit.actors.rig import Rig, simulated

TWO = """
workload: {shop: north}
workflow:
  - step: sell
    tool:
      - name: reserve
        kind: http
        url: u
        spec:
          business_object:
            type: order
            id: "{{ workload.shop }}-{{ output.id }}"
            status: reserved
      - name: charge
        kind: http
        url: v
        spec:
          business_object:
            type: order
            id: "{{ workload.shop }}-{{ results.reserve.id }}"
            status: "{{ output.state }}"
            attributes: {total: "{{ output.total }}", token: "{{ output.token }}"}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: noop}
"""


@simulated
async def test_rpl_3_objects_travel_in_the_record_of_the_completion(rig: Rig) -> None:
    answers = {"u": {"id": 5}, "v": {"state": "paid", "total": 3, "token": "s3cret-token"}}
    rig.act = lambda config, _t: answers[config["url"]]
    rig.cluster()
    state = await rig.ended(await rig.submit(TWO))
    assert state.status == "COMPLETED"
    said = rig.events(EventType.BUSINESS_OBJECT_RECORDED)
    assert [e.aggregate_id for e in said] == ["business_object/order/north-5"] * 2
    assert {e.aggregate_type for e in said} == {AggregateType.BUSINESS_OBJECT}
    assert [e.payload["status"] for e in said] == ["reserved", "paid"]
    assert [e.payload["task"] for e in said] == ["reserve", "charge"]
    assert said[1].payload["attributes"] == {"total": 3, "token": "***"}
    assert len({e.idempotency_key for e in said}) == 2
    (done,) = rig.events(EventType.CALL_DONE)[:1]
    (record,) = [r.record for r in rig.records() if done in r.record.events]
    assert all(event in record.events for event in said), "atomic with the completion"
    assert record.events[-1].event_type is EventType.COMMAND_COMPLETED
    assert b"s3cret-token" not in rig.bytes()


@simulated
async def test_a_failed_step_keeps_what_its_earlier_tasks_did(rig: Rig) -> None:
    def act(config: Any, _context: Any) -> Any:
        if config["url"] == "u":
            return {"id": 5}
        msg = "declined"
        raise ToolError(msg, "client_error", False, {"status_code": 402})

    rig.act = act
    rig.cluster()
    state = await rig.ended(await rig.submit(TWO))
    assert state.status == "FAILED"
    (said,) = rig.events(EventType.BUSINESS_OBJECT_RECORDED)
    assert said.payload["status"] == "reserved"


@simulated
async def test_a_statement_that_cannot_be_rendered_is_a_warning(rig: Rig) -> None:
    rig.act = lambda config, _t: {"state": "paid"} if config["url"] == "v" else {}
    body = TWO.replace("{{ workload.shop }}-{{ output.id }}", "{{ output.id }}")
    rig.cluster()
    state = await rig.ended(await rig.submit(body))
    assert state.status == "COMPLETED"
    done = rig.events(EventType.CALL_DONE)[0]
    assert done.payload["warnings"] == ["business object of reserve: its id is empty"]
    assert len(rig.events(EventType.BUSINESS_OBJECT_RECORDED)) == 1
