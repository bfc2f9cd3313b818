"""Going on from a step of an earlier execution: what is reused, what runs, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.errors import ConflictError, NotFoundError, ToolError, UsageError
from noetl_ray.events.types import EventType
from noetl_ray.submit import rerun_execution
from tests.unit.actors.rig import Rig, simulated

LINE = """
workload: {n: 1}
workflow:
  - step: a
    tool: {kind: http, url: u, value: {n: 5}}
    set: {ctx.total: "{{ a.n + workload.n }}", ctx.kept: yes}
    next: b
  - step: b
    tool: {kind: http, url: u, value: {n: "{{ ctx.total + a.n }}"}}
    set: {ctx.total: "{{ b.n }}"}
    next: c
  - step: c
    tool: {kind: http, url: u, value: {seen: "{{ b.n }}", total: "{{ ctx.total }}"}}
"""
FAN = """
workflow:
  - step: a
    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}, {step: d}]}
  - {step: b, tool: {kind: http, url: u, value: {n: 1}}, set: {ctx.b: 1}, next: j}
  - {step: c, tool: {kind: http, url: u, value: {n: 2}, takes: 1}, set: {ctx.c: 2}, next: j}
  - {step: d, tool: {kind: http, url: u, value: {n: 3}, takes: 2}, set: {ctx.d: 3}, next: j}
  - {step: j, tool: {kind: noop, result: "{{ ctx.b + ctx.c + ctx.d + b.n + c.n + d.n }}"}}
"""


def failing(rig: Rig, *steps: str) -> set[str]:
    """Steps that fail until they are taken out of the set."""
    bad = set(steps)

    def act(config: dict[str, Any], context: Any) -> Any:
        if context.step in bad:
            raise ToolError(NO, "server_error", True)
        return config.get("value", {})

    rig.act = act
    return bad


NO = "not yet"


async def again(rig: Rig, execution_id: int, step: str | None) -> int:
    done = await rerun_execution(rig.submit_ports, rig.scope, execution_id, from_step=step)
    return done.execution_id


def ran(rig: Rig, execution_id: int) -> list[str]:
    return [c.step for c in rig.calls if c.execution_id == execution_id]


@simulated
async def test_by_default_it_goes_on_where_it_failed(rig: Rig) -> None:
    bad = failing(rig, "b")
    rig.cluster()
    first = await rig.submit(LINE)
    assert (await rig.ended(first)).status == "FAILED"
    bad.clear()
    second = await again(rig, first, "")
    state = await rig.ended(second)
    assert (state.status, ran(rig, second)) == ("COMPLETED", ["b", "c"])
    assert state.steps["c"].result["extracted"] == {"seen": 11, "total": 11}
    assert state.ctx == {"total": 11, "kept": True}
    requests = rig.events(EventType.EXECUTION_REQUESTED)
    assert requests[-1].payload["again"]["of"] == first


@simulated
async def test_variables_are_as_they_were_when_the_step_was_entered(rig: Rig) -> None:
    failing(rig)
    rig.cluster()
    first = await rig.submit(LINE)
    assert (await rig.ended(first)).ctx["total"] == 11
    second = await again(rig, first, "b")
    state = await rig.ended(second)
    # From 6, not from 11: what `b` had written is undone.
    assert (state.ctx["total"], ran(rig, second)) == (11, ["b", "c"])
    third = await again(rig, second, "c")
    assert ran(rig, third) == []
    assert (await rig.ended(third)).steps["c"].result["extracted"] == {"seen": 11, "total": 11}
    assert ran(rig, third) == ["c"]


@simulated
async def test_branches_beside_keep_what_they_did_and_their_join_runs(rig: Rig) -> None:
    bad = failing(rig, "c")
    rig.cluster(slots=4)
    first = await rig.submit(FAN)
    assert (await rig.ended(first)).status == "FAILED"
    assert sorted(ran(rig, first)) == ["b", "c", "d"]
    bad.clear()
    second = await again(rig, first, "")
    state = await rig.ended(second)
    assert (state.status, ran(rig, second)) == ("COMPLETED", ["c"])
    assert state.steps["j"].result["extracted"] == 12


@simulated
async def test_a_join_runs_again_when_one_of_its_sources_does(rig: Rig) -> None:
    failing(rig)
    rig.cluster(slots=4)
    first = await rig.submit(FAN)
    await rig.ended(first)
    second = await again(rig, first, "d")
    state = await rig.ended(second)
    assert (state.status, ran(rig, second)) == ("COMPLETED", ["d"])
    assert state.steps["j"].result["extracted"] == 12


@simulated
async def test_a_large_result_is_reused_by_reference(rig: Rig) -> None:
    rows = [{"i": i, "pad": "y" * 90} for i in range(2_000)]
    body = """
workflow:
  - {step: a, tool: {kind: http, url: u, big: true}, next: b}
  - {step: b, tool: {kind: http, url: u, value: {n: "{{ a.rows | length }}"}}}
"""
    bad = {"b"}

    def act(config: dict[str, Any], context: Any) -> Any:
        if context.step in bad:
            raise ToolError(NO, "server_error", True)
        return {"rows": rows} if config.get("big") else config["value"]

    rig.act = act
    rig.cluster()
    first = await rig.submit(body)
    await rig.ended(first)
    bad.clear()
    second = await again(rig, first, "")
    state = await rig.ended(second)
    assert (state.steps["b"].result["extracted"], ran(rig, second)) == ({"n": 2_000}, ["b"])
    assert f"/{first}/" in state.steps["a"].result["reference"]["uri"]


@simulated
async def test_what_cannot_be_reused_is_refused_in_words(rig: Rig) -> None:
    bad = failing(rig, "b", "c")
    rig.cluster(slots=4)
    first = await rig.submit(FAN)
    with pytest.raises(ConflictError, match="has not ended"):
        await again(rig, first, "b")
    await rig.ended(first)
    with pytest.raises(UsageError, match="step 'b' failed beside 'd'"):
        await again(rig, first, "d")
    with pytest.raises(NotFoundError, match="no step 'x'; steps are a, b, c, d, j"):
        await again(rig, first, "x")
    with pytest.raises(NotFoundError, match="was never entered"):
        await again(rig, first, "j")
    bad.clear()
    done = await rig.submit(LINE)
    await rig.ended(done)
    with pytest.raises(UsageError, match="did not fail in a step; say --from STEP"):
        await again(rig, done, "")
