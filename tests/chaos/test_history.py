"""The checker of histories finds errors that are planted in a sound one."""

from __future__ import annotations

import pytest

from noetl_ray.submit import Submission, submit_execution
from noetl_ray.testing.simloop import SimLoop, run_simulated
from noetl_ray.wal.port import Recorded
from tests.simulation.invariants import records
from tests.simulation.world import World
from tests.support.history import Work, judge

BOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: two}
workflow:
  - step: a
    tool: {kind: http, url: effect, value: {n: 1}}
    next: b
  - step: b
    tool: {kind: http, url: effect, value: {n: 1}}
"""


@pytest.fixture(scope="module")
def history() -> tuple[Work, list[str], list[Recorded]]:
    """What a calm run leaves behind."""

    async def main(loop: SimLoop) -> tuple[int, list[Recorded]]:
        world = World(loop)
        world.start_all()
        await world.clock.sleep(0.5)
        asked = Submission(source=BOOK)
        done = await submit_execution(world.submit_ports, world.scope, "default", asked)
        assert await world.settle([done.execution_id], within_s=60)
        of_it = [r for r in records(world.log) if r.record.events[0].execution_id]
        return done.execution_id, of_it

    execution_id, found = run_simulated(1, main)
    keys = [f"{execution_id}-{step}-1/{step}_task/1" for step in "ab"]
    work = Work(execution_id=execution_id, stages=tuple(frozenset({key}) for key in keys))
    return work, keys, found


def test_a_sound_history_is_sound(history):
    work, keys, found = history
    assert judge([work], keys, found).sound


def test_a_lost_execution_and_a_lost_effect_are_found(history):
    work, keys, found = history
    verdict = judge([work], keys[:1], found[:-1])
    assert len(verdict.lost) == 2
    assert not verdict.sound


def test_a_doubled_effect_and_one_nobody_asked_for_are_found(history):
    work, keys, found = history
    assert len(judge([work], [keys[0], *keys], found).doubled) == 1
    assert len(judge([work], [*keys, "other-x-1/t/1"], found).doubled) == 1


def test_an_effect_after_one_that_follows_it_is_found(history):
    work, keys, found = history
    assert len(judge([work], keys[::-1], found).reordered) == 1
    late = judge([work], [*keys, keys[0]], found)
    assert len(late.reordered) == len(late.doubled) == 1


def test_a_record_that_stands_twice_is_found(history):
    work, keys, found = history
    assert judge([work], keys, [*found, found[-1]]).broken
