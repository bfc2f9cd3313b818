"""`next` in every shape, events, and what follows a failure (sections 10 and 11)."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.parse import check_playbook
from noetl_ray.events.types import EventType
from tests.support.conformance import Runtime, playbook

LEAVES = "\n".join(f"- {{step: {name}, tool: {{kind: noop, result: {name}}}}}" for name in "abc")


def taken(runtime: Runtime, following: str, tool: str = "{kind: noop}") -> set[str]:
    """Which of the steps a, b, c follow."""
    steps = f"- step: start\n  tool: {tool}\n  next: {following}\n{LEAVES}"
    ended = runtime.flow(steps).completed()
    return set(ended.visits) - {"start"}


@pytest.mark.parametrize(
    ("following", "expected"),
    [
        ("a", "a"),
        ("[a, b]", "ab"),
        ("{step: a}", "a"),
        ("[{step: a}, {step: b}]", "a"),
        ('[{step: a, when: "{{ false }}"}, {step: b}]', "b"),
        ('[{step: a, cond: "{{ false }}"}, {step: b, cond: "{{ true }}"}]', "b"),
        ("{arcs: [{step: a}, {step: b}]}", "a"),
        ("{spec: {mode: exclusive}, arcs: [{step: a}, {step: b}]}", "a"),
        ("{spec: {mode: inclusive}, arcs: [{step: a}, {step: b, when: false}, {step: c}]}", "ac"),
        ('{spec: {mode: exclusive}, arcs: [{step: a, when: "{{ 0 }}"}]}', ""),
        ("{spec: {on_no_match: quiet}, arcs: [{step: a, when: false}]}", ""),
        ("{spec: {on_no_match: complete}, arcs: [{step: a, when: false}]}", ""),
        ("[]", ""),
    ],
)
def test_every_shape_of_next(runtime: Runtime, following: str, expected: str):
    assert taken(runtime, following) == set(expected)


def test_arc_set_is_written_before_the_target_starts(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          next: {arcs: [{step: a, when: false, set: {ctx.k: first}}, {step: b, set: {ctx.k: second, bare: 2, ctx.d.e: 3}}]}
        - {step: a}
        - {step: b, tool: {kind: noop, result: ["{{ ctx.k }}", "{{ bare }}", "{{ ctx.d.e }}"]}}
    """).completed()
    assert ended["b"] == ["second", 2, 3]


def test_arcs_see_what_the_steps_set_just_wrote(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          set: {ctx.page: "{{ (ctx.page | default(0)) + 1 }}"}
          next: {arcs: [{step: start, when: "{{ ctx.page < 3 }}"}]}
    """).completed()
    assert ended.ctx["page"] == 3
    assert ended.visits["start"] == 3


@pytest.mark.parametrize(
    ("name", "tool", "holds"),
    [
        *((n, "{kind: noop}", True) for n in ("call.done", "step.done", "step.exit")),
        *((n, "{kind: noop}", False) for n in ("call.error", "step.failed", "loop.done")),
        *((n, "{kind: python, code: 1/0}", True) for n in ("call.error", "step.failed")),
        *((n, "{kind: python, code: 1/0}", False) for n in ("call.done", "step.done", "step.exit")),
    ],
)
def test_event_names_of_all_dialects(runtime: Runtime, name: str, tool: str, holds: bool):
    other = f"{{{{ event.name != '{name}' }}}}"
    arcs = (
        f'[{{step: a, when: "{{{{ event.name == \'{name}\' }}}}"}}, {{step: b, when: "{other}"}}]'
    )
    assert taken(runtime, f"{{arcs: {arcs}}}", tool) == ({"a"} if holds else {"b"})


@pytest.mark.parametrize(
    ("name", "holds"), [("loop.done", True), ("step.done", True), ("call.error", False)]
)
def test_a_loop_is_done_once(runtime: Runtime, name: str, holds: bool):
    ended = runtime.flow(f"""
        - step: start
          loop: {{in: [1, 2, 3]}}
          tool: {{kind: noop}}
          next: {{arcs: [{{step: a, when: "{{{{ event.name == '{name}' }}}}"}}]}}
        - {{step: a}}
    """).completed()
    assert ended.visits.get("a", 0) == (1 if holds else 0)


def test_an_event_tells_its_step_its_payload_and_its_time(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, result: {n: 1}}
          next:
            arcs:
              - step: a
                set:
                  ctx.step: "{{ event.step }}"
                  ctx.at: "{{ event.timestamp }}"
                  ctx.n: "{{ event.payload.result.n }}"
        - {step: a}
    """).completed()
    assert (ended.ctx["step"], ended.ctx["n"]) == ("start", 1)
    assert ended.ctx["at"] in {event.event_time for event in ended.events}


def test_an_arc_to_an_unknown_step_is_left_out_with_a_warning(runtime: Runtime):
    steps = """
        - step: start
          next: {arcs: [{step: nobody}, {step: a}]}
        - {step: a}
    """
    found = [p for p in check_playbook(playbook(steps)) if "nobody" in p.message]
    assert [p.severity for p in found] == ["warning"]
    assert runtime.flow(steps).completed().visits == {"start": 1, "a": 1}


def test_after_a_failure_only_arcs_with_a_condition_count(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: python, code: "raise ValueError('on purpose')"}
          set: {ctx.never: 1}
          next: {arcs: [{step: a}, {step: b, when: "{{ output.status == 'error' }}", set: {ctx.why: "{{ output.error.message }}"}}]}
        - {step: a}
        - {step: b, tool: {kind: noop, result: "{{ ctx.why }}"}}
    """).completed()
    assert "on purpose" in ended["b"]
    assert "a" not in ended.visits
    assert "never" not in ended.ctx
    assert ended.state.failures_handled == 1


def test_an_unrouted_failure_fails_the_execution_and_drains_what_runs(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [bad, slow]}
        - {step: bad, tool: {kind: python, code: "raise ValueError('first')"}, next: never}
        - step: slow
          tool: {kind: python, code: "import time; time.sleep(0.5); result = 1"}
          next: never
        - {step: never, tool: {kind: noop}}
    """).failed()
    assert ended.error["step"] == "bad"
    assert ended["slow"] == 1
    assert "never" not in ended.visits


def test_one_unrouted_failure_outweighs_a_handled_one(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: python, code: "raise ValueError('handled')"}
          next: {arcs: [{step: more, when: "{{ event.name == 'call.error' }}"}]}
        - {step: more, tool: {kind: python, code: "raise ValueError('not handled')"}}
    """).failed()
    assert ended.error["step"] == "more"
    assert "not handled" in ended.error["message"]


def test_the_terminal_record_tells_the_last_step_its_result_and_the_error(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: last}
        - {step: last, tool: {kind: noop, result: {n: 1}}}
    """).completed()
    (record,) = ended.of(EventType.PLAYBOOK_COMPLETED)
    assert record["final_step"] == "last"
    assert record["failures_handled"] == 0
    assert record["result"]["status"] == "ok"
    failed = runtime.flow("- {step: start, tool: {kind: python, code: 'raise ValueError(3)'}}")
    (record,) = failed.failed().of(EventType.PLAYBOOK_FAILED)
    assert record["final_step"] == "start"
    assert record["error"]["kind"] == "unknown"


def test_a_result_of_a_failed_step_is_no_name_for_others(runtime: Runtime, api_url: str):
    ended = runtime.flow(f"""
        - step: start
          tool: {{kind: http, url: "{api_url}/api/v1/errors", params: {{error_type: "404"}}}}
          next: {{arcs: [{{step: a, when: "{{{{ event.name == 'call.error' }}}}", set: {{ctx.code: "{{{{ output.data.status_code }}}}"}}}}]}}
        - step: a
          tool: {{kind: noop, result: ["{{{{ start is defined }}}}", "{{{{ ctx.code }}}}"]}}
          next: {{arcs: [{{step: b, when: "{{{{ start is defined }}}}"}}]}}
        - {{step: b}}
    """).completed()
    assert ended["a"] == [False, 404]
    assert "b" not in ended.visits
