"""Ways to page through an API, and older words for things (sections 14 and 15)."""

from __future__ import annotations

from tests.support.conformance import Runtime


def test_a_step_cycle_pages_by_offset(runtime: Runtime, api_url: str):
    ended = runtime.flow(
        """
        - step: start
          set: {ctx.offset: 0, ctx.ids: []}
          next: fetch
        - step: fetch
          tool: {kind: http, url: "{{ workload.api }}/api/v1/users", params: {offset: "{{ ctx.offset }}", limit: 10}}
          set:
            ctx.offset: "{{ ctx.offset + 10 }}"
            ctx.ids: "{{ ctx.ids + (output.data.users | map(attribute='id') | list) }}"
            ctx.more: "{{ output.data.has_more }}"
          next: {arcs: [{step: fetch, when: "{{ ctx.more }}"}, {step: check}]}
        - step: check
          tool: {kind: noop, result: {count: "{{ ctx.ids | length }}", last: "{{ ctx.ids | last }}"}}
        """,
        payload={"api": api_url},
    ).completed()
    assert ended["check"] == {"count": 35, "last": 35}
    assert ended.visits["fetch"] == 4


def test_a_step_cycle_pages_by_cursor_up_to_a_limit(runtime: Runtime, api_url: str):
    ended = runtime.flow(
        """
        - step: start
          set: {ctx.page: 0}
          next: fetch
        - step: fetch
          tool:
            kind: http
            url: "{{ workload.api }}/api/v1/events"
            params: {cursor: "{{ ctx.cursor }}", limit: 10}
          set: {ctx.cursor: "{{ output.data.next_cursor }}", ctx.page: "{{ ctx.page + 1 }}", ctx.last: "{{ output.data.events[-1].id }}"}
          next:
            arcs:
              - {step: fetch, when: "{{ ctx.cursor and ctx.page < workload.most }}"}
        """,
        payload={"api": api_url, "most": 3},
    ).completed()
    assert ended.visits["fetch"] == 3
    assert ended.ctx["last"] == 30


def test_a_two_step_cycle_with_an_exit_to_a_check(runtime: Runtime, api_url: str):
    ended = runtime.flow(
        """
        - {step: start, next: fetch}
        - step: fetch
          tool: {kind: http, url: "{{ workload.api }}/api/v1/assessments", params: {page: "{{ ctx.page | default(1) }}"}}
          next: check
        - step: check
          tool:
            kind: python
            input: {page: "{{ fetch.data }}", seen: "{{ ctx.seen | default(0) }}"}
            code: "result = {'seen': seen + len(page['data']), 'more': page['paging']['hasMore'], 'page': page['paging']['page']}"
          set: {ctx.seen: "{{ check.seen }}", ctx.page: "{{ check.page + 1 }}"}
          next: {arcs: [{step: fetch, when: "{{ check.more }}"}, {step: validate}]}
        - step: validate
          tool: {kind: noop, result: "{{ ctx.seen }}"}
        """,
        payload={"api": api_url},
    ).completed()
    assert ended["validate"] == 35
    assert ended.visits == {"start": 1, "fetch": 4, "check": 4, "validate": 1}


def test_jumps_page_inside_the_iterations_of_a_parallel_loop(runtime: Runtime, api_url: str):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: [10, 20], iterator: size, spec: {mode: parallel, max_in_flight: 2}}
          tool:
            - init:
                kind: noop
                spec: {policy: {rules: [{else: {then: {do: continue, set: {iter.page: 1, iter.seen: 0}}}}]}}
            - fetch:
                kind: http
                url: "{{ workload.api }}/api/v1/assessments"
                params: {page: "{{ iter.page }}", pageSize: "{{ iter.size }}"}
                spec:
                  policy:
                    rules:
                      - when: "{{ output.status == 'error' and output.error.retryable }}"
                        then: {do: retry, attempts: 3, backoff: linear, delay: 0.1}
                      - else:
                          then: {do: continue, set: {iter.seen: "{{ iter.seen + (output.data.data.data | length) }}", iter.more: "{{ output.data.paging.hasMore }}"}}
            - paginate:
                kind: noop
                result: {page: "{{ iter.page }}", seen: "{{ iter.seen }}"}
                spec:
                  policy:
                    rules:
                      - when: "{{ iter.more }}"
                        then: {do: jump, to: fetch, set: {iter.page: "{{ iter.page + 1 }}"}}
                      - else: {then: {do: break}}
        """,
        payload={"api": api_url},
    ).completed()
    assert [found["paginate"] for found in ended["start"]["results"]] == [
        {"page": 4, "seen": 35},
        {"page": 2, "seen": 35},
    ]


def test_fixed_slots_drain_a_queue_and_cycle_until_it_is_empty(
    runtime: Runtime, api_url: str, pg: str
):
    ended = runtime.flow(
        """
        - step: start
          tool:
            kind: postgres
            auth: "{{ workload.pg }}"
            command: |
              DROP TABLE IF EXISTS slot_queue;
              CREATE TABLE slot_queue (page int PRIMARY KEY, state text DEFAULT 'new', rows int);
              INSERT INTO slot_queue (page) SELECT generate_series(1, 7);
          next: drain
        - step: drain
          loop: {in: "{{ range(3) | list }}", iterator: slot, spec: {mode: parallel, max_in_flight: 3}}
          tool:
            - name: claim
              kind: postgres
              auth: "{{ workload.pg }}"
              query: |
                UPDATE slot_queue SET state = 'claimed' WHERE page = (
                  SELECT page FROM slot_queue WHERE state = 'new' ORDER BY page LIMIT 1 FOR UPDATE SKIP LOCKED)
                RETURNING page
              spec: {policy: {rules: [{when: "{{ output.data.row_count == 0 }}", then: {do: break}}]}}
            - name: fetch
              kind: http
              url: "{{ workload.api }}/api/v1/assessments"
              params: {page: "{{ claim.rows[0].page }}", pageSize: 5}
            - name: done
              kind: postgres
              auth: "{{ workload.pg }}"
              query: "UPDATE slot_queue SET state = 'done', rows = {{ fetch.data.data | length }} WHERE page = {{ claim.rows[0].page }}"
          next: left
        - step: left
          tool: {kind: postgres, auth: "{{ workload.pg }}", query: "SELECT count(*) FILTER (WHERE state = 'new') AS n, sum(rows) AS rows FROM slot_queue"}
          next: {arcs: [{step: drain, when: "{{ left.rows[0].n > 0 }}"}, {step: check}]}
        - {step: check, tool: {kind: noop, result: "{{ left.rows[0] }}"}}
        """,
        payload={"api": api_url, "pg": pg},
    ).completed()
    assert ended["check"] == {"n": 0, "rows": 35}
    assert ended.visits["drain"] == 3


def test_older_names_of_input_output_and_set(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          args: {a: 1}
          tool:
            kind: python
            args: {b: 2}
            code: "result = {'sum': a + b, 'all': sorted(args)}"
            spec:
              policy:
                rules:
                  - when: "{{ outcome.status == 'ok' and outcome.result.sum == 3 }}"
                    then: {do: continue, set_ctx: {sum: "{{ outcome.result.sum }}"}, set_iter: {x: 1}}
          set_ctx: {again: "{{ outcome.result.sum }}"}
          next: {arcs: [{step: after, set_ctx: {arc: 3}}]}
        - {step: after}
    """).completed()
    assert ended["start"] == {"sum": 3, "all": ["a", "b"]}
    assert ended.ctx == {"sum": 3, "again": 3, "arc": 3}


def test_vars_of_a_step_are_set_from_its_result(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, result: {n: 4}}
          vars: {a: "{{ result.n }}", b: "{{ data.n + 1 }}", ctx.c: "{{ start.n }}"}
          next: {arcs: [{step: after, when: "{{ a == 4 and result is not defined }}"}]}
        - {step: after, tool: {kind: noop, result: ["{{ ctx.a }}", "{{ b }}", "{{ ctx.c }}"]}}
    """).completed()
    assert ended["after"] == [4, 5, 4]


def test_eval_and_expr_are_rules(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: python
            args: {attempt: "{{ _attempt }}"}
            code: "if attempt < 2: raise ValueError(attempt)\\nresult = attempt"
            eval:
              - {expr: "{{ outcome.status == 'error' }}", do: retry, attempts: 3}
              - else: {do: continue, set_ctx: {done: "{{ outcome.result }}"}}
    """).completed()
    assert ended["start"] == 2
    assert ended.ctx == {"done": 2}


def test_arc_args_are_bare_names_and_args_in_the_target(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          next: [{step: a, args: {x: "{{ 1 + 1 }}", y: why}}]
        - step: a
          tool:
            kind: python
            input: {bare: "{{ x }}", y: mine, both: "{{ args.x }}"}
            code: "result = [bare, y, both]"
          next: {arcs: [{step: b, when: "{{ args.x == 2 }}"}]}
        - {step: b}
    """).completed()
    assert ended["a"] == [2, "mine", 2]
    assert ended.visits["b"] == 1
