"""How much one commit of the projector takes: never waiting alone, gathering in busy times."""

from __future__ import annotations

from functools import partial

import pytest

from tests.unit.actors.test_projector import SCOPE, Bench, FaultyReadModel, HandClock


@pytest.fixture
def bench():
    return Bench()


class SlowReadModel(FaultyReadModel):
    """Each commit takes its time."""

    def __init__(self, clock, seconds):
        super().__init__()
        self._clock = clock
        self._seconds = seconds

    async def commit(self, batch):
        self._clock.ms += int(self._seconds * 1000)
        return await super().commit(batch)


@pytest.mark.asyncio
async def test_prj_3_a_lone_record_is_not_kept_waiting_for_company(bench):
    projector = bench.projector(batch_window_ms=100)
    await projector.start()
    await bench.write.run(7)
    await projector.step()
    assert bench.clock.slept == []
    assert (await bench.model.execution(SCOPE, 7)).status == "COMPLETED"


class Arrivals(HandClock):
    """Another execution happens each time somebody waits, so many times."""

    def __init__(self):
        super().__init__()
        self.coming = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.ms += max(1, round(seconds * 1000))
        if self.coming:
            await self.coming.pop(0)()


@pytest.mark.asyncio
@pytest.mark.parametrize(("coming", "gathered"), [(0, 1), (1, 2), (50, 3)])
async def test_prj_3_after_a_busy_turn_records_gather_for_a_while_if_more_come(
    bench, coming, gathered
):
    bench.clock = Arrivals()
    projector = bench.projector(batch_window_ms=100)
    await projector.start()
    await bench.write.run(1)
    await projector.step()
    bench.clock.coming = [partial(bench.write.request, 100 + n) for n in range(coming)]
    await bench.write.run(2)
    await projector.step()
    assert len(bench.model.batches[-1].executions) == gathered
    assert len(bench.clock.slept) == min(coming + 1, 2)


@pytest.mark.asyncio
async def test_prj_3_what_has_ended_is_written_at_once_when_nothing_else_is_under_way(bench):
    bench.clock = Arrivals()
    bench.model = SlowReadModel(bench.clock, 0.04)
    projector = bench.projector(batch_window_ms=100)
    await projector.start()
    await bench.write.run(1)
    await projector.step()
    bench.clock.coming = [partial(bench.write.run, 100 + n) for n in range(50)]
    await bench.write.run(2)
    await projector.step()
    assert len(bench.model.batches[-1].executions) == 5, "a quarter of the 160 ms it may gather"


@pytest.mark.asyncio
@pytest.mark.parametrize(("commit_s", "gathered"), [(0.0, 3), (0.04, 17), (10.0, 26)])
async def test_prj_3_a_slow_commit_lets_the_next_turn_gather_longer_up_to_a_bound(
    bench, commit_s, gathered
):
    bench.clock = Arrivals()
    bench.model = SlowReadModel(bench.clock, commit_s)
    projector = bench.projector(batch_window_ms=100)
    await projector.start()
    await bench.write.run(1)
    await projector.step()
    bench.clock.coming = [partial(bench.write.request, 100 + n) for n in range(50)]
    await bench.write.run(2)
    await projector.step()
    assert len(bench.model.batches[-1].executions) == gathered


@pytest.mark.asyncio
async def test_prj_2_what_is_gathered_is_folded_on_top_of_what_was_gathered_before(bench):
    bench.clock = Arrivals()
    projector = bench.projector(batch_window_ms=100)
    await projector.start()
    await bench.write.run(1)
    await projector.step()
    position = await bench.write.request(7)
    await bench.write.begin(7, position)
    bench.clock.coming = [partial(bench.write.claim, 7)]
    await projector.step()
    last = await bench.write.finish(7, await bench.write.complete(7))
    await projector.step()
    row = await bench.model.execution(SCOPE, 7)
    assert (row.status, row.last_position, row.event_count) == ("COMPLETED", last, 8)
    assert [len(batch.executions) for batch in bench.model.batches] == [1, 1, 1]


@pytest.mark.asyncio
async def test_prj_3_a_projector_that_is_behind_does_not_rest(bench):
    bench.model = SlowReadModel(bench.clock, 0.02)
    await bench.write.run(7)
    await bench.write.run(8)
    projector = bench.projector(batch_window_ms=100, batch_size=2)
    await projector.start()
    await projector.step()
    assert bench.clock.slept == []
