"""Loops over a collection: order, window, failures, empty ones, and results in index order."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from noetl_ray.dsl.model import Loop
from noetl_ray.engine.fold import fold
from noetl_ray.engine.inputs import Inputs, ResultNeededError
from noetl_ray.engine.loops import iteration_names
from noetl_ray.engine.names import extracted_value
from tests.unit.noetl_ray.engine.rig import Rig, playbook, step


def looped(items: Any, mode: str = "sequential", window: Any = None, **more: Any) -> Rig:
    loop = Loop(items=items, iterator="x", mode=mode, max_in_flight=window)  # type: ignore[arg-type]
    return Rig(playbook(step("each", "after", loop=loop, **more), step("after")))


def issued(rig: Rig) -> list[dict[str, Any]]:
    return [
        {**e.payload["iteration"], "item": e.payload["context"]["item"]}
        for r in rig.log
        for e in r.record.events
        if e.event_type == "command.issued" and "iteration" in e.payload
    ]


def result(rig: Rig) -> Any:
    return extracted_value(rig.state.steps["each"].result, "each")


def test_a_sequential_loop_runs_one_item_after_the_other_and_then_its_arcs():
    rig = looped([10, 20, 30])
    values = iter([{"v": 1}, {"v": 2}, {"v": 3}])
    assert rig.run({"each": lambda _r: next(values)}) == ["each"] * 3 + ["after"]
    assert [i["item"] for i in issued(rig)] == [10, 20, 30]
    assert result(rig)["results"] == [{"v": 1}, {"v": 2}, {"v": 3}]
    assert result(rig)["stats"] == {"total": 3, "success": 3, "failed": 0}
    assert result(rig)["data"] == result(rig)["results"]
    assert rig.state.status == "COMPLETED"


def test_a_parallel_loop_keeps_at_most_max_in_flight_open():
    rig = looped("{{ range(7) | list }}", "parallel", "{{ 2 + 1 }}")
    rig.request()
    rig.settle()
    assert rig.open() == ["each"] * 3
    rig.finish("each")
    rig.settle()
    assert rig.open() == ["each"] * 3
    assert len(issued(rig)) == 4


def test_results_stand_in_the_order_of_the_collection_whatever_came_first():
    rig = looped(["a", "b"], "parallel", 2)
    rig.request()
    rig.settle()
    commands = sorted(rig.state.commands)
    rig.state.commands = {c: rig.state.commands[c] for c in reversed(commands)}
    rig.finish("each", {"v": "second"})
    rig.finish("each", {"v": "first"})
    rig.settle()
    assert [r["v"] for r in result(rig)["results"]] == ["first", "second"]


@pytest.mark.parametrize("items", [[], None, "", "{{ nothing }}"])
def test_an_empty_collection_is_done_at_once_and_its_arcs_fire(items):
    rig = looped(items)
    assert rig.run() == ["after"]
    assert result(rig)["count"] == 0


@pytest.mark.parametrize("items", [{"a": 1}, "one"])
def test_a_mapping_or_a_text_is_one_item(items):
    rig = looped(items)
    rig.run()
    assert [i["item"] for i in issued(rig)] == [items]


def test_a_failed_iteration_lets_the_others_drain_starts_no_more_and_fails_the_step():
    rig = looped([1, 2, 3, 4, 5], "parallel", 2)
    outcomes = iter([ValueError("boom"), {"v": 2}])
    assert rig.run({"each": lambda _r: next(outcomes)}) == ["each", "each"]
    assert rig.state.status == "FAILED"
    assert rig.state.error["message"] == "boom"
    assert result(rig)["stats"] == {"total": 5, "success": 1, "failed": 1}


def test_arcs_of_a_loop_see_loop_done():
    loop = Loop(items=[1], iterator="x")
    rig = Rig(
        playbook(step("each", ("ok", "{{ event.name == 'loop.done' }}"), loop=loop), step("ok"))
    )
    assert rig.run() == ["each", "ok"]


def test_each_visit_of_a_loop_step_is_a_fresh_epoch():
    loop = Loop(items=[1, 2], iterator="x")
    rig = Rig(
        playbook(
            step("each", "again", loop=loop),
            step("again", ("each", "{{ ctx.n < 2 }}"), set={"ctx.n": "{{ ctx.n + 1 }}"}),
            workload={"n": 0},
        )
    )
    assert rig.run() == ["each", "each", "again"] * 2
    assert len({e.command_id for r in rig.log for e in r.record.events if e.command_id}) == 6


@pytest.mark.parametrize(("window", "shown"), [(0, "0"), ("many", "'many'"), (True, "True")])
def test_a_bad_limit_fails_the_step_and_says_so(window, shown):
    rig = looped([1], "parallel", window)
    rig.run()
    assert rig.state.error["message"] == (
        f"max_in_flight of 'each' is {shown}; give it a number from 1 to 1000"
    )


def test_a_number_is_no_collection():
    rig = looped("{{ 5 }}")
    rig.run()
    assert rig.state.error["message"] == "the loop of 'each' runs over int; give it a list"


def test_a_wide_window_is_issued_over_several_decisions():
    """P6: a decision holds at most 256 events."""
    rig = looped(list(range(600)), "parallel", 600)
    rig.frame_defaults = {"collection_threshold": 600}
    rig.request()
    rig.settle()
    assert len(rig.open()) == 600
    assert max(len(r.record.events) for r in rig.log) <= 256


def test_p27_a_collection_in_the_tier_is_asked_for_never_guessed():
    loop = Loop(items="{{ load.rows }}", iterator="x")
    rig = Rig(playbook(step("load", "each"), step("each", loop=loop)))
    rig.request()
    rig.settle()
    block = {
        "status": "ok",
        "tier": "json",
        "reference": {"uri": "noetl://default/default/results/7001/load/v1.f0/0/1@1", "bytes": 9},
        "extracted": {"rows": [{"i": 0}]},
        "truncated": {"rows": 3},
    }
    rig.finish("load", block=block)
    with pytest.raises(ResultNeededError) as needed:
        rig.decide()
    assert needed.value.step == "load"
    rig.resolved = {"load": {"rows": [{"i": 0}, {"i": 1}, {"i": 2}]}}
    rig.settle()
    assert rig.state.loops["each"].total == 3


def test_every_prefix_of_a_loop_folds_to_what_was_live():
    rig = looped([1, 2, 3], "parallel", 2)
    rig.run()
    state = None
    for recorded in rig.log:
        state = fold(state, recorded)
        assert fold(state, recorded) == state
    assert state == rig.state


def test_names_of_an_iteration():
    names = iteration_names({"index": 2, "total": 3, "iterator": "row"}, {"a": 1})
    assert names["row"] == {"a": 1}
    assert names["iter"] == {
        "row": {"a": 1},
        "_index": 2,
        "index": 2,
        "_first": False,
        "_last": True,
    }
    assert (names["_index"], names["loop_index"], names["_total"]) == (2, 2, 3)


def test_inputs_can_be_replaced_for_a_second_try():
    inputs = Inputs(now_ms=0, producer="p", mint=lambda: 1, assign=lambda _c: None)
    assert replace(inputs, resolved={"a": 1}).resolved == {"a": 1}
