"""Fan-out and reduce: partitions as frames, one value of theirs, whatever the cut."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.events.envelope import Event
from noetl_ray.events.types import EventType
from tests.support.conformance import Ended, Runtime

WORDS = "workload: {words: [ox, bee, cat, ox, dog, bee, ox, eel, cat, ox, bee, fly]}"
COUNT = """
        - step: start
          loop:
            in: "{{ workload.words }}"
            iterator: words
            spec: {mode: fanout, %(spec)s}
            reduce:
              %(reduce)s
              tool:
                kind: python
                input: {acc: "{{ acc }}", part: "{{ part }}"}
                code: |
                  result = dict(acc)
                  for word, times in part.items():
                      result[word] = result.get(word, 0) + times
          tool:
            kind: python
            input: {words: "{{ words }}"}
            code: |
              result = {}
              for word in words:
                  result[word] = result.get(word, 0) + 1
          next: {arcs: [{step: after, when: "{{ event.name == 'loop.done' and start.ox == 4 }}"}]}
        - step: after
          tool: {kind: noop, result: "{{ start }}"}
"""
COUNTED = {"ox": 4, "bee": 3, "cat": 2, "dog": 1, "eel": 1, "fly": 1}


def frames(ended: Ended, kind: str, event_type: EventType) -> list[Event]:
    stages = {
        event.stage_id
        for event in ended.events
        if event.event_type is EventType.STAGE_OPENED and event.payload["kind"] == kind
    }
    return [e for e in ended.events if e.event_type is event_type and e.stage_id in stages]


def digest(value: Any) -> str:
    return sha256_hex(canonical_json(value))


@pytest.mark.parametrize("partitions", [1, 5, 12])
def test_a_fanout_gives_what_one_partition_gives(runtime: Runtime, partitions: int):
    spec = f"partitions: {partitions}, max_in_flight: 3"
    ended = runtime.flow(COUNT % {"spec": spec, "reduce": "initial: {}"}, head=WORDS).completed()
    assert digest(ended["start"]) == digest(COUNTED)
    assert ended["after"] == COUNTED
    seen = frames(ended, "fanout", EventType.FRAME_COMMITTED)
    assert sum(e.payload["row_count"] for e in seen) == 12
    assert len(seen) == -(-12 // -(-12 // partitions))
    last = frames(ended, "reduce", EventType.FRAME_COMMITTED)[-1]
    assert last.payload["value_sha256"] == digest(COUNTED)


def test_stages_of_a_fanout_are_two_and_frames_of_each_are_a_tree(runtime: Runtime):
    spec = "frame: {size: 2}, max_in_flight: 2"
    ended = runtime.flow(COUNT % {"spec": spec, "reduce": "initial: {}"}, head=WORDS).completed()
    opened = [e for e in ended.events if e.event_type is EventType.STAGE_OPENED]
    closed = [e for e in ended.events if e.event_type is EventType.STAGE_CLOSED]
    assert [e.payload["kind"] for e in opened] == ["fanout", "reduce"]
    assert opened[1].payload["parent_stage_id"] == opened[0].stage_id
    assert [e.stage_id for e in closed] == [e.stage_id for e in opened]
    assert {e.payload["status"] for e in closed} == {"COMPLETED"}
    assert closed[1].payload["stats"]["partitions"] == 6
    for stage in opened:
        minted = [
            e
            for e in ended.events
            if e.event_type is EventType.FRAME_DISPATCHED and e.stage_id == stage.stage_id
        ]
        ids = {e.frame_id for e in minted}
        parents = [e.payload["parent_frame_id"] for e in minted]
        assert parents.count(None) == 1
        assert {parent for parent in parents if parent} <= ids
    policy = opened[0].payload["frame_policy"]
    assert (policy["max_rows"], policy["max_seconds"], policy["max_bytes"]) == (2, 5, 16_777_216)


def test_a_slow_reduce_holds_its_fanout_back(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop:
            in: "{{ range(24) | list }}"
            spec: {mode: fanout, max_in_flight: 4, max_outstanding: 6}
            reduce:
              initial: 0
              frame: {max_rows: 2}
              tool:
                kind: python
                input: {acc: "{{ acc }}", part: "{{ part }}"}
                code: "import time; time.sleep(0.03); result = acc + part"
          tool: {kind: noop, result: "{{ iter.item | sum }}"}
        """
    ).completed()
    assert ended["start"] == sum(range(24))
    outstanding, most = 0, 0
    fanned = {e.event_id for e in frames(ended, "fanout", EventType.FRAME_DISPATCHED)}
    taken = {e.event_id: e for e in frames(ended, "reduce", EventType.FRAME_COMMITTED)}
    for event in ended.events:
        outstanding += event.event_id in fanned
        if event.event_id in taken:
            outstanding -= taken[event.event_id].payload["partitions"]
        most = max(most, outstanding)
    assert outstanding == 0
    assert 4 <= most <= 6


def test_a_reduce_that_is_no_stream_sees_all_partitions_at_once(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop:
            in: "{{ range(10) | list }}"
            iterator: n
            spec: {mode: fanout, frame: {size: 3, process: row}, max_in_flight: 4}
            reduce:
              iterator: squares
              stream: false
              tool: {kind: noop, result: {lists: "{{ squares }}", many: "{{ squares | length }}"}}
          tool: {kind: noop, result: "{{ n * n }}"}
        """
    ).completed()
    lists = [[0, 1, 4], [9, 16, 25], [36, 49, 64], [81]]
    assert ended["start"] == {"lists": lists, "many": 4}
    assert len(frames(ended, "reduce", EventType.FRAME_DISPATCHED)) == 1


@pytest.mark.parametrize("stream", ["initial: 7", "stream: false"])
def test_a_fanout_of_nothing_has_a_result(runtime: Runtime, stream: str):
    ended = runtime.flow(
        f"""
        - step: start
          loop:
            in: []
            spec: {{mode: fanout}}
            reduce: {{{stream}, tool: {{kind: noop, result: "{{{{ part | length }}}}"}}}}
          tool: {{kind: noop}}
        """
    ).completed()
    assert ended["start"] == (7 if "7" in stream else 0)


@pytest.mark.parametrize(
    ("body", "reduce", "where"),
    [
        ("assert 4 not in items", "result = 0", "fanout"),
        ("result = 1", "assert part < 0", "reduce"),
    ],
)
def test_a_partition_that_fails_fails_the_step(
    runtime: Runtime, body: str, reduce: str, where: str
):
    ended = runtime.flow(
        f"""
        - step: start
          loop:
            in: "{{{{ range(9) | list }}}}"
            iterator: items
            spec: {{mode: fanout, frame: {{size: 2}}, max_in_flight: 2}}
            reduce:
              tool: {{kind: python, input: {{part: "{{{{ part }}}}"}}, code: "{reduce}"}}
          tool: {{kind: python, input: {{items: "{{{{ items }}}}"}}, code: "{body}"}}
          next: {{arcs: [{{step: after, when: "{{{{ event.name == 'call.error' }}}}"}}]}}
        - step: after
        """
    ).completed()
    assert ended.visits["after"] == 1
    closed = Counter(
        (e.payload["status"], e.stage_id.endswith(".reduce"))
        for e in ended.events
        if e.event_type is EventType.STAGE_CLOSED
    )
    assert sum(closed.values()) == 2
    assert closed["FAILED", True] == 1
    failed = frames(ended, where, EventType.FRAME_COMMITTED)
    assert any("AssertionError" in str(e.payload.get("error")) for e in failed)
