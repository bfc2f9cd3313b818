"""The side-effect barrier: adopted, executed or in doubt; counted; free for first dispatches."""

from __future__ import annotations

from typing import Any

from actors.barrier import BarrierBook
from noetl_ray.errors import LogUnavailableError, StoreUnavailableError, ToolError
from noetl_ray.events.types import COMMAND_TERMINAL
from tests.unit.actors.rig import Rig, simulated

LARGE = {"text": "x" * 200_000}
ONE = "workflow: [{step: a, tool: {kind: http, url: u, takes: 0}}]"
PAIR = """
workflow:
  - step: a
    tool:
      - {name: first, kind: noop, result: {n: 1}}
      - {name: second, kind: http, url: u, takes: 0}
"""
ASKS = """
workflow:
  - step: a
    tool:
      kind: http
      url: u
      spec: {policy: {rules: [{when: "{{ output.http.status == 500 }}", then: {do: fail}}]}}
"""


async def dies_before_completion(rig: Rig, body: str, *, on: bool = True) -> Any:
    """The first worker dies with its result stored and its completion not in the log."""
    book = BarrierBook(on=on)
    rig.barriers = book
    rig.cluster()
    await rig.clock.sleep(1)

    first_lives = True

    async def refuse(_subject: str, record: Any) -> None:
        ended = record.events[-1].event_type in COMMAND_TERMINAL
        if ended and first_lives:
            message = "not now"
            raise LogUnavailableError(message)

    rig.on_append = refuse
    execution_id = await rig.submit(body)
    await rig.until(lambda: rig.finished == 1)
    await rig.clock.sleep(0.5)
    rig.loop.kill("w1")
    first_lives = False
    rig.start("w2", rig.worker("w2"))
    return await rig.ended(execution_id), book


@simulated
async def test_p19_a_stored_result_is_adopted_and_the_effect_happens_once(rig: Rig) -> None:
    rig.act = lambda _config, _context: LARGE
    state, book = await dies_before_completion(rig, ONE)
    assert state.status == "COMPLETED"
    assert rig.finished == 1
    assert book.counts == {"skipped": 1}
    assert await rig.results.load(rig.scope, state.steps["a"].result) == LARGE


@simulated
async def test_seb_6_without_the_barrier_it_happens_twice_and_nothing_is_counted(rig: Rig) -> None:
    rig.act = lambda _config, _context: LARGE
    state, book = await dies_before_completion(rig, ONE, on=False)
    assert state.status == "COMPLETED"
    assert rig.finished == 2
    assert not book.counts


@simulated
async def test_seb_4_a_small_result_without_a_record_is_doubt_and_runs_again(rig: Rig) -> None:
    rig.act = lambda _config, _context: {"n": 1}
    state, book = await dies_before_completion(rig, ONE)
    assert state.status == "COMPLETED"
    assert rig.finished == 2
    assert rig.calls[0].idempotency_key == rig.calls[1].idempotency_key
    assert book.counts == {"executed": 1}


@simulated
async def test_seb_4_the_barrier_looks_inside_a_pipeline(rig: Rig) -> None:
    rig.act = lambda _config, _context: LARGE
    state, book = await dies_before_completion(rig, PAIR)
    assert rig.finished == 1
    assert book.counts == {"skipped": 1}
    value = await rig.results.load(rig.scope, state.steps["a"].result)
    assert value["results"] == {"first": {"n": 1}, "second": LARGE}


@simulated
async def test_seb_4_rules_that_ask_for_more_than_data_make_it_run_again(rig: Rig) -> None:
    rig.act = lambda _config, _context: LARGE
    _, book = await dies_before_completion(rig, ASKS)
    assert rig.finished == 2
    assert book.counts == {"doubt": 1}


@simulated
async def test_seb_5_a_stored_failure_is_not_adopted(rig: Rig) -> None:
    def act(_config: Any, _context: Any) -> Any:
        if rig.finished == 1:
            message = "no"
            raise ToolError(message, "server_error", False, {}, LARGE)
        return {"n": 2}

    rig.act = act
    state, book = await dies_before_completion(rig, ONE)
    assert state.status == "COMPLETED"
    assert rig.finished == 2
    assert book.counts == {"executed": 1}


@simulated
async def test_seb_4_a_store_that_does_not_say_is_doubt(rig: Rig) -> None:
    rig.act = lambda _config, _context: {"n": 1}

    async def silent(*_given: Any) -> Any:
        message = "out of reach"
        raise StoreUnavailableError(message)

    rig.results.find = silent  # type: ignore[method-assign]
    state, book = await dies_before_completion(rig, ONE)
    assert state.status == "COMPLETED"
    assert book.counts == {"doubt": 1}


@simulated
async def test_p19_a_first_dispatch_never_asks(rig: Rig) -> None:
    async def asked(*_given: Any) -> Any:
        raise AssertionError

    rig.results.find = asked  # type: ignore[method-assign]
    rig.barriers = BarrierBook()
    rig.cluster()
    state = await rig.ended(await rig.submit(ONE))
    assert state.status == "COMPLETED"
    assert not rig.barriers.counts
