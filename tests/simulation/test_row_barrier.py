"""Workers killed half way through a loop of a thousand items, with and without a row barrier."""

from __future__ import annotations

from collections import Counter

import pytest

from noetl_ray.events.types import EventType
from noetl_ray.submit import Submission, submit_execution
from noetl_ray.testing.simloop import SimLoop, run_simulated
from tests.simulation.invariants import fold_all, records
from tests.simulation.world import World

ITEMS = 1_000
KILLS = 3
BOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: barrier}}
workflow:
  - step: work
    loop:
      {source}
      iterator: row
      spec: {{mode: {mode}, {more}, frame: {{{frame}}}}}
    tool: {{kind: http, url: effect, value: {{n: "{{{{ row.id | default(row) }}}}"}}, takes_ms: 20}}
    next: {{arcs: [{{step: good, when: "{{{{ event.name == 'loop.done' }}}}"}}]}}
  - step: good
"""
CLAIM = "claim {{ __frame_max_rows }}"
SOURCES = {
    "sequential": f'in: "{{{{ range({ITEMS}) | list }}}}"',
    "parallel": f'in: "{{{{ range({ITEMS}) | list }}}}"',
    "cursor": f"cursor: {{kind: postgres, rows: {ITEMS}, claim: '{CLAIM}'}}",
}
IN_FLIGHT = {"sequential": 1, "parallel": 8, "cursor": 4}


def book(mode: str, *, barrier: bool) -> str:
    """One loop; frames large enough that a kill always hits the middle of one."""
    at_once = {"sequential": 1, "parallel": 8, "cursor": 2}[mode]
    frame = f"max_rows: 250, max_seconds: 300, row_barrier: {str(barrier).lower()}"
    if mode == "cursor":
        frame += ", row_concurrency: 2"
    return BOOK.format(
        source=SOURCES[mode], mode=mode, more=f"max_in_flight: {at_once}", frame=frame
    )


async def _run(loop: SimLoop, text: str) -> tuple[list[str], int, int, Counter[int], list[int]]:
    world = World(loop)
    world.start_all()
    await world.clock.sleep(0.5)
    done = await submit_execution(
        world.submit_ports, world.scope, "default", Submission(source=text)
    )
    for turn in range(1, KILLS + 1):
        while world.effects.total() < turn * ITEMS // (KILLS + 1):
            await world.clock.sleep(0.05)
        for name in ("worker/0", "worker/1"):
            world.crash(name)
            world.start(name)
    ended = await world.settle([done.execution_id], within_s=600)
    wrong = [*world.violations, *world.ledger.at_end(), *([] if ended else ["not ended"])]
    given = records(world.log)
    told: Counter[int] = Counter()
    counts = []
    for recorded in given:
        for event in recorded.record.events:
            if event.event_type is EventType.FRAME_ROWS_DONE:
                told.update(hash((event.frame_id, row["row"])) for row in event.payload["rows"])
            elif event.event_type is EventType.FRAME_COMMITTED:
                counts.append(event.payload["row_count"])
    state = fold_all(given)[done.execution_id]
    assert state.final_step == "good", state.error
    world.stop()
    return wrong, world.effects.total(), len(world.effects), told, counts


@pytest.mark.parametrize("mode", ["sequential", "parallel", "cursor"])
def test_p19_a_row_barrier_repeats_no_finished_row(mode: str):
    text = book(mode, barrier=True)
    wrong, effects, items, told, counts = run_simulated(3, lambda loop: _run(loop, text))
    assert wrong == []
    assert items == ITEMS == sum(counts)
    # What was under way when its worker died may have happened; what had finished happens once.
    assert effects - ITEMS <= KILLS * IN_FLIGHT[mode]
    assert len(told) == ITEMS
    assert set(told.values()) == {1}


def test_without_a_row_barrier_the_frame_is_what_is_repeated():
    text = book("sequential", barrier=False)
    wrong, effects, items, told, _counts = run_simulated(3, lambda loop: _run(loop, text))
    assert wrong == []
    assert (items, len(told)) == (ITEMS, 0)
    assert effects - ITEMS > 10 * KILLS
