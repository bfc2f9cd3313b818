"""Steps: no tool, admission, `when`, re-entry and joins (section 4)."""

from __future__ import annotations

from noetl_ray.events.types import EventType
from tests.support.conformance import Ended, Runtime


def entered(ended: Ended) -> list[str]:
    """The steps in the order they were entered."""
    return [payload["step"] for payload in ended.of(EventType.STEP_ENTER)]


def test_a_step_without_a_tool_gives_an_empty_mapping_and_follows_its_arcs(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, desc: nothing here, next: after}
        - step: after
          tool: {kind: noop, result: ["{{ start }}", "{{ start is defined }}", "{{ steps.start }}"]}
    """).completed()
    assert ended["after"] == [{}, True, {}]


def test_a_step_without_next_does_not_fall_through(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: one}
        - {step: one, tool: {kind: noop}}
        - {step: two, tool: {kind: noop}}
        - {step: end, tool: {kind: noop}}
    """).completed()
    assert ended.visits == {"start": 1, "one": 1}
    assert ended.state.final_step == "one"


def test_end_is_an_ordinary_step_when_an_arc_reaches_it(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: end}
        - {step: end, tool: {kind: noop, result: 5}}
    """).completed()
    assert ended["end"] == 5


def test_an_arc_to_end_without_such_a_step_ends_the_branch(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          next: {arcs: [{step: end}, {step: other}]}
        - {step: other}
    """).completed()
    assert ended.visits == {"start": 1}


def test_a_step_not_admitted_is_skipped_and_its_arcs_are_not_followed(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          next: [gated, open]
        - step: gated
          spec: {policy: {admit: {rules: [{when: "{{ workload.go }}", then: {allow: true}}, {else: {then: {allow: false}}}]}}}
          tool: {kind: noop, result: 1}
          set: {ctx.gated: true}
          next: after
        - step: open
          spec: {policy: {admit: {rules: [{when: "{{ workload.go }}", then: {allow: false}}]}}}
          tool: {kind: noop, result: 2}
        - {step: after}
        """,
        head="workload: {go: false}",
    ).completed()
    assert ended.state.steps["gated"].status == "skipped"
    assert "after" not in ended.visits
    assert "gated" not in ended.values
    assert "gated" not in ended.ctx
    assert ended["open"] == 2


def test_a_false_step_when_skips_the_step_and_follows_its_arcs(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          when: "{{ workload.nobody }}"
          tool: {kind: noop, result: 1}
          set: {ctx.never: 1}
          next: after
        - step: after
          tool: {kind: noop, result: "{{ start.x | default('none') }}"}
    """).completed()
    assert ended.state.steps["start"].status == "skipped"
    assert ended["after"] == "none"
    assert ended.ctx == {}


def test_orphans_never_run(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start}
        - {step: cleanup, tool: {kind: python, code: "raise ValueError('never')"}}
    """).completed()
    assert ended.visits == {"start": 1}


def test_step_input_wins_over_the_tools_own(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          input: {a: step}
          tool: {kind: python, input: {a: tool, b: tool}, code: "result = [a, b]"}
    """).completed()
    assert ended["start"] == ["step", "tool"]


def test_a_step_runs_again_and_overwrites_its_result(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          loop: {in: "{{ range(ctx.round | default(1)) | list }}", iterator: n}
          tool:
            kind: noop
            result: "{{ ctx.round | default(1) }}"
          set: {ctx.round: "{{ (ctx.round | default(1)) + 1 }}"}
          next: {arcs: [{step: start, when: "{{ ctx.round < 4 }}"}, {step: after}]}
        - step: after
          tool: {kind: noop, result: "{{ start.results }}"}
    """).completed()
    assert ended.visits == {"start": 3, "after": 1}
    assert ended["after"] == [3, 3, 3]


def test_retry_counters_start_anew_with_each_visit(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: noop
            result: "{{ _attempt }}"
            spec:
              policy:
                rules: [{when: "{{ _attempt < 3 }}", then: {do: retry, attempts: 3}}]
          set: {ctx.seen: "{{ (ctx.seen | default([])) + [output.data] }}"}
          next: {arcs: [{step: start, when: "{{ ctx.seen | length < 2 }}"}]}
    """).completed()
    assert ended.ctx["seen"] == [3, 3]


def test_a_reducer_runs_once_after_all_branches(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [quick, slow]}
        - {step: quick, tool: {kind: noop, result: {n: 1}}, next: reduce}
        - step: slow
          tool: {kind: python, code: "import time; time.sleep(0.3); result = {'n': 2}"}
          next: later
        - {step: later, tool: {kind: noop, result: {n: 3}}, next: reduce}
        - step: reduce
          tool: {kind: noop, result: "{{ quick.n + later.n }}"}
    """).completed()
    assert ended["reduce"] == 4
    assert ended.visits["reduce"] == 1
    assert entered(ended)[-1] == "reduce"


def test_an_if_else_merge_does_not_wait_for_the_branch_not_taken(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          next: {arcs: [{step: high, when: "{{ 2 > 1 }}"}, {step: low}]}
        - {step: high, tool: {kind: noop, result: {category: high}}, next: merge}
        - {step: low, tool: {kind: noop, result: {category: low}}, next: merge}
        - step: merge
          tool: {kind: noop, result: "{{ high.category if high else low.category }}"}
    """).completed()
    assert ended["merge"] == "high"
    assert "low" not in ended.visits


def test_a_join_does_not_wait_for_a_branch_that_ended_early(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [a, b]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: deep, when: "{{ false }}"}]}
        - {step: deep, tool: {kind: noop}, next: join}
        - {step: b, tool: {kind: noop, result: 2}, next: join}
        - {step: join, tool: {kind: noop, result: "{{ b }}"}}
    """).completed()
    assert ended["join"] == 2


def test_a_join_counts_a_skipped_step_as_arrived(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [a, b]}
        - {step: a, spec: {policy: {admit: {rules: [{else: {allow: false}}]}}}, tool: {kind: noop}, next: join}
        - {step: b, tool: {kind: noop}, next: join}
        - {step: join, tool: {kind: noop, result: 1}}
    """).completed()
    assert ended["join"] == 1
    assert ended.visits["join"] == 1


def test_a_cycle_inside_a_branch_is_waited_for_until_it_exits(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [page, other]}
        - step: page
          tool: {kind: noop}
          set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
          next: {arcs: [{step: page, when: "{{ ctx.n < 4 }}"}, {step: join}]}
        - {step: other, tool: {kind: noop}, next: join}
        - {step: join, tool: {kind: noop, result: "{{ ctx.n }}"}}
    """).completed()
    assert ended.visits == {"start": 1, "page": 4, "other": 1, "join": 1}
    assert ended["join"] == 4


def test_a_join_waits_for_a_branch_that_mends_its_failure(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [good, bad]}
        - {step: good, tool: {kind: noop, result: 1}, next: join}
        - step: bad
          tool: {kind: python, code: "raise ValueError('mended')"}
          next: {arcs: [{step: mend, when: "{{ event.name == 'call.error' }}"}, {step: join}]}
        - {step: mend, tool: {kind: python, code: "import time; time.sleep(0.2); result = 2"}, next: join}
        - {step: join, tool: {kind: noop, result: "{{ good + mend }}"}}
    """).completed()
    assert ended["join"] == 3
    assert ended.visits["join"] == 1
    assert ended.state.failures_handled == 1


def test_an_if_else_within_a_cycle_merges_each_time_round(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          set: {ctx.n: 0, ctx.seen: []}
          next: pick
        - step: pick
          next: {arcs: [{step: odd, when: "{{ ctx.n % 2 == 1 }}"}, {step: even}]}
        - {step: odd, tool: {kind: noop, result: odd}, set: {ctx.last: odd}, next: merge}
        - {step: even, tool: {kind: noop, result: even}, set: {ctx.last: even}, next: merge}
        - step: merge
          tool: {kind: noop}
          set: {ctx.n: "{{ ctx.n + 1 }}", ctx.seen: "{{ ctx.seen + [ctx.last] }}"}
          next: {arcs: [{step: pick, when: "{{ ctx.n < 4 }}"}, {step: done}]}
        - {step: done}
    """).completed()
    assert ended.ctx["seen"] == ["even", "odd", "even", "odd"]
    assert ended.visits == {"start": 1, "pick": 4, "odd": 2, "even": 2, "merge": 4, "done": 1}


def test_two_joins_one_after_the_other(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [a, b, c]}
        - {step: a, tool: {kind: noop, result: 1}, next: first}
        - {step: b, tool: {kind: noop, result: 2}, next: first}
        - {step: first, tool: {kind: noop, result: "{{ a + b }}"}, next: second}
        - {step: c, tool: {kind: noop, result: 4}, next: second}
        - {step: second, tool: {kind: noop, result: "{{ first + c }}"}}
    """).completed()
    assert ended["second"] == 7
    assert set(ended.visits.values()) == {1}


def test_an_outer_cycle_round_a_join_does_not_deadlock(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          set: {ctx.n: 0}
          next: head
        - {step: head, next: [a, b]}
        - {step: a, tool: {kind: noop}, next: join}
        - {step: b, tool: {kind: noop}, next: join}
        - step: join
          set: {ctx.n: "{{ ctx.n + 1 }}"}
          next: {arcs: [{step: head, when: "{{ ctx.n < 3 }}"}, {step: done}]}
        - {step: done, tool: {kind: noop, result: "{{ ctx.n }}"}}
    """).completed()
    assert ended.visits == {"start": 1, "head": 3, "a": 3, "b": 3, "join": 3, "done": 1}
    assert ended["done"] == 3


def test_a_step_in_flight_is_not_started_twice(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, next: [work, other]}
        - step: work
          tool: {kind: python, code: "import time; time.sleep(0.3); result = 1"}
        - {step: other, tool: {kind: noop}, next: {arcs: [{step: work, when: "{{ true }}"}]}}
    """).completed()
    assert ended.visits["work"] == 1
