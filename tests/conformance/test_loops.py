"""Loops over collections and over rows that a query claims (section 9)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.dsl.parse import check_playbook
from noetl_ray.events.types import EventType
from tests.support.conformance import Ended, Runtime, playbook


def looped(runtime: Runtime, loop: str, result: str, head: str = "") -> dict[str, Any]:
    """The result of a loop whose iterations give ``result``, and what its arc saw."""
    ended = runtime.flow(
        f"""
        - step: start
          loop: {loop}
          tool: {{kind: noop, result: {result}}}
          next: {{arcs: [{{step: after, when: "{{{{ event.name == 'loop.done' }}}}"}}]}}
        - {{step: after}}
        """,
        head=head,
    ).completed()
    assert ended.visits["after"] == 1
    return dict(ended["start"])


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_results_come_in_the_order_of_the_collection_with_stats(runtime: Runtime, mode: str):
    ended = runtime.flow(
        f"""
        - step: start
          loop: {{in: "{{{{ workload.waits }}}}", iterator: wait, spec: {{mode: {mode}, max_in_flight: 3, policy: {{exec: local}}}}}}
          tool:
            kind: python
            input: {{wait: "{{{{ iter.wait }}}}"}}
            code: "import time; time.sleep(wait); result = {{'waited': wait}}"
          next: after
        - step: after
          tool:
            kind: noop
            result:
              - "{{{{ start.results | length }}}}"
              - "{{{{ start.stats }}}}"
              - "{{{{ start.data[0].waited }}}}"
              - "{{{{ start.count }}}}"
              - "{{{{ start.last_result.waited }}}}"
          next: {{arcs: [{{step: same, when: "{{{{ start.data | length == 3 and start.stats.failed == 0 }}}}"}}]}}
        - {{step: same}}
    """,
        head="workload: {waits: [0.2, 0.1, 0]}",
    ).completed()
    stats = {"total": 3, "success": 3, "failed": 0}
    results = [{"waited": 0.2}, {"waited": 0.1}, {"waited": 0}]
    assert ended["start"] == {
        "results": results,
        "stats": stats,
        "count": 3,
        "last_result": {"waited": 0},
    }
    assert ended["after"] == [3, stats, 0.2, 3, 0]
    assert ended.visits["same"] == 1


def test_a_loops_result_handed_to_code_has_its_list_as_data(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, loop: {in: [1, 2]}, tool: {kind: noop, result: "{{ item * 10 }}"}, next: code}
        - step: code
          tool: {kind: python, input: {all: "{{ start }}", rows: "{{ start.data }}"}, code: "result = [all.get('data'), rows, all['stats']['total']]"}
    """).completed()
    assert ended["code"] == [[10, 20], [10, 20], 2]


def test_the_default_mode_is_sequential(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [1, 2, 3]}
          tool: {kind: noop}
    """).completed()
    kinds = [
        e.event_type
        for e in ended.events
        if e.event_type in (EventType.COMMAND_ISSUED, EventType.CALL_DONE)
    ]
    assert kinds == [EventType.COMMAND_ISSUED, EventType.CALL_DONE] * 3


@pytest.mark.parametrize(
    ("items", "seen"),
    [
        ("[]", []),
        ('""', []),
        ('"{{ nobody }}"', []),
        ('"{{ none }}"', []),
        ('"{{ workload.map }}"', [{"a": 1, "b": 2}]),
        ('"{{ workload.text }}"', ["one text"]),
        ('"{{ workload.list }}"', [1, [2], {"c": 3}]),
        ('["{{ 1 + 1 }}", x]', [2, "x"]),
        ('"{{ range(3) | list }}"', [0, 1, 2]),
    ],
)
def test_what_a_loop_goes_over(runtime: Runtime, items: str, seen: list[Any]):
    head = "workload: {map: {a: 1, b: 2}, text: one text, list: [1, [2], {c: 3}]}"
    found = looped(runtime, f"{{in: {items}, iterator: it}}", '"{{ iter.it }}"', head)
    assert found["results"] == seen
    assert found["stats"] == {"total": len(seen), "success": len(seen), "failed": 0}


def test_an_empty_loop_is_done_at_once(runtime: Runtime):
    found = looped(runtime, "{in: []}", "1")
    assert found == {
        "results": [],
        "stats": {"total": 0, "success": 0, "failed": 0},
        "count": 0,
        "last_result": None,
    }


def test_names_of_an_iteration(runtime: Runtime):
    found = looped(
        runtime,
        "{in: [a, b], iterator: letter, spec: {mode: parallel}}",
        '["{{ iter.letter }}", "{{ letter }}", "{{ iter._index }}", "{{ iter.index }}", "{{ iter._first }}", '
        '"{{ iter._last }}", "{{ _index }}", "{{ loop_index }}", "{{ _total }}"]',
    )
    assert found["results"] == [
        ["a", "a", 0, 0, True, False, 0, 0, 2],
        ["b", "b", 1, 1, False, True, 1, 1, 2],
    ]


def test_code_of_an_iteration_has_its_names(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [5, 6], iterator: number}
          tool: {kind: python, code: "result = [number, loop_index, _index, _total]"}
    """).completed()
    assert ended["start"]["results"] == [[5, 0, 0, 2], [6, 1, 1, 2]]


@pytest.mark.parametrize("limit", ["2", '"{{ workload.limit }}"'])
def test_at_most_max_in_flight_run_at_once(runtime: Runtime, api_url: str, limit: str):
    ended = runtime.flow(
        f"""
        - step: reset
          tool: {{kind: http, method: POST, url: "{api_url}/api/v1/concurrency/reset"}}
          next: start
        - step: start
          loop: {{in: [1, 2, 3, 4, 5], spec: {{mode: parallel, max_in_flight: {limit}}}}}
          tool: {{kind: http, url: "{api_url}/api/v1/concurrency/probe", params: {{delay_seconds: 0.1}}}}
    """,
        head="workload: {limit: 2}\nexecutor: {spec: {entry_step: reset}}",
    ).completed()
    actives = [found["data"]["active_at_start"] for found in ended["start"]["results"]]
    assert max(actives) == 2


def test_iter_is_private_to_its_iteration(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 3}}
          tool:
            - name: one
              kind: noop
              spec: {policy: {rules: [{else: {do: continue, set: {iter.mine: "{{ (iter.mine | default(0)) + iter.n }}"}}}]}}
            - {name: two, kind: noop, result: "{{ iter.mine }}"}
    """).completed()
    assert [found["two"] for found in ended["start"]["results"]] == [1, 2, 3]
    assert ended.ctx == {}


def test_sequential_iterations_see_what_the_one_before_wrote(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [1, 2, 3], iterator: n}
          tool:
            kind: noop
            spec: {policy: {rules: [{else: {do: continue, set: {ctx.all: "{{ (ctx.all | default([])) + [iter.n] }}"}}}]}}
    """).completed()
    assert ended.ctx == {"all": [1, 2, 3]}


def test_of_parallel_iterations_the_last_writer_wins(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 3}}
          tool:
            kind: noop
            spec: {policy: {rules: [{else: {do: continue, set: {ctx.last: "{{ iter.n }}"}}}]}}
    """).completed()
    assert ended.ctx["last"] in (1, 2, 3)
    done = ended.of(EventType.CALL_DONE, "start")
    assert ended.ctx["last"] == done[-1]["set"]["last"]


def test_the_body_is_the_whole_pipeline_and_break_ends_one_iteration(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [1, 2, 3], iterator: n}
          tool:
            - name: claim
              kind: noop
              result: {n: "{{ iter.n }}"}
              spec: {policy: {rules: [{when: "{{ iter.n == 2 }}", then: {do: break}}]}}
            - {name: work, kind: noop, result: {done: "{{ claim.n * 10 }}"}}
    """).completed()
    found = ended["start"]
    assert [one.get("done") for one in found["results"]] == [10, None, 30]
    assert found["stats"] == {"total": 3, "success": 3, "failed": 0}


def test_a_failed_iteration_lets_others_finish_and_starts_no_more(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [1, 2, 3, 4, 5, 6], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
          tool:
            kind: python
            input: {n: "{{ iter.n }}"}
            code: |
              import time
              if n == 1:
                  raise ValueError("first")
              time.sleep(0.4)
              result = n
          next:
            arcs:
              - step: after
                when: "{{ event.name == 'call.error' }}"
                set: {ctx.stats: "{{ output.data.stats }}", ctx.why: "{{ output.error.message }}"}
              - {step: never, when: "{{ event.name == 'loop.done' }}"}
        - {step: after}
        - {step: never}
    """).completed()
    assert "first" in ended.ctx["why"]
    assert ended.ctx["stats"]["failed"] == 1
    assert ended.ctx["stats"]["success"] < 5
    assert set(ended.visits) == {"start", "after"}


def test_a_collection_that_cannot_be_worked_out_fails_the_step_by_name(runtime: Runtime):
    ended = runtime.flow("""
        - step: gather
          loop: {in: "{{ 1 // 0 }}"}
          tool: {kind: noop}
    """).failed()
    assert ended.error["step"] == "gather"
    assert ended.error["kind"] == "template"


def test_a_loop_goes_over_rows_of_a_large_result(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: python, code: "result = {'rows': [{'i': i, 'text': 'x' * 9000} for i in range(20)]}"}
          next: each
        - step: each
          loop: {in: "{{ start.rows }}", iterator: row, spec: {mode: parallel, max_in_flight: 5}}
          tool: {kind: noop, result: "{{ iter.row.i }}"}
    """).completed()
    assert ended["each"]["results"] == list(range(20))


def test_a_loop_without_a_tool_gives_empty_mappings(runtime: Runtime):
    ended = runtime.flow("- {step: start, loop: {in: [1, 2]}}").completed()
    assert ended["start"]["results"] == [{}, {}]


CURSOR = """
- step: start
  loop:
    cursor:
      kind: postgres
      auth: pg_local
      claim: "UPDATE q SET claimed = true WHERE id IN (SELECT id FROM q LIMIT {{ __frame_max_rows | default(1) | int }}) RETURNING *"
    iterator: patient
    spec:
      mode: cursor
      max_in_flight: 2
      frame: {FRAME}
  tool: {kind: noop}
"""


def problems(frame: str, change: tuple[str, str] = ("", "")) -> list[str]:
    """What is said of a cursor loop."""
    text = CURSOR.replace("FRAME", frame)
    text = text.replace(*change) if change[0] else text
    found = check_playbook(playbook(text))
    return [f"{p.severity} {p.line}: {p.message} ({p.hint})" for p in found]


@pytest.mark.parametrize(
    "frame",
    [
        "max_rows: 50, process: row, row_concurrency: 1, max_seconds: 30, max_bytes: 1000000",
        "process: frame, lease_seconds: '{{ workload.lease }}', heartbeat_seconds: 5",
        "size: 50, duration_ms: 30000, memory_bytes: 1000000, parallelism: 4",
    ],
)
def test_cursor_loops_are_read_with_all_their_keys(frame: str):
    assert problems(frame) == []


@pytest.mark.parametrize(
    ("frame", "change", "told"),
    [
        (
            "max_row: 5",
            ("", ""),
            "warning 16: a frame has no key 'max_row' (did you mean 'max_rows'?)",
        ),
        (
            "max_rows: 0",
            ("", ""),
            "error 16: 'max_rows' must be a whole number above 0, or a template ()",
        ),
        ("process: table", ("", ""), "error 16: unknown process 'table' (use row or frame)"),
        (
            "max_rows: 5",
            ("claim:", "clam:"),
            "error 9: the cursor has no 'claim' (did you mean 'claim'?)",
        ),
        (
            "max_rows: 5",
            ("kind: postgres", "kind: postgers"),
            "error 9: unknown cursor kind 'postgers' (did you mean 'postgres'?)",
        ),
        (
            "max_rows: 5, size: 6",
            ("", ""),
            "error 16: 'size' and 'max_rows' are two names of one thing (write max_rows)",
        ),
        (
            "max_rows: 5",
            ("mode: cursor", "mode: parallel"),
            "error 8: a cursor needs the mode 'cursor' (write spec: {mode: cursor})",
        ),
    ],
)
def test_mistakes_in_cursor_loops_are_told_with_line_and_suggestion(
    frame: str, change: tuple[str, str], told: str
):
    assert told in problems(frame, change)


QUEUE = """
- step: start
  tool:
    kind: postgres
    auth: "{{ workload.pg }}"
    command: |
      DROP TABLE IF EXISTS NAME;
      CREATE TABLE NAME (page int PRIMARY KEY, state text DEFAULT 'new', seen int);
      INSERT INTO NAME (page) SELECT generate_series(1, 5);
  next: drain
- step: drain
  loop:
    cursor:
      kind: postgres
      auth: "{{ workload.pg }}"
      claim: |
        UPDATE NAME SET state = 'claimed' WHERE page IN (
          SELECT page FROM NAME WHERE state = 'new' ORDER BY page
          LIMIT {{ __frame_max_rows | default(1) | int }} FOR UPDATE SKIP LOCKED)
        RETURNING page
    iterator: item
    spec: {mode: cursor, max_in_flight: SLOTS, frame: {FRAME}}
  tool:
BODY
  next: {arcs: [{step: look, when: "{{ event.name == 'loop.done' }}"}]}
- step: look
  tool:
    kind: postgres
    auth: "{{ workload.pg }}"
    query: "SELECT page, state, seen FROM NAME ORDER BY page"
"""
ROW = """
    - name: mark
      kind: postgres
      auth: "{{ workload.pg }}"
      command: |
        UPDATE NAME SET state = 'done', seen = {{ iter.item.page }} * 10 WHERE page = {{ item.page }};
        INSERT INTO NAME (page) SELECT 6 WHERE {{ iter.item.page }} = 5 ON CONFLICT DO NOTHING;
"""
FRAME = """
    - name: mark
      kind: postgres
      auth: "{{ workload.pg }}"
      command: |
        UPDATE NAME SET state = 'done', seen = {{ frame.row_count }}
        WHERE page IN ({{ iter.item_rows | map(attribute='page') | join(', ') }});
"""
FAILING = """
    - name: fail_three
      kind: python
      input: {page: "{{ iter.item.page }}"}
      code: "if page == 3: raise ValueError(page)"
    - name: mark
      kind: postgres
      auth: "{{ workload.pg }}"
      command: UPDATE NAME SET state = 'done', seen = 1 WHERE page = {{ iter.item.page }}
"""


def drained(runtime: Runtime, pg: str, name: str, body: str, frame: str, slots: int = 1) -> Ended:
    """A queue worked off by a cursor loop."""
    text = QUEUE.replace("BODY", body.strip("\n")).replace("NAME", name)
    text = text.replace("FRAME", frame).replace("SLOTS", str(slots))
    return runtime.flow(text, payload={"pg": pg}).completed()


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("frame", ["max_rows: 2", "size: 2, parallelism: 2"])
def test_a_cursor_loop_claims_again_until_no_row_is_left(
    runtime: Runtime, pg: str, frame: str, slots: int
):
    ended = drained(runtime, pg, "rows_queue", ROW, frame, slots)
    assert ended["look"]["rows"] == [
        {"page": page, "state": "done", "seen": page * 10} for page in range(1, 7)
    ]
    assert (ended["drain"]["processed"], ended["drain"]["failed"]) == (6, 0)
    assert ended["drain"]["status"] == "ok"


def test_a_frame_may_be_worked_off_as_a_whole(runtime: Runtime, pg: str):
    ended = drained(runtime, pg, "frame_queue", FRAME, "max_rows: 3, process: frame")
    assert [row["seen"] for row in ended["look"]["rows"]] == [3, 3, 3, 2, 2]
    assert ended["drain"]["frame_count"] == 2


def test_a_failed_row_neither_stops_nor_fails_a_cursor_loop(runtime: Runtime, pg: str):
    ended = drained(runtime, pg, "failing_queue", FAILING, "max_rows: 2")
    assert [row["state"] for row in ended["look"]["rows"]] == [
        "done",
        "done",
        "claimed",
        "done",
        "done",
    ]
    assert ended["drain"]["status"] == "partial"
    assert (ended["drain"]["processed"], ended["drain"]["failed"]) == (5, 1)


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        ("{iterator: x}", "the loop has neither 'in' nor 'cursor'"),
        (
            "{in: [1], cursor: {kind: postgres, claim: SELECT 1}, spec: {mode: cursor}}",
            "a loop takes 'in' or 'cursor', not both",
        ),
        ("{cursor: {kind: postgres, claim: SELECT 1}}", "a cursor needs the mode 'cursor'"),
        (
            "{in: [1], spec: {mode: cursor}}",
            "the loop mode 'cursor' needs a 'cursor' instead of 'in'",
        ),
    ],
)
def test_a_loop_has_one_source_and_the_mode_that_goes_with_it(loop: str, message: str):
    found = check_playbook(playbook(f"- {{step: start, loop: {loop}, tool: {{kind: noop}}}}"))
    assert message in [p.message for p in found]
