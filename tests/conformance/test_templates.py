"""Templates: undefined, filters, types and the truth of `when` (section 3)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conformance import Runtime


def result(runtime: Runtime, template: str, head: str = "") -> Any:
    """What a noop gives for a template."""
    text = template.replace("'", "''")
    steps = f"- step: start\n  tool: {{kind: noop, result: '{text}'}}"
    return runtime.flow(steps, head=head).completed()["start"]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ nobody }}", ""),
        ("{{ nobody.ever.was[3].there }}", ""),
        ("[{{ nobody.ever }}]", "[]"),
        ("{{ nobody.x if nobody else 'other' }}", "other"),
        ("{{ output.error.retryable }}", ""),
        ("{{ ctx.a | default(nobody.b) | default('z') }}", "z"),
        ("{{ nobody is defined }}", False),
        ("{{ nobody is none }}", False),
        ("{{ not nobody.x }}", True),
        ("{{ 'a' in nobody }}", False),
        ("{{ nobody | length }}", 0),
    ],
)
def test_undefined_is_chainable_and_falsy(runtime: Runtime, template: str, expected: Any):
    assert result(runtime, template) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ none | default('x') }}", "x"),
        ("{{ workload.empty | default('x') }}", "x"),
        ("{{ 0 | default('x') }}", 0),
        ("{{ '' | default('x') }}", ""),
        ("{{ 'junk' | int }}", 0),
        ("{{ '12' | int }}", 12),
        ("{{ '1.5' | float }}", 1.5),
        ("{{ 'a,b' | split(',') }}", ["a", "b"]),
        ("{{ [1, 2] | join('-') }}", "1-2"),
        ("{{ 'hi' | b64encode | b64decode }}", "hi"),
        ("{{ '{\"a\": 1}' | fromjson }}", {"a": 1}),
        ("{{ {'a': 1} | keys }}", ["a"]),
        ("{{ {'a': 1} | values }}", [1]),
        ("{{ {'a': 1} | items }}", [["a", 1]]),
        ("{{ ' A ' | trim | lower | upper }}", "A"),
        ("{{ 5 | string }}", "5"),
        ("{{ [3, 4] | first }}", 3),
        ("{{ 'abc' | replace('b', 'x') }}", "axc"),
        ("{{ 'abc' | length }}", 3),
        ("{% if workload.empty %}a{% else %}b{% endif %}", "b"),
    ],
)
def test_filters(runtime: Runtime, template: str, expected: Any):
    assert result(runtime, template, "workload: {empty: null}") == expected


def test_tojson_pastes_any_structure_into_sql(runtime: Runtime, pg: str):
    head = """workload: {rows: [{name: "O'Brien & <co>", n: 1, items: [1, {a: null}]}]}"""
    ended = runtime.flow(
        f"""
        - step: start
          tool:
            kind: postgres
            auth: {pg}
            query: >-
              SELECT now() AS at, 1.50::numeric AS price,
              '{{{{ workload.rows | tojson | replace("'", "''") }}}}'::jsonb AS rows
          next: again
        - step: again
          tool:
            kind: postgres
            auth: {pg}
            query: >-
              SELECT x->>'price' AS price, x->'rows'->0->>'name' AS name, x ? 'at' AS dated
              FROM jsonb_array_elements('{{{{ start.rows | tojson | replace("'", "''") }}}}'::jsonb) x
        """,
        head=head,
    ).completed()
    assert ended["again"]["rows"] == [{"price": "1.5", "name": "O'Brien & <co>", "dated": True}]


def test_data_keys_come_before_methods(runtime: Runtime):
    head = "workload: {d: {items: [1], keys: k, values: v, get: g, count: 2, pop: p, update: u}}"
    template = "{{ [d.items, d.keys, d.values, d.get, d.count, d.pop, d.update] }}"
    assert result(runtime, template, head) == [[1], "k", "v", "g", 2, "p", "u"]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ workload.list }}", [1, {"a": None}]),
        ("  {{ workload.list }}  ", [1, {"a": None}]),
        ("{{ 1 + 1 }}", 2),
        ("{{ 1 == 1 }}", True),
        ("{{ none }}", None),
        ("{{ 'true' }}", "true"),
        ("n={{ 1 }}", "n=1"),
    ],
)
def test_one_expression_keeps_its_type(runtime: Runtime, template: str, expected: Any):
    found = result(runtime, template, "workload: {list: [1, {a: null}]}")
    assert found == expected
    assert type(found) is type(expected)


MIXED = [
    "{{ 4 }}{{ 2 }}",
    "{{ 'tr' }}ue",
    "[{{ 1 }}, 2]",
    "{{ 'no' }}ne",
    "007{{ '' }}",
    "x{{ 1 }}",
]


def test_mixed_text_becomes_data_in_input_set_and_loops(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: "[{{ 1 }}, 2]", iterator: n}
          tool: {kind: python, input: {mixed: "{{ 4 }}{{ iter.n }}"}, code: "result = [mixed]"}
          set: {ctx.all: ["{{ 4 }}{{ 2 }}", "{{ 'tr' }}ue", "[{{ 1 }}, 2]", "00{{ 7 }}", "x{{ 1 }}"]}
          next: task
        - step: task
          tool:
            kind: noop
            spec: {policy: {rules: [{else: {do: continue, set: {ctx.rule: "{{ 4 }}{{ 3 }}"}}}]}}
          next: {arcs: [{step: last, set: {ctx.arc: "{{ 4 }}{{ 4 }}"}}]}
        - {step: last}
        """
    ).completed()
    assert ended["start"]["results"] == [[41], [42]]
    assert ended.ctx["all"] == [42, True, [1, 2], "007", "x1"]
    assert (ended.ctx["rule"], ended.ctx["arc"]) == (43, 44)


def test_mixed_text_stays_text_in_code_queries_and_urls(runtime: Runtime, pg: str, api_url: str):
    ended = runtime.flow(f"""
        - step: code
          tool: {{kind: python, code: "{{{{ 'result' }}}} = {{{{ 4 }}}}{{{{ 2 }}}}"}}
          next: sql
        - step: sql
          tool: {{kind: postgres, auth: {pg}, query: "SELECT {{{{ 4 }}}}{{{{ 2 }}}} AS n"}}
          next: url
        - step: url
          tool: {{kind: http, url: "{api_url}/{{{{ 'health' }}}}"}}
          next: body
        - step: body
          tool:
            kind: http
            method: POST
            url: "{api_url}/api/v1/effects"
            json: {{key: "{{{{ 4 }}}}{{{{ 2 }}}}"}}
    """).completed()
    assert ended["code"] == 42
    assert ended["sql"]["rows"] == [{"n": 42}]
    assert ended["url"]["data"] == {"status": "ok"}
    assert ended["body"]["data"]["key"] == "42"


def test_text_made_with_tojson_is_never_taken_apart(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: python
            input: {a: "{{ [1] | tojson }} ", b: "[{{ {'x': 1} | tojson }}]", c: "{{ [1] | tojson }}"}
            code: "result = [a, b, c]"
    """).completed()
    assert [type(item) for item in ended["start"]] == [str, str, str]
    assert ended["start"][1] == '[{"x": 1}]'


def test_scalars_pass_untouched_and_keys_are_not_rendered(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, result: {n: 1, f: 1.5, t: true, z: null, "{{ 1 }}": ["{{ 2 }}", {d: "{{ 3 }}"}]}}
          next: {arcs: [{step: after, when: true}]}
        - {step: after}
    """).completed()
    assert ended["start"] == {"n": 1, "f": 1.5, "t": True, "z": None, "{{ 1 }}": [2, {"d": 3}]}
    assert ended.visits["after"] == 1


def test_a_task_renders_when_it_runs(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - name: one
              kind: noop
              result: "{{ ctx.n | default(0) }}"
              spec: {policy: {rules: [{else: {do: continue, set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}}}]}}
            - name: two
              kind: noop
              result: "{{ ctx.n }}"
              spec:
                policy:
                  rules:
                    - when: "{{ ctx.n < 3 }}"
                      then: {do: jump, to: one}
    """).completed()
    assert ended["start"]["one"] == 2
    assert ended["start"]["two"] == 3


def test_code_is_a_template(runtime: Runtime):
    steps = """
        - step: start
          tool:
            kind: python
            code: |
              size = {{ workload.kb }} * 1024
              result = {"size": size, "literal": {"a": {"b": 1} }}
    """
    assert runtime.flow(steps, head="workload: {kb: 3}").completed()["start"] == {
        "size": 3072,
        "literal": {"a": {"b": 1}},
    }


def test_sql_survives_percent_dollar_and_colon(runtime: Runtime, pg: str):
    ended = runtime.flow(f"""
        - step: start
          tool:
            kind: postgres
            auth: {pg}
            query: |
              -- it's a comment; with a semicolon
              SELECT 'a;b' AS a /* don't; */, $tag$ x; '$1' $tag$ AS b, 7 % 4 AS c, '5%' LIKE '_%' AS d, ':name' AS e;
    """).completed()
    assert ended["start"]["rows"] == [
        {"a": "a;b", "b": " x; '$1' ", "c": 3, "d": True, "e": ":name"}
    ]


TRUTHS = [
    ("true", True), ("false", False), ('"{{ 1 }}"', True), ('"{{ 0 }}"', False), ('"{{ none }}"', False),
    ('"{{ nobody }}"', False), ('"{{ [] }}"', False), ('"{{ [0] }}"', True), ('""', False),
    ('"{{ \'False\' }}"', False), ('"{{ \'NO\' }}"', False), ('"{{ \'None\' }}"', False),
    ('"{{ \'null\' }}"', False), ('"{{ \'0\' }}"', False), ('"{{ \'yes\' }}"', True), ('"{{ \'anything\' }}"', True),
    ('"x{{ 1 }}"', True), ('"{{ 0 }}{{ \'\' }}"', False), ("1", True), ("0", False), ("no", False),
]  # fmt: skip


def test_truth_of_when(runtime: Runtime):
    arcs = "\n".join(f"      - {{step: s{i}, when: {when}}}" for i, (when, _) in enumerate(TRUTHS))
    steps = "\n".join(f"- {{step: s{i}}}" for i in range(len(TRUTHS)))
    flow = f"- step: start\n  next:\n    spec: {{mode: inclusive}}\n    arcs:\n{arcs}\n{steps}"
    visits = runtime.flow(flow).completed().visits
    assert {i for i, (_, holds) in enumerate(TRUTHS) if holds} == {
        i for i in range(len(TRUTHS)) if f"s{i}" in visits
    }


def test_a_rule_judges_truth_as_an_arc_does(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: noop
            spec:
              policy:
                rules:
                  - {when: "{{ 'no' }}", then: {do: fail}}
                  - {when: "{{ nobody.x }}", then: {do: fail}}
                  - {when: "{{ 'anything' }}", then: {do: continue, set: {ctx.mark: third}}}
    """).completed()
    assert ended.ctx["mark"] == "third"


def test_an_arc_whose_condition_raises_does_not_match_and_is_told(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          next: {arcs: [{step: bad, when: "{{ 1 // 0 }}"}, {step: good}]}
        - {step: bad}
        - {step: good, tool: {kind: noop, result: 1}}
    """).completed()
    assert "bad" not in ended.visits
    assert ended["good"] == 1
    assert ended.warnings("start")[0].startswith("arc to bad: ")


def test_now_in_a_decision_is_the_time_its_events_record(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, result: "{{ now() }}"}
          next: {arcs: [{step: after, when: "{{ now() > '2000' }}", set: {ctx.at: "{{ now() }}"}}]}
        - {step: after}
    """).completed()
    exits = [e for e in ended.events if e.payload.get("step") == "start" and "arcs" in e.payload]
    assert ended.ctx["at"] == exits[0].event_time
    assert "2000" < ended["start"] <= ended.ctx["at"]


def test_whole_namespaces_are_plain_mappings(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool:
            kind: python
            input: {all: "{{ workload }}", bag: "{{ ctx }}", text: "{{ workload }}!", pairs: "{{ ctx | items }}"}
            code: |
              # {{ workload }} may stand in a comment
              result = [all, bag, text, pairs]
          set: {ctx.copy: "{{ workload }}", ctx.steps: "{{ steps }}"}
          next: {arcs: [{step: after, set: {ctx.name: "{{ event.name }}", ctx.event: "{{ event }}"}}]}
        - {step: after, tool: {kind: noop, result: "{{ ctx.copy }}"}}
        """,
        head='workload: {a: 1, b: "{{ workload.a }}"}',
    ).completed()
    values = {"a": 1, "b": 1}
    assert ended["start"] == [values, values, "{'a': 1, 'b': 1}!", [["a", 1], ["b", 1]]]
    assert ended["after"] == values
    assert ended.ctx["steps"] == {"start": ended["start"]}
    assert (ended.ctx["name"], ended.ctx["event"]["step"]) == ("call.done", "start")


ODD = [
    ("{{ {1: 2} }}", {"1": 2}),
    ("{{ '\\ud800' }}", "?"),
    ("{{ 2 ** 70 }}", str(2**70)),
    ("{{ [1e308 * 10] }}", [None]),
    ("{{ [3, 4] | map('string') }}", ["3", "4"]),
    ("{{ 'a'.upper }}", ""),
]


@pytest.mark.parametrize(("template", "value"), ODD)
def test_values_that_json_cannot_say_do_not_stop_an_execution(
    runtime: Runtime, template: str, value: Any
):
    text = template.replace("'", "''")
    ended = runtime.flow(f"""
        - step: start
          tool: {{kind: noop, result: '{text}', spec: {{policy: {{rules: [{{else: {{do: continue, set: {{ctx.rule: '{text}'}}}}}}]}}}}}}
          set: {{ctx.step: '{text}'}}
          next: {{arcs: [{{step: each, set: {{ctx.arc: '{text}'}}}}]}}
        - {{step: each, loop: {{in: ['{text}']}}, tool: {{kind: noop, result: "{{{{ item }}}}"}}}}
    """).completed()
    assert ended.ctx == {"rule": value, "step": value, "arc": value}
    assert ended["start"] == value
    assert ended["each"]["results"] == [value]


def test_broken_config_fails_the_step_and_names_it(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, result: "{{ 1 // 0 }}"}
    """).failed()
    assert (ended.error["step"], ended.error["kind"]) == ("start", "template")
