"""A replay from a snapshot gives what a whole fold gives; one that does not fit is passed over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.snapshots import Snapshotter
from noetl_ray.clock import SystemClock
from noetl_ray.errors import StoreUnavailableError
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.readmodel.records import ProjectionSnapshot
from noetl_ray.replay import snapshots
from noetl_ray.replay.history import replay
from noetl_ray.replay.reading import read_execution
from noetl_ray.replay.snapshots import newest_start, read_from, take_snapshot
from noetl_ray.replay.surfaces import bundle_of, rows_of_records, surfaces_of
from noetl_ray.scope import Scope
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.port import Recorded
from tests.golden.test_golden import NAMES, history

pytestmark = pytest.mark.asyncio
AT = "2026-01-01T00:00:00.000Z"
SCOPE = Scope()


async def logged(records: list[Recorded]) -> tuple[MemoryLog, int]:
    """A log that holds a recorded history at its own positions."""
    log = MemoryLog(SystemClock())
    log._records = [None] * records[-1].position
    for recorded in records:
        log._records[recorded.position - 1] = recorded
        log._subjects.setdefault(recorded.subject, []).append(recorded.position)
    execution_id = next(e.execution_id for r in records for e in r.record.events if e.execution_id)
    return log, execution_id


@pytest.mark.parametrize("name", NAMES)
async def test_snp_2_with_and_without_a_snapshot_the_checksums_are_equal(name: str) -> None:
    records = list(history(name))
    log, execution_id = await logged(records)
    own = await read_execution(log, SCOPE, execution_id)
    whole = bundle_of(surfaces_of(rows_of_records(own)))  # type: ignore[arg-type]
    for cut in own[1:]:
        model = MemoryReadModel()
        short, _ = await logged([r for r in records if r.position <= cut.position])
        position = await take_snapshot(short, model, SCOPE, execution_id, taken_at=AT)
        assert position == cut.position
        start = await newest_start(model, SCOPE, execution_id)
        assert start.rows is not None
        rest = await read_from(log, SCOPE, execution_id, start)
        assert all(r.position > cut.position for r in rest)
        rows = rows_of_records(rest, start=start.rows)
        assert rows is not None
        assert bundle_of(surfaces_of(rows)) == whole
        assert rows.position == own[-1].position


async def held(name: str = "chain") -> tuple[MemoryLog, MemoryReadModel, int, list[Recorded]]:
    records = list(history(name))
    log, execution_id = await logged(records)
    model = MemoryReadModel()
    await take_snapshot(log, model, SCOPE, execution_id, taken_at=AT)
    return log, model, execution_id, await read_execution(log, SCOPE, execution_id)


def altered(model: MemoryReadModel, **meta: Any) -> None:
    """The one snapshot of a model, with something else in its lineage."""
    ((key, (version, found)),) = ((k, *v.items()) for k, v in model._snapshots.items())
    record = msgspec.structs.replace(found.record, meta=found.record.meta | meta)
    model._snapshots[key][version] = ProjectionSnapshot(record=record)


async def test_snp_1_a_snapshot_says_what_it_rests_on() -> None:
    _, model, execution_id, own = await held()
    start = await newest_start(model, SCOPE, execution_id)
    assert start.told is not None
    assert start.told["aggregate_type"] == "replay_state"
    assert start.told["aggregate_id"] == f"execution/{execution_id}/all"
    assert start.told["position"] == own[-1].position
    assert start.told["used"] is True
    for name in ("checksum", "fold_checksum", "code_version", "upcaster_registry_digest"):
        assert len(start.told[name]) == 64
    assert start.told["event_count"] == replay(own)[execution_id].event_count


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"upcaster_registry_digest": "0" * 64}, "upcaster registry"),
        ({"code_version": "0" * 64}, "another version"),
    ],
)
async def test_snp_2_under_another_digest_the_whole_log_is_folded(
    meta: dict[str, str], why: str
) -> None:
    log, model, execution_id, own = await held()
    altered(model, **meta)
    start = await newest_start(model, SCOPE, execution_id)
    assert start.rows is None
    assert start.told is not None
    assert why in start.told["ignored"]
    assert len(await read_from(log, SCOPE, execution_id, start)) == len(own)


async def test_snp_2_a_snapshot_past_the_cutoff_is_not_used() -> None:
    _, model, execution_id, own = await held()
    start = await newest_start(model, SCOPE, execution_id, as_of=own[-1].position - 1)
    assert (start.rows, start.told) == (None, None)


async def test_a_damaged_snapshot_is_not_used() -> None:
    _, model, execution_id, _ = await held()
    ((key, kept),) = model._snapshots.items()
    ((version, found),) = kept.items()
    record = msgspec.structs.replace(found.record, state=found.record.state + b" ")
    model._snapshots[key][version] = ProjectionSnapshot(record=record)
    start = await newest_start(model, SCOPE, execution_id)
    assert start.rows is None
    assert "checksum" in (start.told or {})["ignored"]


async def test_ten_3_a_snapshot_is_of_one_scope() -> None:
    _, model, execution_id, _ = await held()
    other = Scope(tenant_id="another", organization_id="default")
    assert (await newest_start(model, other, execution_id)).told is None


async def test_a_read_model_that_is_away_means_a_whole_fold() -> None:
    class Away(MemoryReadModel):
        async def load_snapshot(self, *_: Any, **__: Any) -> Any:
            msg = "away"
            raise StoreUnavailableError(msg)

    assert (await newest_start(Away(), SCOPE, 1)).rows is None
    assert (await newest_start(None, SCOPE, 1)).rows is None


async def test_snp_1_one_is_taken_each_time_an_execution_has_grown_by_the_interval() -> None:
    records = list(history("chain"))
    log, execution_id = await logged(records)
    state = replay(await read_execution(log, SCOPE, execution_id))[execution_id]
    key = (SCOPE.tenant_id, SCOPE.organization_id, execution_id)
    model = MemoryReadModel()
    taker = Snapshotter(log, model, SystemClock(), every=5)
    before = None
    for count in (3, 4, 5, 9, 10, 11, 30):
        after = msgspec.structs.replace(state, event_count=count)
        taker.note({key: before}, {key: after})
        await taker.settle()
        before = after
    assert (taker.taken, taker.failed) == (3, 0)
    assert (await newest_start(model, SCOPE, execution_id)).rows is not None
    assert snapshots.REPLAY_STATE in {k.projection_type for k in model._snapshots}
