"""Results that live in the tier: when they are read, how visits stay apart, what they are made from."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from noetl_ray.errors import ObjectMissingError
from noetl_ray.events.types import EventType
from noetl_ray.readmodel.lineage import newest_of, result_index, step_states
from noetl_ray.readmodel.records import EventRow
from noetl_ray.scope import Scope
from tests.support.conformance import Runtime

pytestmark = pytest.mark.contract

READ_BY_THE_TEST = 1
"""`flow` reads each large result once when the execution has ended, to have its value."""


@contextmanager
def reads_counted(runtime: Runtime, refuse=lambda _key: False):
    """Keys of objects read meanwhile; ``refuse`` makes one look missing."""
    objects, seen = runtime._set.results.objects, []
    before = objects.fault

    async def count(operation, key):
        if operation == "get":
            seen.append(key)
            if refuse(key):
                message = "hidden by the test"
                raise ObjectMissingError(message)
        if before is not None:
            await before(operation, key)

    objects.fault = count
    try:
        yield seen
    finally:
        objects.fault = before


def results_read(keys):
    return [key for key in keys if "/results/" in key]


def rows_of(ended):
    return [
        EventRow(position=n, ordinal=0, shard=0, event=event)
        for n, event in enumerate(ended.events)
    ]


def test_tier_6_routing_over_untruncated_paths_reads_no_object(runtime: Runtime):
    steps = """
        - step: start
          tool:
            kind: python
            code: |
              rows = [{'i': i, 'text': 'x' * 40} for i in range(3000)]
              result = {'status': 'fine', 'total': 3000, 'rows': rows}
          set: {seen: "{{ output.data.total }}"}
          next:
            spec: {mode: exclusive}
            arcs:
              - {step: wrong, when: "{{ start.status == 'bad' }}"}
              - {step: wrong, when: "{{ start.rows[0].i > 0 }}"}
              - {step: right, when: "{{ start.total == 3000 and start.rows | length > 2999 }}"}
        - {step: wrong}
        - step: right
          when: "{{ start.status == 'fine' }}"
          tool: {kind: noop, result: {n: "{{ ctx.seen }}"}}
    """
    with reads_counted(runtime) as keys:
        ended = runtime.flow(steps).completed()
    assert ended["right"] == {"n": 3000}
    assert "wrong" not in ended.visits or ended.visits["wrong"] == 0
    call = ended.of(EventType.CALL_DONE, "start")[0]
    assert call["result"]["tier"] == "json" or call["result"]["reference"]
    assert len(results_read(keys)) == READ_BY_THE_TEST


def test_p27_a_truncated_path_is_resolved_and_not_guessed(runtime: Runtime):
    steps = """
        - step: start
          tool:
            kind: python
            code: |
              result = {'rows': [{'i': i, 'text': 'x' * 40} for i in range(3000)]}
          next:
            spec: {mode: exclusive}
            arcs:
              - {step: right, when: "{{ start.rows[2999].i == 2999 }}"}
              - {step: wrong}
        - {step: wrong}
        - {step: right}
    """
    with reads_counted(runtime) as keys:
        ended = runtime.flow(steps).completed()
    assert ended.visits["right"] == 1
    assert len(results_read(keys)) == READ_BY_THE_TEST + 1


def test_p17_a_step_visited_three_times_keeps_three_results(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          next: page
        - step: page
          tool:
            kind: python
            input: {visit: "{{ ctx.n | default(0) | int }}"}
            code: |
              result = {'visit': visit, 'rows': [{'i': i, 'visit': visit} for i in range(9000)]}
          set: {n: "{{ (ctx.n | default(0) | int) + 1 }}"}
          next:
            spec: {mode: exclusive}
            arcs:
              - {step: page, when: "{{ (ctx.n | int) < 3 }}"}
              - {step: report}
        - step: report
          tool: {kind: noop, result: {last: "{{ page.visit }}"}}
    """).completed()
    calls = ended.of(EventType.CALL_DONE, "page")
    blocks = [call["result"] for call in calls]
    assert len({block["reference"]["uri"] for block in blocks}) == 3
    assert len({block["reference"]["sha256"] for block in blocks}) == 3
    made = runtime._set.results

    async def load(block):
        return await made.load(Scope(), block)

    values = [runtime._wait(load(block)) for block in blocks]
    assert [value["visit"] for value in values] == [0, 1, 2]
    assert [value["rows"][8_999]["visit"] for value in values] == [0, 1, 2]
    assert ended["report"] == {"last": 2}
    index = [row for row in result_index(rows_of(ended)) if row.step_name == "page"]
    assert [row.visit for row in index] == [1, 2, 3]
    assert len({row.step_run_id for row in index}) == 3
    assert step_states(index)["page"]["results"] == 3


def test_res_4_the_index_knows_tasks_attempts_and_items(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: python, code: "result = 1"}
            - {name: two, kind: python, code: "result = 2"}
            - {name: three, kind: python, code: "result = 3"}
          next: each
        - step: each
          loop: {in: [10, 20, 30], iterator: it}
          tool: {kind: noop, result: "{{ iter.it }}"}
    """).completed()
    index = result_index(rows_of(ended))
    first = [row for row in index if row.step_name == "start"]
    assert [row.task_label for row in first] == ["one", "two", None]
    assert [row.parent_ref and row.parent_ref["task"] for row in first] == [None, "one", "two"]
    items = {row.iteration: row for row in index if row.step_name == "each"}
    assert sorted(items) == [0, 1, 2]
    assert {row.status for row in index} == {"ok"}
    assert newest_of(index, "start") == 2
    assert newest_of(index, "nothing") is None


def test_res_9_a_missing_reference_runs_the_task_before_again(runtime: Runtime):
    hidden = []

    def refuse(key):
        if "/artifacts/lost/" not in key or len(hidden) == 2:
            return False
        hidden.append(key)
        return True

    steps = """
        - step: start
          tool:
            - {name: make, kind: artifact, action: put, input: {key: lost/one, value: {a: 1}}}
            - name: take
              kind: artifact
              action: get
              input: {result_ref: lost/one}
              spec:
                policy:
                  rules:
                    - when: "{{ output.error.code == 'REFERENCE_NOT_AVAILABLE' }}"
                      then: {do: jump, to: previous}
    """
    with reads_counted(runtime, refuse) as keys:
        ended = runtime.flow(steps).completed()
    assert len(hidden) == 2
    assert len([key for key in keys if "/artifacts/lost/" in key]) == 3
    assert ended["start"]["a"] == 1
    assert [row.task_label for row in result_index(rows_of(ended))].count("make") >= 1
