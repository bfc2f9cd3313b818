"""Frames of a collection while conductor and worker die at the worst moments."""

from __future__ import annotations

from collections import Counter

from noetl_ray.events.envelope import Record
from noetl_ray.events.types import FRAME_TERMINAL, AggregateType, EventType
from tests.unit.actors.rig import Rig, simulated

ITEMS = 40
BOOK = """
workflow:
  - step: work
    loop:
      in: "{{ range(40) | list }}"
      spec: {mode: parallel, max_in_flight: 4, frame: {max_rows: 5, lease_seconds: 20}}
    tool: {kind: http, url: u, takes: 0.1, value: {}}
    next: good
  - step: good
"""


def _check(rig: Rig, dispatched: int) -> None:
    minted = [e for e in rig.events(EventType.FRAME_DISPATCHED) if "parent_frame_id" in e.payload]
    assert len(minted) == len({e.frame_id for e in minted}) == dispatched
    ends = Counter(e.frame_id for kind in FRAME_TERMINAL for e in rig.events(kind))
    assert ends == {e.frame_id: 1 for e in minted}
    rows = [e.payload["row_count"] for e in rig.events(EventType.FRAME_COMMITTED)]
    assert sum(rows) == ITEMS


@simulated
async def test_a_conductor_killed_between_decision_and_dispatch_loses_no_frame(rig: Rig) -> None:
    """Its decision is in the log and no worker has heard of it; the next conductor tells them."""
    rig.cluster(slots=4)
    stuck: list[str] = []

    async def never_answered(subject: str, record: Record) -> None:
        first = record.events[0]
        dispatches = any(e.event_type is EventType.FRAME_DISPATCHED for e in record.events)
        if dispatches and first.aggregate_type is AggregateType.EXECUTION and not stuck:
            stuck.append(subject)
            await rig.clock.sleep(10_000)

    rig.on_ack = never_answered
    execution_id = await rig.submit(BOOK)
    await rig.until(lambda: stuck)
    rig.loop.kill("c")
    assert rig.calls == []
    rig.start("c2", rig.conductor("c2"))
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    _check(rig, ITEMS // 5)
    assert len(rig.calls) == ITEMS


@simulated
async def test_a_worker_killed_in_the_middle_of_frames_repeats_those_and_no_other(
    rig: Rig,
) -> None:
    rig.cluster(slots=4)
    execution_id = await rig.submit(BOOK)
    await rig.until(lambda: len(rig.calls) >= 10)
    rig.loop.kill("w1")
    held = {e.frame_id for e in rig.events(EventType.FRAME_STARTED)}
    held -= {e.frame_id for e in rig.events(EventType.FRAME_COMMITTED)}
    rig.start("w1b", rig.worker("w1", "i2", slots=4, process="w1b"))
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    _check(rig, ITEMS // 5)
    abandoned = {e.frame_id for e in rig.events(EventType.FRAME_ABANDONED)}
    assert abandoned
    assert held <= abandoned
    times = Counter(call.idempotency_key for call in rig.calls)
    assert len(times) == ITEMS
    assert {key.split("/")[0] for key, n in times.items() if n > 1} <= abandoned
