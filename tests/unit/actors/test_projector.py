"""The projector over the memory log and the memory read model."""

from __future__ import annotations

import pytest

from actors import projector as module
from actors.projector import Projector
from actors.role import Role
from noetl_ray.engine.fold import fold
from noetl_ray.errors import ConfigError, LogUnavailableError, StoreUnavailableError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.readmodel import projecting
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.readmodel.projecting import decode_state, encode_state, state_key
from noetl_ray.scope import Scope
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.subjects import control_subject
from noetl_ray.wal.tasklog import LogLine
from noetl_ray.wal.tasklog_memory import MemoryTaskLog

SCOPE = Scope()
DOWN = "down"


class HandClock:
    """Time that moves only when somebody waits."""

    def __init__(self):
        self.ms = 1_767_323_045_678
        self.slept = []

    def now_ms(self):
        return self.ms

    def monotonic(self):
        return self.ms / 1000

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.ms += int(seconds * 1000)


class FaultyReadModel(MemoryReadModel):
    """Refuses the next commits, before or after they are written."""

    def __init__(self):
        super().__init__()
        self.refuse = 0
        self.lose_answer = 0
        self.batches = []

    async def commit(self, batch):
        if self.refuse:
            self.refuse -= 1
            raise StoreUnavailableError(DOWN)
        result = await super().commit(batch)
        self.batches.append(batch)
        if self.lose_answer:
            self.lose_answer -= 1
            raise StoreUnavailableError(DOWN)
        return result


class Bench:
    """A log, a read model and projectors over them."""

    def __init__(self):
        self.clock = HandClock()
        self.log = MemoryLog(self.clock)
        self.model = FaultyReadModel()
        self.tasklog = MemoryTaskLog()
        self.write = HistoryWriter(self.log)

    def projector(self, *, shards=(0,), shard_count=1, **more):
        settings = {"batch_size": 500, "batch_window_ms": 1} | more
        return Projector(
            self.log,
            self.model,
            self.tasklog,
            self.clock,
            shards=shards,
            shard_count=shard_count,
            **settings,
        )

    async def project(self, projector=None, *, steps=5):
        projector = projector or self.projector()
        await projector.start()
        for _ in range(steps):
            await projector.step()
        await projector.stop()
        return projector


@pytest.fixture
def bench():
    return Bench()


def test_it_is_a_role(bench):
    role: Role = bench.projector()
    assert role.name == "projector-0"


@pytest.mark.asyncio
async def test_a_whole_execution_is_projected(bench):
    last = await bench.write.run(7)
    projector = await bench.project()
    row = await bench.model.execution(SCOPE, 7)
    assert (row.status, row.path, row.final_step) == ("COMPLETED", "demo/hello", "start")
    assert (row.last_position, row.event_count) == (last, 8)
    assert row.steps["start"]["status"] == "completed"
    (command,) = await bench.model.commands(SCOPE, 7)
    assert (command.status, command.step, command.worker_id) == ("COMPLETED", "start", "w1")
    assert len(await bench.model.events(SCOPE, 7)) == 8
    summary = projector.summary()
    assert (summary["position"], summary["events"], summary["errors"]) == (last, 8, 0)
    assert summary["states"] == 0, "an ended execution is not kept in memory"


@pytest.mark.asyncio
async def test_prj_2_the_kept_state_is_the_engines_fold(bench):
    await bench.write.run(7)
    await bench.project(bench.projector(batch_size=1), steps=10)
    state = None
    async for recorded in bench.log.read("noetl.events.>"):
        state = fold(state, recorded)
    kept = await bench.model.load_projection(state_key(("default", "default", 7)))
    assert kept.state == encode_state(state)
    assert decode_state(kept) == state
    assert kept.version == state.position


@pytest.mark.asyncio
async def test_prj_3_one_row_per_execution_per_batch(bench):
    for number in (1, 2, 3):
        await bench.write.run(number)
    await bench.project()
    batch = next(batch for batch in bench.model.batches if batch.events)
    assert len(batch.events) == 24
    assert sorted(row.execution_id for row in batch.executions) == [1, 2, 3]
    assert len(batch.projections) == len(batch.commands) == 3


@pytest.mark.asyncio
async def test_prj_12_a_late_event_never_moves_an_execution_out_of_its_end(bench):
    await bench.write.run(7)
    await bench.project()
    late = sample_event(900, event_type=EventType.STEP_ENTER, payload={"step": "late", "visit": 1})
    await bench.log.append(
        control_subject(0, SCOPE, 7), Record(events=(late,)), expected_version=None
    )
    await bench.write.claim(7, "zombie")
    projector = await bench.project()
    row = await bench.model.execution(SCOPE, 7)
    assert row.status == "COMPLETED"
    assert "late" not in row.steps
    assert (await bench.model.commands(SCOPE, 7))[0].status == "COMPLETED"
    assert len(await bench.model.events(SCOPE, 7)) == 10
    assert projector.summary()["fold_errors"] == 0


@pytest.mark.asyncio
async def test_p30_a_refused_commit_is_made_again_from_the_committed_position(bench):
    projector = bench.projector(batch_size=2)
    await projector.start()
    await bench.write.begin(7, await bench.write.request(7))
    await projector.step()
    bench.model.refuse = 3
    await bench.write.claim(7)
    last = await bench.write.finish(7, await bench.write.complete(7))
    for _ in range(10):
        await projector.step()
    backed_off = [seconds for seconds in bench.clock.slept if seconds >= module.BACKOFF_FIRST_S]
    assert backed_off == [0.1, 0.2, 0.4], "each failure waits longer"
    row = await bench.model.execution(SCOPE, 7)
    assert (row.status, row.last_position, row.event_count) == ("COMPLETED", last, 8)
    summary = projector.summary()
    assert (summary["errors"], summary["position"]) == (3, last)
    bench.model.refuse = 1
    await bench.write.run(8)
    await projector.step()
    assert bench.clock.slept[-1] == 0.1, "a success forgets earlier failures"


@pytest.mark.asyncio
async def test_prj_3_a_backlog_is_taken_as_one_and_writes_each_execution_once(bench):
    for number in range(1, 6):
        await bench.write.run(number)
    projector = bench.projector(batch_size=4)
    await projector.start()
    await projector.step()
    (batch,) = bench.model.batches
    assert len(batch.executions) == 5
    assert projector.summary()["records"] == 25


@pytest.mark.asyncio
async def test_wal_2_a_kill_between_write_and_answer_gives_no_duplicate(bench):
    bench.model.lose_answer = 1
    await bench.write.run(7)
    projector = await bench.project()
    assert projector.summary()["errors"] == 1
    assert len(await bench.model.events(SCOPE, 7)) == 8
    row = await bench.model.execution(SCOPE, 7)
    assert (row.status, row.event_count) == ("COMPLETED", 8)
    fresh = await bench.project()
    assert fresh.summary()["events"] == 0
    assert (await bench.model.execution(SCOPE, 7)).event_count == 8


@pytest.mark.asyncio
async def test_two_projectors_of_one_shard_do_not_double(bench):
    first, second = bench.projector(), bench.projector()
    await first.start()
    await second.start()
    await bench.write.run(7)
    await first.step()
    await second.step()
    assert second.summary()["errors"] == 1, "its position was taken by the other"
    await bench.write.run(8)
    for _ in range(3):
        await second.step()
        await first.step()
    assert [row.event_count for row in await bench.model.executions(SCOPE)] == [8, 8]


@pytest.mark.asyncio
async def test_prj_8_shards_move_without_gap_or_repeat(bench):
    shards = [HistoryWriter(bench.log, shard=shard) for shard in (0, 1)]
    shards[1]._ids = shards[0]._ids
    await shards[0].run(10)
    await shards[1].run(11)
    await bench.project(bench.projector(shards=[0], shard_count=2, consumer="a"))
    assert await bench.model.execution(SCOPE, 11) is None
    await shards[0].run(20)
    taker = await bench.project(bench.projector(shards=[0, 1], shard_count=2, consumer="b"))
    assert [row.execution_id for row in await bench.model.executions(SCOPE)] == [20, 11, 10]
    assert taker.summary()["events"] == 16, "what the other had projected is not done again"
    assert taker.summary()["stale"] == 0


@pytest.mark.asyncio
async def test_system_events_fill_catalog_and_workers(bench):
    await bench.write.register("a/b", 1)
    await bench.write.register("a/b", 2)
    await bench.write.worker("w1", EventType.WORKER_JOINED, slots=4, zone="z1")
    await bench.write.worker("w1", EventType.WORKER_LOST, reason="killed")
    await bench.project()
    assert [row.version for row in await bench.model.playbooks(SCOPE, path="a/b")] == [2, 1]
    (worker,) = await bench.model.workers()
    assert (worker.status, worker.slots, worker.place) == ("lost", 4, {"zone": "z1"})
    assert await bench.model.executions(SCOPE) == []


@pytest.mark.asyncio
async def test_a_record_that_cannot_be_folded_stops_nobody_else(bench):
    await bench.write.begin(7, 999)  # consumes a fact that never was
    await bench.write.run(8)
    projector = await bench.project()
    assert projector.summary()["fold_errors"] == 1
    assert "execution 7" in projector.summary()["last_error"]
    assert (await bench.model.execution(SCOPE, 8)).status == "COMPLETED"
    assert len(await bench.model.events(SCOPE, 7)) == 3


@pytest.mark.asyncio
async def test_one_record_may_speak_of_two_executions(bench):
    first = await bench.write.request(1)
    second = await bench.write.request(2)
    events = tuple(
        sample_event(
            900 + number,
            execution_id=number,
            event_type=EventType.EXECUTION_CANCELLED,
            aggregate_type=AggregateType.EXECUTION,
            payload={},
        )
        for number in (1, 2)
    )
    await bench.log.append(
        control_subject(0, SCOPE, 1), Record(events=events), expected_version=None
    )
    await bench.project()
    assert (first, second) == (1, 2)
    assert {row.status for row in await bench.model.executions(SCOPE)} == {"CANCELLED"}


@pytest.mark.asyncio
async def test_states_are_bounded_and_reloaded(bench, monkeypatch):
    monkeypatch.setattr(module, "STATES_MAX", 2)
    projector = bench.projector(batch_size=1)
    await projector.start()
    requests = {number: await bench.write.request(number) for number in range(1, 6)}
    for number, position in requests.items():
        await bench.write.begin(number, position)
    for _ in range(10):
        await projector.step()
    assert projector.summary()["states"] == 2
    await bench.write.finish(1, await bench.write.complete(1))
    await projector.step()
    await projector.step()
    assert (await bench.model.execution(SCOPE, 1)).status == "COMPLETED"
    assert projector.summary()["fold_errors"] == 0


@pytest.mark.asyncio
async def test_transactions_are_bounded(bench, monkeypatch):
    monkeypatch.setattr(projecting, "EVENTS_PER_COMMIT_MAX", 3)
    await bench.write.run(7)
    await bench.project(steps=1)
    sizes = [len(batch.events) for batch in bench.model.batches]
    assert sum(sizes) == 8
    assert max(sizes) <= 3


@pytest.mark.asyncio
async def test_printed_lines_are_projected_once(bench):
    def printed(text):
        return LogLine(
            tenant_id="default", organization_id="default", execution_id=7, step="start",
            task="main", attempt=1, stream="stdout", time_ms=1, text=text,
        )  # fmt: skip

    await bench.tasklog.write(0, [printed("one"), printed("two")])
    await bench.project(steps=2)
    bench.model.lose_answer = 1
    await bench.tasklog.write(0, [printed("three")])
    projector = await bench.project(steps=1)
    assert projector.summary()["tasklog_errors"] == 1
    bench.clock.ms += 10_000
    await bench.project(steps=2)
    rows = await bench.model.logs(SCOPE, 7)
    assert [row.line.text for row in rows] == ["one", "two", "three"]
    assert await bench.model.logs(SCOPE, 7, after=rows[1].log_id) == rows[2:]


@pytest.mark.asyncio
async def test_only_the_owner_of_shard_0_takes_printed_lines(bench):
    projector = bench.projector(shards=[1], shard_count=2)
    assert projector._tasklog is None


@pytest.mark.asyncio
async def test_a_log_that_is_down_is_tried_again(bench):
    class DownAtFirst(MemoryLog):
        left = 2

        async def subscribe(self, filters, *, from_position=1):
            if self.left:
                self.left -= 1
                raise LogUnavailableError(DOWN)
            return await super().subscribe(filters, from_position=from_position)

    bench.log = DownAtFirst(bench.clock)
    bench.write = HistoryWriter(bench.log)
    await bench.write.run(7)
    projector = await bench.project()
    assert projector.summary()["errors"] == 2
    assert (await bench.model.execution(SCOPE, 7)).status == "COMPLETED"


@pytest.mark.asyncio
async def test_a_read_model_of_another_log_is_not_continued(bench):
    await bench.write.run(7)
    await bench.project()
    bench.log = MemoryLog(bench.clock)
    bench.write = HistoryWriter(bench.log)
    await bench.write.request(8)
    projector = await bench.project(steps=2)
    assert "made from another log" in projector.summary()["last_error"]
    assert await bench.model.execution(SCOPE, 8) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"shards": [1], "shard_count": 1},
        {"shards": [-1], "shard_count": 4},
        {"shards": [], "shard_count": 4},
        {"shards": [1, 1], "shard_count": 4},
        {"shards": [0], "shard_count": 0},
        {"batch_size": 0},
        {"batch_window_ms": -1},
        {"consumer": ""},
    ],
    ids=str,
)
def test_prj_9_bad_settings_stop_the_start(bench, bad):
    with pytest.raises(ConfigError):
        bench.projector(**bad)
