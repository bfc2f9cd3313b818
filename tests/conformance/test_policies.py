"""Policies: rules, else, retry, jump, break, and every scope of `set` (section 8)."""

from __future__ import annotations

import pytest

from noetl_ray.events.types import EventType
from tests.support.conformance import Ended, Runtime

FLAKY = 'kind: python, input: {attempt: "{{ _attempt }}"}, code: "if attempt < 3: raise ValueError(attempt)\\nresult = attempt"'


def delays(ended: Ended) -> list[float]:
    """How long each retry waited."""
    return [payload["delay_s"] for payload in ended.of(EventType.TASK_ATTEMPT_FAILED)]


def test_the_first_rule_that_matches_acts(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: noop
            spec:
              policy:
                rules:
                  - {when: "{{ false }}", then: {do: fail}}
                  - {when: "{{ true }}", then: {do: continue, set: {ctx.rule: second}}}
                  - {when: "{{ true }}", then: {do: fail}}
    """).completed()
    assert ended.ctx == {"rule": "second"}


@pytest.mark.parametrize(
    "rule",
    [
        "{else: {then: {do: continue, set: {ctx.mark: 1}}}}",
        "{else: {do: continue, set: {ctx.mark: 1}}}",
        "{else: null, then: {do: continue, set: {ctx.mark: 1}}}",
        "{then: {do: continue, set: {ctx.mark: 1}}}",
        "{else: {set: {ctx.mark: 1}}}",
        "{else: {then: {do: continue, set_ctx: {mark: 1}}}}",
    ],
)
def test_every_spelling_of_else(runtime: Runtime, rule: str):
    steps = f"""
        - step: start
          tool:
            kind: python
            code: "raise ValueError('gone on from')"
            spec: {{policy: {{rules: [{{when: "{{{{ false }}}}", then: {{do: fail}}}}, {rule}]}}}}
    """
    assert runtime.flow(steps).completed().ctx == {"mark": 1}


def test_without_a_matching_rule_success_goes_on_and_an_error_fails(runtime: Runtime):
    rules = 'spec: {policy: {rules: [{when: "{{ false }}", then: {do: continue}}]}}'
    steps = (
        '- step: start\n  tool: [{kind: python, code: "%s", '
        + rules
        + "}, {kind: noop, result: 2}]"
    )
    assert runtime.flow(steps.replace("%s", "result = 1")).completed()["start"]["task_1"] == 2
    failed = runtime.flow(steps.replace("%s", "raise ValueError('mine')")).failed()
    assert "mine" in failed.error["message"]
    assert failed.error["task"] == "task_0"


def test_a_rule_turns_success_into_failure(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: noop
            result: {rows: 0}
            spec: {policy: {rules: [{when: "{{ output.rows == 0 }}", then: {do: fail, set: {ctx.why: empty}}}]}}
          next: {arcs: [{step: after, when: "{{ output.status == 'error' }}"}]}
        - {step: after}
    """).completed()
    assert ended.state.steps["start"].status == "failed"
    assert ended.ctx == {"why": "empty"}
    assert ended.state.failures_handled == 1


def test_attempts_are_the_runs_in_all_and_at_the_limit_the_step_fails(runtime: Runtime):
    steps = """
        - step: start
          tool:
            %s
            spec: {policy: {rules: [{when: "{{ output.error }}", then: {do: retry, attempts: LIMIT}}]}}
    """.replace(
        "%s", FLAKY.replace(", ", "\n            ", 1).replace(", code", "\n            code")
    )
    done = runtime.flow(steps.replace("LIMIT", "3")).completed()
    assert done["start"] == 3
    assert len(delays(done)) == 2
    failed = runtime.flow(steps.replace("LIMIT", "2")).failed()
    assert "2" in failed.error["message"]
    assert len(delays(failed)) == 1
    limit = '"{{ workload.limit }}"'
    assert runtime.flow(steps.replace("LIMIT", limit), head="workload: {limit: 4}").completed()


@pytest.mark.parametrize(
    ("how", "waits"),
    [
        ("attempts: 3", [0, 0]),
        ("attempts: 3, delay: 0.02", [0.02, 0.02]),
        ("attempts: 3, delay: 0.02, backoff: none", [0, 0]),
        ("attempts: 3, delay: 0.02, backoff: fixed", [0.02, 0.02]),
        ("attempts: 3, delay: 0.02, backoff: linear", [0.02, 0.04]),
        ("attempts: 4, delay: 0.02, backoff: exponential", [0.02, 0.04]),
        ('attempts: 3, delay: "{{ workload.wait }}"', [0.03, 0.03]),
        ('attempts: 3, delay: "{{ output.error.retry_after | default(0.01) }}"', [0.01, 0.01]),
    ],
)
def test_delays_between_attempts(runtime: Runtime, how: str, waits: list[float]):
    ended = runtime.flow(
        f"""
        - step: start
          tool: {{{FLAKY}, spec: {{policy: {{rules: [{{when: "{{{{ output.error }}}}", then: {{do: retry, {how}}}}}]}}}}}}
        """,
        head="workload: {wait: 0.03}",
    ).completed()
    assert delays(ended) == waits


def test_retries_start_anew_after_any_other_outcome(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - name: fetch
              kind: noop
              result: "{{ _attempt }}"
              spec:
                policy:
                  rules:
                    - {when: "{{ _attempt < 2 }}", then: {do: retry, attempts: 2}}
            - name: more
              kind: noop
              spec:
                policy:
                  rules:
                    - when: "{{ (ctx.pages | default(0)) < 4 }}"
                      then: {do: jump, to: fetch, set: {ctx.pages: "{{ (ctx.pages | default(0)) + 1 }}"}}
    """).completed()
    assert ended.ctx["pages"] == 4
    assert len(delays(ended)) == 5


@pytest.mark.parametrize("to", ["one", "previous", "prev"])
def test_jump_goes_to_a_label_or_the_task_before(runtime: Runtime, to: str):
    ended = runtime.flow(f"""
        - step: start
          tool:
            - name: one
              kind: noop
              spec: {{policy: {{rules: [{{else: {{do: continue, set: {{iter.n: "{{{{ (iter.n | default(0)) + 1 }}}}"}}}}}}]}}}}
            - name: two
              kind: noop
              result: "{{{{ iter.n }}}}"
              spec: {{policy: {{rules: [{{when: "{{{{ iter.n < 3 }}}}", then: {{do: jump, to: {to}}}}}]}}}}
    """).completed()
    assert ended["start"]["two"] == 3
    assert ended.ctx == {}


def test_a_jump_to_nowhere_is_refused_with_a_suggestion(runtime: Runtime):
    with pytest.raises(Exception, match="'jump' to 'fecth', which is no task of this step"):
        runtime.flow("""
            - step: start
              tool:
                - {name: fetch, kind: noop}
                - {name: go, kind: noop, spec: {policy: {rules: [{else: {do: jump, to: fecth}}]}}}
        """)


def test_break_ends_the_pipeline_well_with_what_is_done(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: noop, result: {n: 1}}
            - name: two
              kind: noop
              result: {n: 2}
              spec: {policy: {rules: [{else: {do: break, set: {ctx.kept: yes_}}}]}}
            - {name: three, kind: python, code: "raise ValueError('never')"}
    """).completed()
    assert ended["start"] == {
        "one": {"n": 1},
        "two": {"n": 2},
        "results": {"one": {"n": 1}, "two": {"n": 2}},
        "n": 2,
    }
    assert ended.ctx == {"kept": "yes_"}


def test_the_scopes_of_set_in_a_rule(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - name: one
              kind: noop
              result: 5
              spec:
                policy:
                  rules:
                    - else:
                        do: continue
                        set: {ctx.a: "{{ output.data }}", iter.b: 2, step.c: 3, d: 4, ctx.deep.x: 1}
                        set_iter: {e: 6}
            - {name: two, kind: noop, result: ["{{ ctx.a }}", "{{ iter.b }}", "{{ c }}", "{{ d }}", "{{ ctx.deep.x }}", "{{ iter.e }}"]}
          next: after
        - {step: after, tool: {kind: noop, result: ["{{ ctx.c }}", "{{ d }}", "{{ iter.b is defined }}"]}}
    """).completed()
    assert ended["start"]["two"] == [5, 2, 3, 4, 1, 6]
    assert ended["after"] == [3, 4, False]
    assert ended.ctx == {"a": 5, "c": 3, "d": 4, "deep": {"x": 1}}


def test_values_of_one_set_see_the_state_before_it(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool:
            kind: noop
            spec: {policy: {rules: [{else: {do: continue, set: {ctx.a: "{{ ctx.b }}", ctx.b: "{{ ctx.a }}"}}}]}}
          set: {ctx.c: "{{ ctx.a }}", ctx.a: "{{ ctx.b }}"}
    """,
        head="workload: {a: 1, b: 2}",
    ).completed()
    assert ended.ctx == {"a": 1, "b": 1, "c": 2}


def test_what_rules_wrote_is_kept_when_the_step_fails(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: noop, spec: {policy: {rules: [{else: {do: continue, set: {ctx.got: 1}}}]}}}
            - {name: two, kind: python, code: "raise ValueError(2)"}
          next: {arcs: [{step: after, when: "{{ event.name == 'call.error' }}"}]}
        - {step: after, tool: {kind: noop, result: "{{ ctx.got }}"}}
    """).completed()
    assert ended["after"] == 1


def test_set_of_a_task_sees_its_result_and_makes_locals(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - name: one
              kind: python
              code: "result = {'value': 3, 'status': 'mine'}"
              set: {whole: "{{ output }}", field: "{{ output.value }}", ctx.kept: "{{ output.value }}", state: "{{ output.status }}"}
            - {name: two, kind: noop, result: ["{{ whole.value }}", "{{ field }}", "{{ state }}", "{{ whole }}", "{{ whole.status }}"]}
          next: after
        - {step: after, tool: {kind: noop, result: ["{{ field is defined }}", "{{ ctx.kept }}"]}}
    """).completed()
    assert ended["start"]["two"] == [3, 3, "ok", {"value": 3, "status": "mine"}, "mine"]
    assert ended["after"] == [False, 3]
    assert ended.ctx == {"kept": 3}


def test_set_of_a_task_is_applied_whatever_the_policy_says(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - name: one
              kind: noop
              result: 7
              set: {ctx.seen: "{{ output }}"}
              spec: {policy: {rules: [{else: {do: fail}}]}}
          next: {arcs: [{step: after, when: "{{ event.name == 'call.error' }}"}]}
        - {step: after, tool: {kind: noop, result: "{{ ctx.seen }}"}}
    """).completed()
    assert ended["after"] == 7


def test_set_of_a_step_happens_once_after_success(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: [1, 2, 3]}
          tool: {kind: noop}
          set: {ctx.times: "{{ (ctx.times | default(0)) + 1 }}", bare: 2, ctx.deep.er: 3, step.own: 4}
    """).completed()
    assert ended.ctx == {"times": 1, "bare": 2, "deep": {"er": 3}, "own": 4}


def test_a_deep_set_keeps_the_rest_of_what_the_workload_gave(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool: {kind: noop, spec: {policy: {rules: [{else: {do: continue, set: {ctx.cfg.a.b: 9}}}]}}}
          set: {ctx.cfg.page: 2}
          next: after
        - {step: after, tool: {kind: noop, result: ["{{ ctx.cfg }}", "{{ workload.cfg }}"]}}
    """,
        head="workload: {cfg: {page: 1, size: 10, a: {b: 1, c: 2}}}",
    ).completed()
    assert ended["after"] == [
        {"page": 2, "size": 10, "a": {"b": 9, "c": 2}},
        {"page": 1, "size": 10, "a": {"b": 1, "c": 2}},
    ]


def test_a_value_that_cannot_be_rendered_is_left_out_and_told(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, spec: {policy: {rules: [{else: {do: continue, set: {ctx.a: "{{ 1 // 0 }}", ctx.b: 2}}}]}}}
          set: {ctx.c: "{{ 1 // 0 }}", ctx.d: 4}
    """).completed()
    assert ended.ctx == {"b": 2, "d": 4}
    assert len(ended.warnings("start")) == 2


def test_the_rule_of_a_task_may_read_its_own_step_so_far(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - {name: one, kind: noop, result: {n: 1}}
            - name: two
              kind: noop
              result: {m: 2}
              spec: {policy: {rules: [{when: "{{ start.one.n == 1 and start.m == 2 }}", then: {do: continue, set: {ctx.mark: 1}}}]}}
    """).completed()
    assert ended.ctx == {"mark": 1}
