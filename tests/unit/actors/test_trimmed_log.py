"""P7: roles that start over a trimmed log: nothing runs again, and the archive gives rows back."""

from __future__ import annotations

import pytest

from actors.projector import Projector
from noetl_ray.clock import SystemClock
from noetl_ray.events.envelope import encode_record
from noetl_ray.locator.keys import Placement, ResultName
from noetl_ray.payloads.content import put_payload
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.replay.archive import Archive, trimmed_key
from noetl_ray.replay.archiving import archived, write_segment
from noetl_ray.replay.reading import read_execution
from noetl_ray.results.collecting import Collector
from noetl_ray.results.store import ResultStore
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.port import Recorded
from tests.unit.actors.rig import Rig, simulated

EXECUTION = 264905531850760193
TWO = """
workflow:
  - {step: a, tool: {kind: http, url: u}, next: b}
  - {step: b, tool: {kind: http, url: u}}
"""


async def trim(log: MemoryLog) -> int:
    """Keep the last record of each subject."""
    subjects = dict.fromkeys([one.subject async for one in log.read("noetl.events.>")])
    return sum([await log.purge(subject, keep=1) for subject in subjects])


@simulated
async def test_p7_a_conductor_starts_over_a_trimmed_log(rig: Rig) -> None:
    rig.cluster()
    await rig.ended(await rig.submit(TWO))
    calls = len(rig.calls)
    assert await trim(rig.log) > 0
    again = rig.conductor("c2")
    rig.start("c2", again)
    await rig.clock.sleep(30)
    summary = again.summary()
    assert summary["replayed"] > 0
    assert (summary["open_executions"], summary["decisions"]) == (0, 0)
    assert len(rig.calls) == calls == 2, "nothing ran again"


@pytest.mark.asyncio
async def test_p7_a_projector_takes_trimmed_executions_from_the_archive() -> None:
    log, objects, placement = MemoryLog(SystemClock()), MemoryObjects(), Placement()
    writer = HistoryWriter(log)
    await writer.run(EXECUTION)
    records = [
        Recorded(
            position=r.position, subject=r.subject, time_ms=r.time_ms, data=encode_record(r.record)
        )
        for r in await read_execution(log, writer.scope, EXECUTION)
    ]
    day = "2026-01-01"
    await write_segment(objects, placement, writer.scope, day, [(archived(records), records)])
    assert await trim(log) == 2
    found = {}
    for archive in (None, Archive(objects, placement)):
        model = MemoryReadModel()
        # One record to a commit: what remains of an execution comes bit by bit.
        projector = Projector(
            log,
            model,
            None,
            SystemClock(),
            shards=[0],
            shard_count=1,
            batch_size=1,
            archive=archive,
        )
        await projector.start()
        while projector.summary()["position"] < await log.last_position():
            await projector.step()
        await projector.stop()
        assert projector.summary()["fold_errors"] == 0
        found[archive is not None] = await model.execution(writer.scope, EXECUTION)
    stub, whole = found[False], found[True]
    assert (stub.status, whole.status) == ("COMPLETED", "COMPLETED")
    assert (stub.path, whole.path) == ("demo/hello", "demo/hello")
    assert (stub.steps, list(whole.steps)) == ({}, ["start"])
    assert whole.event_count == 8
    (command,) = (await model.whole_execution(writer.scope, EXECUTION)).commands
    assert (command.status, command.worker_id) == ("COMPLETED", "w1")


@pytest.mark.asyncio
async def test_tn_20_what_only_archived_records_name_is_not_garbage() -> None:
    clock, placement = SystemClock(), Placement()
    log, objects = MemoryLog(clock), MemoryObjects(now_ms=clock.now_ms)
    writer = HistoryWriter(log)
    await writer.run(EXECUTION)
    wanted = await put_payload(objects, placement, writer.scope, b"wanted", "text/plain")
    orphan = await put_payload(objects, placement, writer.scope, b"orphan", "text/plain")
    records = [
        Recorded(
            position=r.position,
            subject=r.subject,
            time_ms=r.time_ms,
            data=encode_record(r.record).replace(b'"path":"demo/hello"', _naming(wanted.uri)),
        )
        for r in await read_execution(log, writer.scope, EXECUTION)
    ]
    # The summary is of the records as they were: only what the bytes name matters here.
    known = archived(await read_execution(log, writer.scope, EXECUTION))
    await write_segment(objects, placement, writer.scope, "2026-01-01", [(known, records)])
    archive = Archive(objects, placement)
    assert list(await archive.kept_until(writer.scope)) == [EXECUTION]
    for keeper, kept in ((archive, {wanted.sha256}), (None, set())):
        collector = Collector(
            log, objects, placement, clock, grace_ms=0, payload_ttl_ms=0, archive=keeper
        )
        report = await collector.collect(writer.scope)
        gone = {key.rpartition("/")[2] for key in report.candidates}
        assert {wanted.sha256, orphan.sha256} - gone == kept


@pytest.mark.asyncio
async def test_tn_20_a_trimmed_execution_is_alive_until_its_manifest_expires() -> None:
    clock, placement = SystemClock(), Placement()
    log, objects = MemoryLog(clock), MemoryObjects(now_ms=clock.now_ms)
    writer = HistoryWriter(log)
    await writer.run(EXECUTION)
    open_one = EXECUTION + (1 << 22)
    await writer.begin(open_one, await writer.request(open_one))
    for execution_id in (EXECUTION, open_one):
        name = ResultName(tenant="default", project="p", execution_id=execution_id, step="load")
        value = [{"n": n, "text": "x" * 50} for n in range(2_000)]
        await ResultStore(objects, placement).persist(writer.scope, name, value)
    records = await read_execution(log, writer.scope, EXECUTION)
    ready, day = [(archived(records), records)], "2026-01-01"
    now_ms = clock.now_ms()

    async def found(expires_ms: int | None) -> tuple[dict[str, int], int]:
        segment = await write_segment(
            objects, placement, writer.scope, day, ready, expires_ms=expires_ms
        )
        if trimmed:
            await objects.put(trimmed_key(segment.key), b"{}")
        archive = Archive(objects, placement)
        collector = Collector(
            log, objects, placement, clock, grace_ms=0, payload_ttl_ms=0, archive=archive
        )
        report = await collector.collect(writer.scope)
        kept = len([data async for data in archive.every_record(writer.scope, now_ms)])
        return dict(report.counts), kept

    trimmed = False
    everything = len(records)
    assert await found(now_ms - 1) == ({"live": 2}, everything), "the log still has it all"
    assert await trim(log) == 2
    trimmed = True
    assert await found(None) == ({"archived": 1, "live": 1}, everything)
    assert await found(now_ms + 3_600_000) == ({"archived": 1, "live": 1}, everything)
    assert await found(now_ms - 1) == ({"orphan": 1, "live": 1}, 0)


def _naming(uri: str) -> bytes:
    return b'"path":"' + uri.encode() + b'"'
