"""Tasks: the shapes of `tool`, results, envelopes and what they are called (sections 5 and 6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conformance import Runtime

ADD = 'kind: python, input: {n: "{{ _prev.n | default(0) }}"}, code: "result = {\'n\': n + 1}"'


@pytest.mark.parametrize(
    ("tool", "labels"),
    [
        (f"[{{name: one, {ADD}}}, {{name: two, {ADD}}}]", ["one", "two"]),
        (f"[{{{ADD}}}, {{{ADD}}}]", ["task_0", "task_1"]),
        (f"[{{one: {{{ADD}}}}}, {{two: {{{ADD}}}}}]", ["one", "two"]),
        (f"[{{one: {{{ADD}}}}}, {{{ADD}}}]", ["one", "task_1"]),
    ],
)
def test_lists_of_tasks_are_pipelines(runtime: Runtime, tool: str, labels: list[str]):
    ended = runtime.flow(f"- step: start\n  tool: {tool}").completed()
    each = {label: {"n": place + 1} for place, label in enumerate(labels)}
    assert ended["start"] == {**each, "results": each, "n": 2}


def test_one_mapping_is_a_task_labelled_by_its_step(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, result: {label: "{{ _task }}", attempt: "{{ _attempt }}"}}
    """).completed()
    assert ended["start"] == {"label": "start_task", "attempt": 1}


def test_one_mapping_with_a_policy_follows_it(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: python
            input: {attempt: "{{ _attempt }}"}
            code: |
              if attempt < 3:
                  raise ValueError(attempt)
              result = attempt
            spec: {policy: {rules: [{when: "{{ output.error }}", then: {do: retry, attempts: 5}}]}}
    """).completed()
    assert ended["start"] == 3


def test_config_may_stand_under_spec(runtime: Runtime, api_url: str):
    ended = runtime.flow(f"""
        - step: start
          tool:
            - name: code
              kind: python
              spec: {{input: {{n: 2}}, code: "result = n * 2", policy: {{rules: [{{else: {{do: continue}}}}]}}}}
            - name: call
              kind: http
              spec: {{method: GET, endpoint: "{api_url}/api/v1/users", params: {{limit: 1}}}}
    """).completed()
    assert ended["start"]["code"] == 4
    assert len(ended["start"]["call"]["data"]["users"]) == 1


def test_input_is_given_to_the_tool_and_names_values_for_the_other_templates(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: python, args: {n: 3, m: 1}, input: {m: 4}, code: "result = [n, {{ m }}, {{ input.n }}]"}
    """).completed()
    assert ended["start"] == [3, 4, 3]


def test_pipeline_locals_win_over_input_keys(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: noop, result: {n: 1}}
            - name: two
              kind: noop
              input: {_prev: input, n: "{{ _prev.n }}"}
              result: ["{{ _prev.n }}", "{{ n }}", "{{ _task }}", "{{ input.n }}", "{{ args.n }}"]
    """).completed()
    assert ended["start"]["two"] == [1, 1, "two", 1, 1]


def test_undefined_is_empty_in_input_and_absent_in_query_and_headers(
    runtime: Runtime, api_url: str
):
    ended = runtime.flow(f"""
        - step: start
          tool:
            kind: http
            url: "{api_url}/api/v1/users"
            params: {{offset: 30, limit: "{{{{ nobody }}}}", x: null, y: "{{{{ none }}}}"}}
            headers: {{X-Nothing: "{{{{ nobody }}}}", X-Null: null, X-Number: 5}}
          next: after
        - step: after
          tool: {{kind: python, input: {{a: "{{{{ nobody }}}}"}}, code: "result = [a, type(a).__name__]"}}
          set: {{ctx.nothing: "{{{{ nobody }}}}"}}
    """).completed()
    assert ended["start"]["url"].endswith("/api/v1/users?offset=30")
    assert ended["start"]["data"]["limit"] == 10
    assert ended["after"] == ["", "str"]
    assert ended.ctx["nothing"] == ""


def judged(runtime: Runtime, tool: str, *templates: str) -> list[Any]:
    """What templates in a rule give for the outcome of a task, which is then gone on from."""
    values = ", ".join(f"ctx.v{place}: '{text}'" for place, text in enumerate(templates))
    ended = runtime.flow(f"""
        - step: start
          tool:
            - name: it
              {tool}
              spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set: {{{values}}}}}}}}}]}}}}
    """).completed()
    return [ended.ctx[f"v{place}"] for place in range(len(templates))]


def test_the_envelope_of_a_success(runtime: Runtime):
    found = judged(
        runtime,
        "kind: python\n              code: \"result = {'n': 1, 'deep': {'m': 2}}\"",
        "{{ output.status }}",
        "{{ output.data }}",
        "{{ output.error }}",
        "{{ output.meta.attempt }}",
        "{{ output.meta.duration_ms > 0 }}",
        "{{ output.n }}",
        "{{ output.deep.m }}",
        "{{ output.response.n }}",
        "{{ outcome.result.n }}",
        "{{ outcome.status }}",
        "{{ output.error.retryable }}",
        "{{ output.nobody }}",
    )
    assert found == [
        "ok", {"n": 1, "deep": {"m": 2}}, None, 1, True, 1, 2, 1, 1, "ok", "", "",
    ]  # fmt: skip


def test_the_envelope_of_an_http_answer(runtime: Runtime, api_url: str):
    found = judged(
        runtime,
        f'kind: http\n              url: "{api_url}/api/v1/assessments"\n              params: {{pageSize: 2}}',
        "{{ output.http.status }}",
        "{{ output.data.status_code }}",
        "{{ output.data.data.paging.hasMore }}",
        "{{ output.data.paging.hasMore }}",
        "{{ output.data.body.paging.total }}",
        "{{ output.data.data.data | length }}",
        "{{ output.http.headers | length > 0 }}",
        "{{ output.data.paging is defined }}",
        "{{ output.data.nobody is defined }}",
    )
    assert found == [200, 200, True, True, 35, 2, True, True, False]


@pytest.mark.parametrize(
    ("error_type", "kind", "status", "retryable"),
    [
        ("429", "rate_limit", 429, True),
        ("auth", "auth", 401, False),
        ("403", "auth", 403, False),
        ("404", "not_found", 404, False),
        ("500", "server_error", 500, True),
        ("503", "server_error", 503, True),
    ],
)
def test_an_http_error_keeps_its_answer(
    runtime: Runtime, api_url: str, error_type: str, kind: str, status: int, retryable: bool
):
    found = judged(
        runtime,
        f'kind: http\n              url: "{api_url}/api/v1/errors"\n              params: {{error_type: "{error_type}"}}',
        "{{ output.status }}",
        "{{ output.error.kind }}",
        "{{ output.error.retryable }}",
        "{{ [output.error.status, output.error.status_code, output.error.http_status] }}",
        "{{ output.http.status }}",
        "{{ output.data.status_code }}",
        "{{ output.data.data is mapping }}",
        "{{ output.error.retry_after }}",
    )
    waits = 5 if error_type in ("429", "503") else ""
    assert found[:7] == ["error", kind, retryable, [status] * 3, status, status, True]
    assert found[7] in (waits, None if waits == "" else waits)


def test_the_envelope_of_a_database_error(runtime: Runtime, pg: str):
    found = judged(
        runtime,
        f'kind: postgres\n              auth: {pg}\n              query: "CREATE TEMP TABLE t (n int PRIMARY KEY); SELECT 1/0"',
        "{{ output.status }}",
        "{{ output.error.code }}",
        "{{ output.error.pg_code }}",
        "{{ output.pg.sqlstate }}",
    )
    assert found == ["error", "22012", "22012", "22012"]


def test_a_database_constraint_has_its_kind(runtime: Runtime, pg: str):
    found = judged(
        runtime,
        f'kind: postgres\n              auth: {pg}\n              query: "CREATE TABLE IF NOT EXISTS uniq (n int PRIMARY KEY); TRUNCATE uniq; INSERT INTO uniq VALUES (1); INSERT INTO uniq VALUES (1)"',
        "{{ output.error.kind }}",
        "{{ output.error.retryable }}",
    )
    assert found == ["db_constraint", False]


def test_an_exception_tells_its_type(runtime: Runtime):
    found = judged(
        runtime,
        "kind: python\n              code: \"raise KeyError('x')\"",
        "{{ output.error.kind }}",
        "{{ output.error.exception_type }}",
        "{{ output.data }}",
    )
    assert found == ["unknown", "KeyError", None]


def test_a_returned_error_status_is_data(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: python, code: "result = {'status': 'error', 'message': 'mine'}"}
          next: {arcs: [{step: after, when: "{{ output.status == 'ok' }}"}]}
        - {step: after, tool: {kind: noop, result: "{{ start.status }}"}}
    """).completed()
    assert ended["after"] == "error"


def test_prev_labels_and_results_name_earlier_results(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: python, code: "result = {'n': 1}"}
            - {name: two, kind: python, code: "result = {'n': 2, 'data': {'n': 20}}"}
            - name: see
              kind: noop
              result:
                - "{{ _prev.n }}"
                - "{{ one.n }}"
                - "{{ one.data.n }}"
                - "{{ two.data.n }}"
                - "{{ results.one.n }}"
                - "{{ results.one.data.n }}"
                - "{{ output.data.n }}"
                - "{{ output.status }}"
                - "{{ start.n }}"
                - "{{ start.one.n }}"
    """).completed()
    assert ended["start"]["see"] == [2, 1, 1, 20, 1, 1, 2, "ok", 2, 1]


def test_a_continued_error_leaves_prev_and_label_as_they_were(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: noop, result: {n: 1}}
            - name: bad
              kind: python
              code: "raise ValueError('gone on from')"
              spec: {policy: {rules: [{else: {do: continue}}]}}
            - {name: see, kind: noop, result: ["{{ _prev.n }}", "{{ bad is defined }}", "{{ output.status }}"]}
    """).completed()
    assert ended["start"]["see"] == [1, False, "error"]
    assert "bad" not in ended["start"]


def test_the_result_of_a_single_task_that_failed_and_was_continued(runtime: Runtime, api_url: str):
    ended = runtime.flow(f"""
        - step: start
          tool:
            kind: http
            url: "{api_url}/api/v1/errors"
            params: {{error_type: "404"}}
            spec: {{policy: {{rules: [{{else: {{do: continue}}}}]}}}}
          next: after
        - {{step: after, tool: {{kind: noop, result: "{{{{ start.status_code }}}}"}}}}
    """).completed()
    assert ended["after"] == 404


def test_the_users_own_keys_win_in_a_result_of_several_tasks(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: noop, result: {status: mine, data: {x: 1}}}
            - {name: two, kind: noop, result: {status: yours, results: own, one: over}}
    """).completed()
    found = ended["start"]
    assert (found["status"], found["results"], found["one"]) == ("yours", "own", "over")


def test_step_results_have_aliases(runtime: Runtime):
    ended = runtime.flow("""
        - step: plain
          tool: {kind: python, code: "result = {'f': 1}"}
          next: own
        - step: own
          tool: {kind: python, code: "result = {'f': 1, 'data': {'f': 2}, 'result': {'f': 3}}"}
          next: several
        - step: several
          tool: [{name: one, kind: noop, result: {f: 4}}, {name: two, kind: noop, result: {g: 5}}]
          next: see
        - step: see
          tool:
            kind: noop
            result:
              - "{{ [plain.f, plain.data.f, plain.result.f, plain.context.f, steps.plain.data.f] }}"
              - "{{ [own.f, own.data.f, own.result.f, own.context.f] }}"
              - "{{ [several.results.one.f, several.one.f, several.g, several.data.g] }}"
          next:
            arcs:
              - step: yes_
                when: "{{ plain.data.f == 1 and own.data.f == 2 and several.results.one.f == 4 }}"
        - {step: yes_}
    """).completed()
    assert ended["see"] == [[1, 1, 1, 1, 1], [1, 2, 3, 1], [4, 4, 5, 5]]
    assert ended.visits["yes_"] == 1


def test_results_handed_to_code_have_a_real_data_key(runtime: Runtime):
    ended = runtime.flow("""
        - step: plain
          tool: {kind: python, code: "result = {'f': 1}"}
          next: own
        - step: own
          tool: {kind: python, code: "result = {'data': 7}"}
          next: see
        - step: see
          tool:
            - {name: label, kind: python, code: "result = {'g': 2}"}
            - name: code
              kind: python
              input: {plain: "{{ plain }}", own: "{{ own }}", label: "{{ label }}"}
              code: |
                result = {
                    "plain": plain.get("data", {}),
                    "own": own.get("data"),
                    "label": label.get("data", {}),
                    "context": context["plain"].get("data", {}),
                }
    """).completed()
    assert ended["see"]["code"] == {
        "plain": {"f": 1},
        "own": 7,
        "label": {"g": 2},
        "context": {"f": 1},
    }
    assert ended["plain"] == {"f": 1}
    assert ended["see"]["label"] == {"g": 2}


@pytest.mark.parametrize(
    ("code", "value"), [("5", 5), ("[1]", [1]), ("'x'", "x"), ("False", False)]
)
def test_results_that_are_no_mapping_stay_as_they_are(runtime: Runtime, code: str, value: Any):
    ended = runtime.flow(f"""
        - step: start
          tool: {{kind: python, code: "result = {code}"}}
          next: {{arcs: [{{step: after, set: {{ctx.seen: "{{{{ output.data }}}}"}}}}]}}
        - {{step: after, tool: {{kind: noop, result: "{{{{ start }}}}"}}}}
    """).completed()
    assert ended["start"] == ended["after"] == ended.ctx["seen"] == value


def test_the_steps_own_set_and_arcs_see_its_envelope(runtime: Runtime, api_url: str):
    ended = runtime.flow(f"""
        - step: start
          tool: {{kind: http, url: "{api_url}/api/v1/assessments", params: {{pageSize: 3}}}}
          set:
            ctx.status: "{{{{ output.status }}}}"
            ctx.code: "{{{{ output.http.status }}}}"
            ctx.more: "{{{{ output.data.paging.hasMore }}}}"
            ctx.n: "{{{{ output.data.data.data | length }}}}"
            ctx.same: "{{{{ start.data.paging.total }}}}"
            ctx.fell: "{{{{ output.status_code }}}}"
          next: {{arcs: [{{step: after, when: "{{{{ outcome.result.paging.hasMore }}}}"}}]}}
        - {{step: after}}
    """).completed()
    assert ended.ctx == {"status": "ok", "code": 200, "more": True, "n": 3, "same": 35, "fell": 200}
    assert ended.visits["after"] == 1


def test_a_large_result_is_read_like_a_small_one(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: python, code: "result = {'rows': [{'i': i, 'text': 'x' * 200} for i in range(2000)]}"}
          set: {ctx.own: "{{ output.data.rows[1500].i }}"}
          next:
            arcs:
              - step: after
                when: "{{ start.rows | length == 2000 and start.rows[1999].i == 1999 }}"
        - step: after
          tool: {kind: noop, result: ["{{ start.rows[1100].i }}", "{{ start.data.rows | length }}"]}
    """).completed()
    assert ended["after"] == [1100, 2000]
    assert ended.ctx["own"] == 1500
