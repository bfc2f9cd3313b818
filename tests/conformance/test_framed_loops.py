"""Loops over collections above the threshold: frames, and the same rules of section 9."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from noetl_ray.events.types import EventType
from tests.support.conformance import Ended, Runtime

MANY = 1_000


def counts(ended: Ended) -> Counter[EventType]:
    return Counter(event.event_type for event in ended.events)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_p26_many_items_need_few_events_and_results_keep_their_order(runtime: Runtime, mode: str):
    ended = runtime.flow(
        f"""
        - step: start
          loop: {{in: "{{{{ range(workload.many) | list }}}}", iterator: n, spec: {{mode: {mode}, max_in_flight: 7}}}}
          tool: {{kind: noop, result: {{n: "{{{{ iter.n * 2 }}}}", at: "{{{{ _index }}}}"}}}}
          next: {{arcs: [{{step: after, when: "{{{{ event.name == 'loop.done' and start.results | length == workload.many }}}}"}}]}}
        - step: after
          tool:
            kind: noop
            result: ["{{{{ start.results[700].n }}}}", "{{{{ start.stats }}}}", "{{{{ start.count }}}}", "{{{{ start.data | length }}}}", "{{{{ start.last_result.at }}}}"]
          next: {{arcs: [{{step: third, when: "{{{{ start.results[3].n == 6 and start.last_result.n == 1998 }}}}"}}]}}
        - {{step: third}}
        """,
        head=f"workload: {{many: {MANY}}}",
    ).completed()
    stats = {"total": MANY, "success": MANY, "failed": 0}
    assert ended["after"] == [1400, stats, MANY, MANY, MANY - 1]
    assert ended.visits["third"] == 1
    assert [row["n"] for row in ended["start"]["results"]] == [2 * n for n in range(MANY)]
    assert ended["start"]["stats"] == stats
    seen = counts(ended)
    assert seen[EventType.COMMAND_ISSUED] == 1  # the step `after`, and none for an item
    assert seen[EventType.FRAME_COMMITTED] < MANY / 20
    assert seen[EventType.STAGE_OPENED] == seen[EventType.STAGE_CLOSED] == 1


def test_a_sequential_item_sees_what_the_one_before_wrote(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: "{{ range(300) | list }}", iterator: n, spec: {frame: {max_rows: 40}}}
          tool:
            kind: noop
            result: "{{ ctx.sum }}"
            spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.sum: "{{ ctx.sum + iter.n }}"}}}}]}}
          next: {arcs: [{step: after, when: "{{ ctx.sum == 44850 }}"}]}
        - {step: after}
        """,
        head="workload: {sum: 0}",
    ).completed()
    assert ended.visits["after"] == 1
    assert ended["start"]["results"] == [n * (n - 1) // 2 for n in range(300)]
    assert counts(ended)[EventType.FRAME_COMMITTED] == 8


def test_after_a_failed_item_none_begins_and_the_step_fails(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: "{{ range(400) | list }}", iterator: n, spec: {frame: {max_rows: 50}}}
          tool: {kind: python, input: {n: "{{ n }}"}, code: "assert n != 60; result = n"}
          next: {arcs: [{step: after, when: "{{ event.name == 'call.error' }}"}]}
        - step: after
          tool: {kind: noop, result: "{{ start.stats | default('none') }}"}
        """
    ).completed()
    closed = next(e for e in ended.events if e.event_type is EventType.STAGE_CLOSED)
    stats: dict[str, Any] = closed.payload["stats"]
    assert (stats["total"], stats["success"], stats["failed"]) == (400, 60, 1)
    assert closed.payload["status"] == "FAILED"
    committed = [e for e in ended.events if e.event_type is EventType.FRAME_COMMITTED]
    assert [e.payload["row_count"] for e in committed] == [50, 11]
    assert committed[1].payload["errors"][0]["row"] == 60


def test_at_most_max_in_flight_items_run_at_once_over_all_frames(runtime: Runtime, api_url: str):
    ended = runtime.flow(
        f"""
        - step: reset
          tool: {{kind: http, method: POST, url: "{api_url}/api/v1/concurrency/reset"}}
          next: start
        - step: start
          loop: {{in: "{{{{ range(60) | list }}}}", spec: {{mode: parallel, max_in_flight: 6, frame: {{max_rows: 10}}}}}}
          tool: {{kind: http, url: "{api_url}/api/v1/concurrency/probe", params: {{delay_seconds: 0.03}}}}
        """,
        head="executor: {spec: {entry_step: reset}}",
    ).completed()
    assert ended["start"]["stats"]["success"] == 60
    actives = [found["data"]["active_at_start"] for found in ended["start"]["results"]]
    assert 4 <= max(actives) <= 6


def test_iter_is_private_and_break_ends_just_the_item(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: "{{ range(250) | list }}", iterator: n, spec: {mode: parallel}}
          tool:
            - name: first
              kind: noop
              result: {n: "{{ n }}", left: "{{ iter.left | default('nothing') }}"}
              spec:
                policy:
                  rules:
                    - {when: "{{ n % 2 == 0 }}", then: {do: break, set: {iter.left: "{{ n }}"}}}
            - {name: second, kind: noop, result: {odd: true}}
        """
    ).completed()
    results = ended["start"]["results"]
    assert ended["start"]["stats"] == {"total": 250, "success": 250, "failed": 0}
    assert all(row["first"]["left"] == "nothing" for row in results)
    assert [("odd" in row) for row in results] == [n % 2 == 1 for n in range(250)]


def test_large_results_of_items_lie_in_objects_of_their_own(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: [1, 2, 3], iterator: n, spec: {frame: {max_rows: 2}}}
          tool: {kind: python, input: {n: "{{ n }}"}, code: "result = {'n': n, 'text': 'x' * 200000 * n}"}
          next: after
        - step: after
          tool: {kind: noop, result: "{{ start.results[1].text | length }}"}
        """
    ).completed()
    assert ended["after"] == 400_000
    assert [row["n"] for row in ended["start"]["results"]] == [1, 2, 3]


def test_a_frame_over_its_time_gives_the_rest_back(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: "{{ range(12) | list }}", iterator: n, spec: {frame: {max_rows: 12, max_seconds: "{{ 0.2 }}"}}}
          tool: {kind: python, input: {n: "{{ n }}"}, code: "import time; time.sleep(0.06); result = n"}
        """
    ).completed()
    assert ended["start"]["results"] == list(range(12))
    committed = [e for e in ended.events if e.event_type is EventType.FRAME_COMMITTED]
    assert len(committed) > 1
    assert committed[0].payload["row_count"] < 12


def test_with_a_row_barrier_every_row_is_told_once(runtime: Runtime, pg: str):
    ended = runtime.flow(
        f"""
        - step: make
          tool:
            kind: postgres
            auth: {pg}
            command: "CREATE TABLE told (id int, state text DEFAULT 'new'); INSERT INTO told (id) SELECT generate_series(1, 20)"
          next: start
        - step: start
          loop:
            cursor:
              kind: postgres
              auth: {pg}
              claim: |
                UPDATE told SET state = 'claimed' WHERE id IN (SELECT id FROM told WHERE state = 'new'
                  ORDER BY id LIMIT {{{{ __frame_max_rows }}}} FOR UPDATE SKIP LOCKED) RETURNING id
            iterator: job
            spec: {{mode: cursor, frame: {{max_rows: 8, row_concurrency: 4, row_barrier: true}}}}
          tool:
            kind: postgres
            auth: {pg}
            command: "UPDATE told SET state = 'done' WHERE id = {{{{ iter.job.id }}}} AND 1 / (id - 7) < 9"
          next: items
        - step: items
          loop:
            in: "{{{{ range(30) | list }}}}"
            spec: {{mode: parallel, max_in_flight: 4, frame: {{max_rows: 10, row_barrier: true}}}}
          tool: {{kind: noop, result: "{{{{ iter.item * 2 }}}}"}}
        """,
        head="executor: {spec: {entry_step: make}}",
    ).completed()
    assert (ended["start"]["processed"], ended["start"]["failed"]) == (20, 1)
    assert ended["items"]["results"] == [2 * n for n in range(30)]
    told: Counter[tuple[str | None, int]] = Counter()
    appends = 0
    for event in ended.events:
        if event.event_type is EventType.FRAME_ROWS_DONE:
            appends += 1
            told.update((event.frame_id, row["row"]) for row in event.payload["rows"])
    assert len(told) == 50
    assert set(told.values()) == {1}
    assert appends < 50  # rows that finish together share an append


def test_an_arc_of_a_framed_loop_reads_what_its_own_items_gave(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: "{{ range(300) | list }}", iterator: n, spec: {mode: parallel}}
          tool: {kind: noop, result: "{{ n * 2 + ctx.more }}"}
          next: {arcs: [{step: again, when: "{{ start.results[7] == 14 }}"}, {step: good}]}
        - step: again
          tool: {kind: noop}
          set: {ctx.more: 1}
          next: start
        - step: good
          tool: {kind: noop, result: "{{ start.results[7] }}"}
        """,
        head="workload: {more: 0}",
    ).completed()
    assert ended.visits["start"] == 2
    assert ended["good"] == 15
