"""The proof every read model must pass: both ports over one set of rows.

Each check takes a fresh, empty store and the queries over it; ``READ_MODEL_CHECKS`` lists them all,
so that an adapter of one's own can be put through the same. Needs nothing but the ports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from noetl_ray.errors import ConflictError, UsageError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.readmodel.port import LIMIT_MAX, ProjectionStore, Queries
from noetl_ray.readmodel.records import (
    EXECUTION_STATE,
    CommandRow,
    PlaybookRow,
    ProjectionBatch,
    ProjectionKey,
    ProjectionRecord,
    ProjectionSnapshot,
)
from noetl_ray.testing.contract_business_objects import (
    children_are_found_by_their_parent,
    objects_are_found_by_type_id_and_status,
    ten_3_objects_stay_in_their_scope,
    the_newest_statement_is_the_object,
)
from noetl_ray.testing.contract_frames import (
    a_frame_keeps_what_its_life_told,
    a_stage_is_opened_and_closed,
    frames_are_found_by_stage_and_status,
)
from noetl_ray.testing.contract_queries import (
    commands_merge_over_batches,
    events_come_back_as_written,
    events_page_by_whole_records,
    executions_upsert_and_list,
    log_lines_page,
    odd_text_does_not_stop_the_commit,
    playbooks_newest_first,
    shards_have_owners_and_checkpoints,
    workers_come_and_go,
)
from noetl_ray.testing.readmodel_samples import (
    HOME,
    LATER,
    OTHER_ORGANIZATION,
    OTHER_TENANT,
    execution,
    line,
    mark,
    projection,
    rows_of,
)
from noetl_ray.testing.samples import SAMPLE_TIME, sample_event

Check = Callable[[ProjectionStore, Queries], Awaitable[None]]


async def projections_come_back_as_saved(store: ProjectionStore, queries: Queries) -> None:
    """State bytes, lineage and meta survive; an unknown name gives None."""
    record = projection(5, text="ä\u0000b", number=1.0, big=2**62, nested={"z": 1, "a": [None]})
    assert await store.load_projection(record.key) is None
    assert await store.save_projection(record)
    assert await store.load_projection(record.key) == record


async def prs_2_older_versions_never_overwrite(store: ProjectionStore, queries: Queries) -> None:
    """Out of order ends where in order would; what came late is told."""
    assert await store.save_projection(projection(7))
    assert not await store.save_projection(projection(5))
    assert not await store.save_projection(projection(7, other="same version"))
    assert await store.load_projection(projection(7).key) == projection(7)
    result = await store.commit(
        ProjectionBatch(checkpoints=(mark(6),), projections=(projection(6),))
    )
    assert result.stale == 1
    assert await store.load_projection(projection(7).key) == projection(7)


async def prs_3_parts_of_an_execution_are_apart(store: ProjectionStore, queries: Queries) -> None:
    """Stage, frame and partition belong to the name."""
    whole = projection(5)
    part_key = ProjectionKey(
        tenant_id="default",
        organization_id="default",
        projection_type=EXECUTION_STATE,
        execution_id=7,
        stage_id="s1",
        frame_id="f1",
        partition_id="p1",
    )
    part = ProjectionRecord(
        key=part_key, version=4, state=b"{}", checksum=sha256_hex(b"{}"), source_event_id=1
    )
    assert await store.save_projection(whole)
    assert await store.save_projection(part)
    assert await store.load_projection(part_key) == part
    assert await store.load_projection(whole.key) == whole


async def snapshots_live_side_by_side(store: ProjectionStore, queries: Queries) -> None:
    """The newest at or before a position; one per version."""
    key = projection(1).key
    assert await store.load_snapshot(key) is None
    for version in (10, 30, 20):
        assert await store.save_snapshot(ProjectionSnapshot(record=projection(version)))
    assert not await store.save_snapshot(ProjectionSnapshot(record=projection(20)))
    newest = await store.load_snapshot(key)
    assert newest == ProjectionSnapshot(record=projection(30))
    older = await store.load_snapshot(key, at_or_before=29)
    assert older == ProjectionSnapshot(record=projection(20))
    assert await store.load_snapshot(key, at_or_before=9) is None


async def query_pages_within_a_scope(store: ProjectionStore, queries: Queries) -> None:
    """By ascending execution, only the scope's own, only those asked for."""
    for number in (3, 1, 2):
        await store.save_projection(projection(5, execution_id=number))
    await store.save_projection(projection(5, execution_id=2, scope=OTHER_TENANT))
    first = await store.query(HOME, projection_type=EXECUTION_STATE, limit=2)
    assert [record.key.execution_id for record in first] == [1, 2]
    rest = await store.query(HOME, projection_type=EXECUTION_STATE, after=2, limit=2)
    assert [record.key.execution_id for record in rest] == [3]
    some = await store.query(HOME, projection_type=EXECUTION_STATE, execution_ids=[3, 9])
    assert [record.key.execution_id for record in some] == [3]
    assert await store.query(HOME, projection_type="nothing") == []
    assert await store.query(HOME, projection_type=EXECUTION_STATE, execution_ids=[]) == []


async def prj_12_an_execution_never_leaves_its_end(
    store: ProjectionStore, queries: Queries
) -> None:
    """Neither an older row nor a newer one moves a status that is final."""
    done = execution(5, "COMPLETED", ended_at=LATER)
    await store.commit(ProjectionBatch(checkpoints=(mark(5),), executions=(done,)))
    late = await store.commit(
        ProjectionBatch(checkpoints=(mark(6, 5),), executions=(execution(4),))
    )
    assert late.stale == 1
    assert await queries.execution(HOME, 7) == done
    await store.commit(ProjectionBatch(checkpoints=(mark(7, 6),), executions=(execution(7),)))
    found = await queries.execution(HOME, 7)
    assert found is not None
    assert (found.status, found.ended_at, found.last_position) == ("COMPLETED", LATER, 7)


async def commit_is_fenced_by_the_checkpoint(store: ProjectionStore, queries: Queries) -> None:
    """A batch made from another position changes nothing at all (P30)."""
    assert await store.position("check") == 0
    await store.commit(ProjectionBatch(checkpoints=(mark(5), mark(5, consumer="second"))))
    assert await store.position("check") == 5
    late = ProjectionBatch(
        checkpoints=(mark(9, 5, "second"), mark(9, 4)),
        events=rows_of(9, sample_event(90)),
        executions=(execution(9),),
        projections=(projection(9),),
    )
    try:
        await store.commit(late)
    except ConflictError:
        pass
    else:
        msg = "a commit from a stale position was accepted"
        raise AssertionError(msg)
    assert (await store.position("check"), await store.position("second")) == (5, 5)
    assert await queries.events(HOME, 7) == []
    assert await queries.execution(HOME, 7) is None
    assert await store.load_projection(projection(9).key) is None


async def ten_3_no_answer_leaves_its_scope(store: ProjectionStore, queries: Queries) -> None:
    """The same id in another tenant or organization is another thing."""
    await store.commit(
        ProjectionBatch(
            checkpoints=(mark(3),),
            events=rows_of(3, sample_event(31)),
            executions=(execution(3), execution(3, "FAILED", scope=OTHER_TENANT)),
            lines=(line(1, "secret"),),
            projections=(projection(3),),
            commands=(
                CommandRow(
                    tenant_id="default",
                    organization_id="default",
                    execution_id=7,
                    command_id="c",
                    position=3,
                    status="ISSUED",
                ),
            ),
            playbooks=(
                PlaybookRow(
                    tenant_id="default",
                    organization_id="default",
                    path="a",
                    version=1,
                    digest="d",
                    position=3,
                    registered_at=SAMPLE_TIME,
                ),
            ),
        )
    )
    for scope in (OTHER_TENANT, OTHER_ORGANIZATION):
        assert await queries.events(scope, 7) == []
        assert await queries.logs(scope, 7) == []
        assert await queries.commands(scope, 7) == []
        assert await queries.playbooks(scope) == []
        assert await store.query(scope, projection_type=EXECUTION_STATE) == []
    assert await queries.execution(OTHER_ORGANIZATION, 7) is None
    assert [row.status for row in await queries.executions(OTHER_TENANT)] == ["FAILED"]
    assert [row.status for row in await queries.executions(HOME)] == ["RUNNING"]


async def limits_are_refused_not_clamped(store: ProjectionStore, queries: Queries) -> None:
    """Zero, negative and enormous limits are the caller's error."""
    for limit in (0, -1, LIMIT_MAX + 1):
        for ask in (
            queries.executions(HOME, limit=limit),
            queries.events(HOME, 7, limit=limit),
            queries.logs(HOME, 7, limit=limit),
            queries.playbooks(HOME, limit=limit),
            store.query(HOME, projection_type=EXECUTION_STATE, limit=limit),
        ):
            try:
                await ask
            except UsageError:
                continue
            msg = f"limit {limit} was accepted"
            raise AssertionError(msg)


READ_MODEL_CHECKS: tuple[Check, ...] = (
    projections_come_back_as_saved,
    prs_2_older_versions_never_overwrite,
    prs_3_parts_of_an_execution_are_apart,
    snapshots_live_side_by_side,
    query_pages_within_a_scope,
    events_come_back_as_written,
    events_page_by_whole_records,
    odd_text_does_not_stop_the_commit,
    executions_upsert_and_list,
    prj_12_an_execution_never_leaves_its_end,
    commands_merge_over_batches,
    playbooks_newest_first,
    shards_have_owners_and_checkpoints,
    workers_come_and_go,
    log_lines_page,
    the_newest_statement_is_the_object,
    objects_are_found_by_type_id_and_status,
    ten_3_objects_stay_in_their_scope,
    children_are_found_by_their_parent,
    a_frame_keeps_what_its_life_told,
    a_stage_is_opened_and_closed,
    frames_are_found_by_stage_and_status,
    commit_is_fenced_by_the_checkpoint,
    ten_3_no_answer_leaves_its_scope,
    limits_are_refused_not_clamped,
)
"""Every check, in rising order of what it leans on."""
