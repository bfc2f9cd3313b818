"""The part of the read model's proof that is about stages and frames.

Each check takes a fresh, empty store and the queries over it, as in ``contract_readmodel``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.errors import UsageError
from noetl_ray.readmodel.frames import fold_frames
from noetl_ray.readmodel.records import FrameRow, ProjectionBatch, StageRow
from noetl_ray.testing.readmodel_samples import HOME, OTHER_ORGANIZATION, mark
from noetl_ray.testing.samples import SAMPLE_TIME

if TYPE_CHECKING:
    from noetl_ray.readmodel.port import ProjectionStore, Queries
    from noetl_ray.scope import Scope


def frame(position: int, status: str, scope: Scope = HOME, **more: Any) -> FrameRow:
    """A change of frame ``7-s-1.s0.f0`` at a place of the log."""
    fields: dict[str, Any] = {
        "execution_id": 7,
        "frame_id": "7-s-1.s0.f0",
        "stage_id": "7-s-1",
        "events_emitted": 1,
    }
    return FrameRow(
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        position=position,
        status=status,
        **(fields | more),
    )


def stage(position: int, status: str, scope: Scope = HOME, **more: Any) -> StageRow:
    """A change of stage ``7-s-1`` at a place of the log."""
    fields: dict[str, Any] = {"execution_id": 7, "stage_id": "7-s-1"}
    return StageRow(
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        position=position,
        status=status,
        **(fields | more),
    )


async def a_frame_keeps_what_its_life_told(store: ProjectionStore, queries: Queries) -> None:
    """Changes add up the same in one commit and in several; an end stays (FRM-10)."""
    life = (
        frame(2, "CLAIMED", owner_worker="a", created_at=SAMPLE_TIME, parent_frame_id="p"),
        frame(3, "RUNNING", row_count=50, output_ref={"uri": "noetl://rows"}),
        frame(4, "ABANDONED"),
        frame(5, "CLAIMED", owner_worker="b", attempts=2, claimed_event_id=5),
        frame(6, "COMMITTED", terminal_event_id=6, cursor={"metrics": {}}, attempts=2),
        frame(7, "RUNNING", lease_until=SAMPLE_TIME),
    )
    for position, change in enumerate(life, 2):
        batch = ProjectionBatch(checkpoints=(mark(position, position - 1 if position > 2 else 0),))
        await store.commit(ProjectionBatch(checkpoints=batch.checkpoints, frames=(change,)))
    (found,) = await queries.frames(HOME, 7)
    assert found == fold_frames(life)[0]
    assert (found.status, found.terminal_event_id, found.owner_worker) == ("COMMITTED", 6, "b")
    assert (found.attempts, found.events_emitted, found.row_count) == (2, 6, 50)
    assert (found.parent_frame_id, found.created_at) == ("p", SAMPLE_TIME)


async def a_stage_is_opened_and_closed(store: ProjectionStore, queries: Queries) -> None:
    """What opening told is still there after closing (FRM-15)."""
    opened = stage(2, "OPEN", opened_event_id=2, kind="loop", frame_policy={"max_rows": 5})
    closed = stage(9, "COMPLETED", closed_event_id=9, stats={"total": 5}, ended_at=SAMPLE_TIME)
    await store.commit(ProjectionBatch(checkpoints=(mark(2),), stages=(opened,)))
    await store.commit(ProjectionBatch(checkpoints=(mark(9, 2),), stages=(closed,)))
    (found,) = await queries.stages(HOME, 7)
    assert (found.status, found.opened_event_id, found.closed_event_id) == ("COMPLETED", 2, 9)
    assert (found.kind, found.frame_policy, found.stats) == ("loop", {"max_rows": 5}, {"total": 5})


async def frames_are_found_by_stage_and_status(store: ProjectionStore, queries: Queries) -> None:
    """Last changed first; another scope's do not exist; limits are refused (TEN-3)."""
    rows = (
        frame(2, "COMMITTED", frame_id="a"),
        frame(3, "RUNNING", frame_id="b"),
        frame(4, "RUNNING", frame_id="c", stage_id="other"),
        frame(5, "RUNNING", frame_id="d", execution_id=8),
        frame(6, "RUNNING", frame_id="a", scope=OTHER_ORGANIZATION),
    )
    await store.commit(ProjectionBatch(checkpoints=(mark(6),), frames=rows))
    assert await queries.frames(HOME, 7) == [rows[2], rows[1], rows[0]]
    assert await queries.frames(HOME, 7, stage_id="7-s-1", status="RUNNING") == [rows[1]]
    assert await queries.frames(HOME, 7, limit=1) == [rows[2]]
    assert await queries.frames(OTHER_ORGANIZATION, 7) == [rows[4]]
    try:
        await queries.frames(HOME, 7, limit=0)
    except UsageError:
        return
    msg = "limit 0 was accepted"
    raise AssertionError(msg)
