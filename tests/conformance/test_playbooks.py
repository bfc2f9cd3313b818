"""Section 7, kind playbook: what a call gives back, waits for and passes on."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.parse import parse_playbook
from noetl_ray.errors import PlaybookError
from noetl_ray.events.types import EventType
from tests.support.conformance import Runtime, playbook

SCORE = """
- step: start
  tool:
    kind: python
    input: {who: "{{ workload.who }}", bonus: "{{ workload.bonus }}"}
    code: |
      result = {"profile_score": len(who) + bonus, "who": who}
  next: save
- step: save
  tool: {kind: noop, result: {saved: "{{ start.who }}"}}
"""
SCORE_HEAD = "workload: {who: nobody, bonus: 10}"


@pytest.fixture(scope="module")
def score(runtime: Runtime) -> str:
    runtime.register(SCORE, "children/score", head=SCORE_HEAD)
    return "children/score"


def test_with_return_step_the_result_is_a_status_record_with_that_steps_fields(
    runtime: Runtime, score: str
) -> None:
    ended = runtime.flow(
        """
        - step: start
          tool: {kind: playbook, path: "{{ workload.child }}", input: {who: Ada}, return_step: start}
          next:
            arcs: [{step: high, when: "{{ start.profile_score > 12 }}"}]
        - step: high
          tool: {kind: noop, result: {got: "{{ start.profile_score }}", child: "{{ start.path }}"}}
        """,
        payload={"child": score},
    ).completed()
    given = ended["start"]
    assert given["profile_score"] == 13
    assert (given["status"], given["completed"], given["failed"]) == ("completed", True, False)
    assert given["execution_id"].isdigit()
    assert ended["high"] == {"got": 13, "child": score}


def test_with_return_result_the_result_is_that_steps_alone(runtime: Runtime, score: str) -> None:
    ended = runtime.flow(
        f"""
        - step: named
          tool: {{kind: playbook, path: {score}, return_result: true, result_step: start}}
          next: last
        - step: last
          tool: {{kind: playbook, path: {score}, args: {{who: Bo}}, return_result: "true"}}
        """
    ).completed()
    assert ended["named"] == {"profile_score": 16, "who": "nobody"}
    assert ended["last"] == {"saved": "Bo"}


def test_without_either_the_parent_waits_and_gets_the_last_steps_fields(
    runtime: Runtime, score: str
) -> None:
    ended = runtime.flow(
        f"- {{step: start, tool: {{kind: playbook, path: {score}, payload: {{who: Cy}}}}}}"
    ).completed()
    assert (ended["start"]["saved"], ended["start"]["status"]) == ("Cy", "completed")


def test_a_step_that_other_engines_add_stands_for_the_last_one(
    runtime: Runtime, score: str
) -> None:
    ended = runtime.flow(
        f"- {{step: start, tool: {{kind: playbook, path: {score}, return_step: end}}}}"
    ).completed()
    assert ended["start"]["saved"] == "nobody"


def test_what_is_told_otherwise_does_not_wait(runtime: Runtime, score: str) -> None:
    ended = runtime.flow(
        f"- {{step: start, tool: {{kind: playbook, path: {score}, async: true}}}}"
    ).completed()
    assert (ended["start"]["status"], ended["start"]["async"]) == ("started", True)


def test_a_childs_failure_is_never_a_success(runtime: Runtime) -> None:
    runtime.register(
        "- {step: start, tool: {kind: python, code: 'raise ValueError(\"no such day\")'}}",
        "children/fails",
    )
    steps = """
    - step: start
      tool: {kind: playbook, path: children/fails, return_step: start}
      next:
        arcs: [{step: mend, when: "{{ event.name == 'call.error' }}"}, {step: never}]
    - step: mend
      tool: {kind: noop, result: {why: "{{ ctx.why }}"}}
    - {step: never, tool: {kind: noop}}
    """
    ended = runtime.flow(steps).completed()
    assert "never" not in ended.visits
    error = ended.state.steps["start"].error
    assert error is not None
    assert error["code"] == "PLAYBOOK_FAILED"
    assert "failed in step 'start': ValueError: no such day" in error["message"]
    alone = "- {step: start, tool: {kind: playbook, path: children/fails}}"
    assert "no such day" in runtime.flow(alone).failed().error["message"]


def test_a_call_may_stand_in_a_pipeline_with_rules(runtime: Runtime, score: str) -> None:
    ended = runtime.flow(
        f"""
        - step: start
          tool:
            - name: before
              kind: python
              code: |
                result = {{"who": "Dora"}}
            - name: call
              kind: playbook
              path: {score}
              input: {{who: "{{{{ before.who }}}}"}}
              return_step: start
              spec:
                policy:
                  rules:
                    - when: "{{{{ output.status == 'error' }}}}"
                      then: {{do: fail}}
                    - else: {{then: {{do: continue, set: {{ctx.seen: "{{{{ output.data.who }}}}"}}}}}}
            - name: after
              kind: noop
              result: {{sum: "{{{{ call.profile_score + (before.who | length) }}}}"}}
        """
    ).completed()
    assert ended["start"]["sum"] == 18
    assert ended.ctx["seen"] == "Dora"
    assert ended["start"]["results"]["call"]["who"] == "Dora"


def test_a_call_per_item_of_a_loop(runtime: Runtime, score: str) -> None:
    ended = runtime.flow(
        f"""
        - step: each
          loop: {{in: [Al, Bea], iterator: who, spec: {{mode: parallel, max_in_flight: 2}}}}
          tool:
            kind: playbook
            path: {score}
            input: {{who: "{{{{ iter.who }}}}"}}
            return_step: start
        """
    ).completed()
    assert [one["profile_score"] for one in ended["each"]["results"]] == [12, 13]
    assert len(ended.of(EventType.CHILD_REQUESTED, "each")) == 2


def test_a_cursor_loop_cannot_call_and_says_what_to_do() -> None:
    steps = """
    - step: start
      loop:
        cursor: {kind: postgres, auth: pg, claim: SELECT 1}
        iterator: row
        spec: {mode: cursor}
      tool: {kind: playbook, path: a}
    """
    with pytest.raises(PlaybookError) as caught:
        parse_playbook(playbook(steps))
    (problem,) = caught.value.problems
    assert problem["message"] == (
        "the task 'start_task' calls a playbook, which a cursor loop cannot do"
    )
    assert problem["hint"] == "get the items in one step and loop over them with `in` in the next"
