from __future__ import annotations

import itertools

import pytest

from noetl_ray.dsl.model import Arc, Rule
from noetl_ray.engine.fold import fold
from noetl_ray.engine.inputs import Claim
from tests.unit.noetl_ray.engine.rig import Rig, playbook, step


def test_a_chain_runs_in_order_and_completes():
    rig = Rig(playbook(step("a", "b"), step("b", "c"), step("c")))
    assert rig.run() == ["a", "b", "c"]
    assert rig.state.status == "COMPLETED"
    assert rig.state.final_step == "c"
    assert rig.types()[:4] == [
        "execution.requested",
        "playbook.initialized",
        "step.enter",
        "command.issued",
    ]
    assert rig.types().count("playbook.completed") == 1


def test_one_decision_leaves_one_step_and_enters_the_next_in_one_record():
    rig = Rig(playbook(step("a", "b"), step("b")))
    rig.request()
    rig.settle()
    rig.finish("a")
    before = len(rig.log)
    rig.settle()
    assert len(rig.log) == before + 1
    kinds = [e.event_type.value for e in rig.log[-1].record.events]
    assert kinds == ["step.exit", "step.enter", "command.issued"]
    assert rig.log[-1].record.consumed == (before,)


def test_an_exclusive_step_takes_the_first_arc_that_matches():
    rig = Rig(
        playbook(
            step("a", ("b", "{{ a.n > 5 }}"), ("c", "{{ a.n > 1 }}"), "d"),
            step("b"),
            step("c"),
            step("d"),
        )
    )
    assert rig.run({"a": {"n": 3}}) == ["a", "c"]


def test_an_inclusive_step_takes_every_arc_that_matches_and_a_join_runs_once():
    rig = Rig(
        playbook(
            step("a", "b", "c", ("d", "{{ false }}"), mode="inclusive"),
            step("b", "j"),
            step("c", "j"),
            step("d", "j"),
            step("j"),
        )
    )
    assert rig.run() == ["a", "b", "c", "j"]
    assert rig.state.steps["j"].visits == 1


def test_an_if_else_merge_does_not_wait_for_the_branch_not_taken():
    rig = Rig(
        playbook(
            step("a", ("b", "{{ workload.x }}"), "c"),
            step("b", "j"),
            step("c", "j"),
            step("j"),
            workload={"x": True},
        )
    )
    assert rig.run() == ["a", "b", "j"]
    assert rig.state.status == "COMPLETED"


def test_a_join_inside_an_outer_cycle_runs_once_per_turn():
    rig = Rig(
        playbook(
            step("a", "b", "c", mode="inclusive"),
            step("b", "j"),
            step("c", "j"),
            step("j", ("a", "{{ ctx.n < 3 }}"), set={"ctx.n": "{{ ctx.n + 1 }}"}),
            workload={"n": 0},
        )
    )
    ran = rig.run()
    assert ran == ["a", "b", "c", "j"] * 3
    assert rig.state.status == "COMPLETED"


def test_a_cycle_sees_the_new_value_of_its_own_set():
    rig = Rig(
        playbook(
            step(
                "page",
                ("page", "{{ ctx.page <= 3 }}"),
                "done",
                set={"ctx.page": "{{ ctx.page + 1 }}"},
            ),
            step("done"),
            workload={"page": 1},
        )
    )
    assert rig.run() == ["page", "page", "page", "done"]
    assert rig.state.steps["page"].visits == 3


def test_a_failed_step_without_a_matching_arc_fails_the_execution_after_draining():
    rig = Rig(
        playbook(
            step("a", "b", "c", mode="inclusive"),
            step("b", "d"),
            step("c", "e"),
            step("d"),
            step("e"),
        )
    )
    assert rig.run({"b": ValueError("boom")}) == ["a", "b", "c"]
    assert rig.state.status == "FAILED"
    assert rig.state.error["message"] == "boom"


def test_a_failure_taken_by_an_arc_with_a_condition_is_handled():
    rig = Rig(
        playbook(
            step("a", ("fix", "{{ event.name == 'call.error' }}"), "next"),
            step("fix"),
            step("next"),
        )
    )
    assert rig.run({"a": ValueError("boom")}) == ["a", "fix"]
    assert rig.state.status == "COMPLETED"
    assert rig.state.failures_handled == 1


def test_an_unconditional_arc_does_not_take_a_failure():
    rig = Rig(playbook(step("a", "b"), step("b")))
    assert rig.run({"a": ValueError("boom")}) == ["a"]
    assert rig.state.status == "FAILED"


def test_a_condition_that_raises_does_not_match_and_the_exit_says_so():
    rig = Rig(playbook(step("a", ("b", "{{ 1 // 0 }}"), "c"), step("b"), step("c")))
    assert rig.run() == ["a", "c"]
    assert rig.state.status == "COMPLETED"
    (warning,) = next(
        e.payload["warnings"] for r in rig.log for e in r.record.events if "warnings" in e.payload
    )
    assert warning.startswith("arc to b: ")


def test_a_set_value_that_raises_is_skipped_and_the_others_apply():
    rig = Rig(playbook(step("a", set={"ctx.x": "{{ 1 // 0 }}", "ctx.y": 2})))
    rig.run()
    assert rig.state.ctx == {"y": 2}


def test_a_condition_on_what_only_the_tier_has_fails_the_step_instead_of_guessing():
    rig = Rig(playbook(step("a", ("b", "{{ a.rows[5].x == 1 }}")), step("b")))
    rig.request()
    rig.settle()
    result = {
        "status": "ok",
        "tier": "feather",
        "reference": {
            "uri": "noetl://default/default/results/7001/a/v1.f0/0/1@1",
            "bytes": 10**9,
        },
        "extracted": {"rows": [{"x": 0}]},
        "truncated": {"rows": 1200},
    }
    rig.finish("a", block=result)
    rig.settle()
    assert rig.state.status == "FAILED"
    assert "1200 elements" in rig.state.error["message"]


def test_a_condition_may_read_the_length_of_what_lives_in_the_tier():
    rig = Rig(
        playbook(step("a", ("b", "{{ a.rows | length == 1200 and a.rows[0].x == 0 }}")), step("b"))
    )
    rig.request()
    rig.settle()
    result = {
        "status": "ok",
        "tier": "feather",
        "reference": {"uri": "noetl://default/default/results/7001/a/v1.f0/0/1@1"},
        "extracted": {"rows": [{"x": 0}]},
        "truncated": {"rows": 1200},
    }
    rig.finish("a", block=result)
    rig.settle()
    assert rig.open() == ["b"]


def test_a_step_without_a_tool_passes_through_without_a_command():
    rig = Rig(playbook(step("start", "a", kind=None), step("a")))
    assert rig.run() == ["a"]
    assert rig.types().count("command.issued") == 1


def test_a_step_not_admitted_is_skipped_and_its_arcs_are_not_followed():
    rule = Rule(when="{{ false }}", do="continue")
    deny = Rule(when=None, do="fail")
    rig = Rig(playbook(step("a", "b"), step("b", "c", admit=(rule, deny)), step("c")))
    assert rig.run() == ["a"]
    assert rig.state.status == "COMPLETED"
    assert rig.state.steps["b"].status == "skipped"


def test_a_false_when_skips_the_step_and_goes_on():
    rig = Rig(playbook(step("a", "b"), step("b", "c", when="{{ false }}"), step("c")))
    assert rig.run() == ["a", "c"]


def test_cancel_ends_the_execution_and_late_results_change_nothing():
    """P10: a cancel takes effect when a decision consumes it."""
    rig = Rig(playbook(step("a", "b"), step("b")))
    rig.request()
    rig.settle()
    rig.cancel()
    rig.settle()
    assert rig.state.status == "CANCELLED"
    rig.finish("a")
    rig.settle()
    assert rig.state.status == "CANCELLED"
    assert rig.types().count("step.exit") == 0


def test_the_arc_set_is_applied_before_the_target_starts():
    rig = Rig(
        playbook(
            step("a", Arc(step="b", set={"ctx.x": "{{ a.v }}"})),
            step("b", ("c", "{{ ctx.x == 9 }}")),
            step("c"),
        )
    )
    assert rig.run({"a": {"v": 9}}) == ["a", "b", "c"]


def test_p3_command_ids_follow_from_the_decision_alone():
    one, two = (Rig(playbook(step("a", "b"), step("b"))) for _ in range(2))
    one.run()
    two.mint()
    two.run()
    names = [
        [e.command_id for r in rig.log for e in r.record.events if e.command_id]
        for rig in (one, two)
    ]
    assert names[0] == names[1]


def test_p4_facts_apply_only_when_a_decision_consumes_them():
    rig = Rig(playbook(step("a", "b"), step("b")))
    rig.request()
    rig.settle()
    rig.finish("a", {"v": 1})
    assert rig.state.steps["a"].result is None
    assert rig.state.pending
    rig.settle()
    assert rig.state.steps["a"].result["extracted"] == {"v": 1}


def test_p8_links_form_one_tree():
    rig = Rig(
        playbook(step("a", "b", "c", mode="inclusive"), step("b", "j"), step("c", "j"), step("j"))
    )
    rig.run()
    control = [e for r in rig.log for e in r.record.events if e.aggregate_type == "execution"]
    root = rig.log[0].record.events[0].event_id
    assert control[0].prev_event_id == root
    for before, after in itertools.pairwise(control):
        assert after.prev_event_id == before.event_id


def test_p16_a_claim_in_the_decision_names_worker_and_incarnation():
    claim = Claim(worker_id="w", incarnation="i1", lease_ms=1000)
    rig = Rig(playbook(step("a")), claim=claim)
    rig.request()
    rig.settle()
    (command,) = rig.state.commands.values()
    assert (command.worker_id, command.incarnation, command.version) == ("w", "i1", 0)


def test_p24_a_command_carries_only_what_its_templates_read():
    from noetl_ray.dsl.model import Step, Task

    reader = Step(
        name="b",
        tasks=(Task(label="t", kind="noop", config={"result": "{{ ctx.x }} {{ a.v }}"}),),
    )
    rig = Rig(
        playbook(
            step("z", "a", set={"ctx.x": 1, "ctx.y": 2}), step("a", "b"), reader, workload={"w": 3}
        )
    )
    rig.run({"a": {"v": 5}, "z": {"big": "x"}})
    issued = next(
        e
        for r in rig.log
        for e in r.record.events
        if e.event_type == "command.issued" and e.payload["step"] == "b"
    )
    assert issued.payload["context"]["ctx"] == {"x": 1}
    assert list(issued.payload["context"]["steps"]) == ["a"]
    assert issued.payload["context"]["workload"] == {}


def test_a_workload_key_named_execution_id_does_not_shadow_the_real_one():
    rig = Rig(
        playbook(
            step("a", ("b", "{{ execution_id == '7001' and workload.execution_id == 5 }}")),
            step("b"),
            workload={"execution_id": 5},
        )
    )
    assert rig.run() == ["a", "b"]


def test_every_prefix_folds_to_what_was_live():
    rig = Rig(
        playbook(step("a", "b", "c", mode="inclusive"), step("b", "j"), step("c", "j"), step("j"))
    )
    rig.run()
    state = None
    for recorded in rig.log:
        state = fold(state, recorded)
        assert fold(state, recorded) == state
    assert state == rig.state


def test_a_wide_fan_out_stays_below_the_event_limit():
    """P6: a decision holds at most 256 events."""
    leaves = [f"s{i}" for i in range(150)]
    rig = Rig(playbook(step("a", *leaves, mode="inclusive"), *(step(n) for n in leaves)))
    rig.run()
    assert rig.state.status == "COMPLETED"
    assert max(len(r.record.events) for r in rig.log) <= 256


@pytest.mark.parametrize("order", list(itertools.permutations("bcd")))
def test_a_join_waits_for_all_whatever_the_order(order):
    rig = Rig(
        playbook(
            step("a", "b", "c", "d", mode="inclusive"),
            step("b", "j"),
            step("c", "j"),
            step("d", "j"),
            step("j"),
        )
    )
    rig.request()
    rig.settle()
    rig.finish("a")
    rig.settle()
    for name in order:
        assert "j" not in rig.open()
        rig.finish(name)
        rig.settle()
    assert rig.open() == ["j"]


def test_a_set_value_too_large_for_the_log_fails_the_step_and_says_where_to_keep_it():
    rig = Rig(playbook(step("a", set={"ctx.x": "{{ a.text }}"})))
    rig.run({"a": {"text": "x" * 200_000}})
    assert rig.state.status == "FAILED"
    assert rig.state.error["message"].startswith("set ctx.x would put 200002 bytes into")


def test_a_step_in_flight_absorbs_a_second_token():
    rig = Rig(playbook(step("a", "b", "c", mode="inclusive"), step("b", "c"), step("c", "b")))
    rig.request()
    rig.settle()
    rig.finish("a")
    rig.settle()
    first = rig.open()
    assert len(first) == 1
    (other,) = {"b", "c"} - set(first)
    rig.finish(first[0])
    rig.settle()
    assert rig.open() == [other]
    assert rig.state.steps[other].visits == 1
