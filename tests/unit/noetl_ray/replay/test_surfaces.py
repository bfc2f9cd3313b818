"""The six checksums: live and replayed rows agree, and a change shows in its own surface only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.projector import Projector
from noetl_ray.clock import SystemClock
from noetl_ray.errors import NotFoundError
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.readmodel.records import ExecutionRows
from noetl_ray.replay import decode_history
from noetl_ray.replay.reading import position_at_time, position_of_event, read_execution
from noetl_ray.replay.surfaces import (
    SURFACES,
    bundle_of,
    checksum_of_bundle,
    differing,
    first_difference,
    rows_of_records,
    surfaces_of,
)
from noetl_ray.scope import Scope
from noetl_ray.testing.contract_frames import frame, stage
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.port import Recorded

GOLDEN = Path(__file__).resolve().parents[3] / "golden"
NAMES = sorted(path.parent.name for path in GOLDEN.glob("*/events.jsonl"))


def history(name: str) -> list[Recorded]:
    return decode_history((GOLDEN / name / "events.jsonl").read_bytes())


def execution_of(records: list[Recorded]) -> int:
    return max(r.record.events[0].execution_id for r in records)


def rows(name: str = "objects_and_outside", **more: Any) -> ExecutionRows:
    records = [r for r in history(name) if r.record.events[0].execution_id]
    found = rows_of_records(records, **more)
    assert found is not None
    return found


async def refill(records: list[Recorded]) -> MemoryLog:
    log = MemoryLog(SystemClock())
    for recorded in records:
        position = await log.append(recorded.subject, recorded.record, expected_version=None)
        assert position == recorded.position
    return log


@pytest.mark.asyncio
@pytest.mark.parametrize("name", NAMES)
async def test_val_1_the_projected_rows_of_a_history_have_its_six_checksums(name: str) -> None:
    records = history(name)
    log, model = await refill(records), MemoryReadModel()
    projector = Projector(
        log, model, None, SystemClock(), shards=range(16), shard_count=16,
        batch_size=1, batch_window_ms=1,
    )  # fmt: skip
    await projector.start()
    while projector.summary()["position"] < len(records):
        await projector.step()
    scope, number = Scope(), execution_of(records)
    live = await model.whole_execution(scope, number)
    again = rows_of_records(await read_execution(log, scope, number))
    assert live is not None
    assert again is not None
    assert first_difference(surfaces_of(again), surfaces_of(live)) is None
    bundle = bundle_of(surfaces_of(again))
    assert bundle == bundle_of(surfaces_of(live))
    assert tuple(bundle) == SURFACES
    assert all(len(each) == 64 and each == each.lower() for each in bundle.values())


@pytest.mark.parametrize("name", ["keyed_submit"])
@pytest.mark.asyncio
async def test_a_request_under_its_key_is_found_through_the_decision(name: str) -> None:
    records = history(name)
    log = await refill(records)
    found = await read_execution(log, Scope(), execution_of(records))
    assert [r.position for r in found] == [
        r.position for r in records if r.record.events[0].execution_id
    ]
    with pytest.raises(NotFoundError, match="no execution 5"):
        await read_execution(log, Scope(), 5)
    with pytest.raises(NotFoundError):
        await read_execution(log, Scope(tenant_id="other"), execution_of(records))


def changed(rows: ExecutionRows, surface: str) -> ExecutionRows:
    replace = msgspec.structs.replace
    match surface:
        case "execution":
            return replace(rows, execution=replace(rows.execution, event_count=99))
        case "stages":
            return replace(rows, stages=(stage(1, "CLOSED"),))
        case "frames":
            return replace(rows, frames=(frame(1, "COMMITTED"),))
        case "commands":
            first, *rest = rows.commands
            return replace(rows, commands=(replace(first, worker_id="other"), *rest))
        case "business_objects":
            first_object, *others = rows.objects
            return replace(rows, objects=(replace(first_object, status="lost"), *others))
        case _:
            steps = {**rows.execution.steps}
            name = next(iter(steps))
            steps[name] = {**steps[name], "loop": {"total": 3, "done": 2, "failed": 0}}
            return replace(rows, execution=replace(rows.execution, steps=steps))


@pytest.mark.parametrize("surface", SURFACES)
def test_val_1_each_surface_is_compared_by_itself(surface: str) -> None:
    before, after = surfaces_of(rows()), surfaces_of(changed(rows(), surface))
    assert differing(bundle_of(before), bundle_of(after)) == [surface]
    found = first_difference(before, after)
    assert found is not None
    assert found["surface"] == surface
    assert found["path"]
    assert found["replay"] != found["live"]
    assert checksum_of_bundle(bundle_of(before)) != checksum_of_bundle(bundle_of(after))


def test_val_2_the_order_of_rows_and_when_they_were_written_do_not_count() -> None:
    one = rows()
    two = msgspec.structs.replace(
        one,
        commands=tuple(reversed(one.commands)),
        objects=tuple(reversed(one.objects)),
        execution=msgspec.structs.replace(
            one.execution, updated_at="2020-01-01T00:00:00.000Z", checksum="other"
        ),
    )
    assert bundle_of(surfaces_of(one)) == bundle_of(surfaces_of(two))


def test_upc_2_other_upcasters_are_another_execution_surface() -> None:
    other = msgspec.structs.replace(rows(), registry_digest="0" * 64)
    assert differing(bundle_of(surfaces_of(rows())), bundle_of(surfaces_of(other))) == ["execution"]


def test_rpl_7_a_prefix_is_what_was_there_and_moments_become_positions() -> None:
    records = [r for r in history("chain") if r.record.events[0].execution_id]
    middle = records[len(records) // 2]
    early = rows("chain", as_of=middle.position)
    assert early.position == middle.position
    assert early.execution.status == "RUNNING"
    assert rows_of_records(records, as_of=records[0].position - 1) is None
    assert position_of_event(records, middle.record.events[-1].event_id) == middle.position
    assert position_at_time(records, records[0].time_ms - 1) == 0
    assert position_at_time(records, records[-1].time_ms) == records[-1].position
    with pytest.raises(NotFoundError, match="no event 1"):
        position_of_event(records, 1)


def test_a_nul_that_a_database_cannot_hold_is_no_difference() -> None:
    one = rows()
    error = {"message": "a\0b"}
    kept = {"message": "a\ufffdb"}
    replace = msgspec.structs.replace
    ours = replace(one, execution=replace(one.execution, error=error))
    theirs = replace(one, execution=replace(one.execution, error=kept))
    assert bundle_of(surfaces_of(ours)) == bundle_of(surfaces_of(theirs))
