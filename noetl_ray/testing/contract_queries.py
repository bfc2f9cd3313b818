"""The part of the read model's proof that is about rows: written by a commit, read by queries.

Each check takes a fresh, empty store and the queries over it, as in ``contract_readmodel``.
"""

from __future__ import annotations

from typing import Any

from noetl_ray.events.envelope import PayloadRef
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.readmodel.port import ProjectionStore, Queries, find_playbook
from noetl_ray.readmodel.records import (
    CommandRow,
    PlaybookRow,
    ProjectionBatch,
    WorkerRow,
)
from noetl_ray.readmodel.shards import ShardRow, merge_shard
from noetl_ray.scope import Scope
from noetl_ray.testing.readmodel_samples import HOME, LATER, execution, line, mark, rows_of
from noetl_ray.testing.samples import SAMPLE_TIME, sample_event


async def events_come_back_as_written(store: ProjectionStore, queries: Queries) -> None:
    """Every column of the envelope, and the same event twice is one row."""
    full = sample_event(
        11,
        event_type=EventType.CALL_DONE,
        aggregate_type=AggregateType.COMMAND,
        ingest_time=LATER,
        causation_id=5,
        correlation_id="corr",
        idempotency_key="key",
        prev_event_id=4,
        stage_id="st",
        frame_id="fr",
        command_id="7:start:1",
        payload={
            "step": "start",
            "visit": 1,
            "result": {"status": "ok", "reference": None, "context": {"ü": [1, 2.5, None, True]}},
        },
        payload_ref=PayloadRef(uri="noetl://x/y", sha256="a" * 64, media_type="application/json"),
        meta={"epoch_id": "e1"},
    )
    rows = rows_of(4, full, sample_event(12))
    first = await store.commit(ProjectionBatch(checkpoints=(mark(4),), events=rows))
    assert first.events_new == 2
    again = await store.commit(ProjectionBatch(checkpoints=(mark(5, 4),), events=rows))
    assert again.events_new == 0
    assert await queries.events(HOME, 7) == list(rows)
    assert await queries.events(HOME, 7, command_id="7:start:1") == [rows[0]]


async def events_page_by_whole_records(store: ProjectionStore, queries: Queries) -> None:
    """A limit inside a record is rounded up to its end, so a position is a sound cursor."""
    batch = (
        *rows_of(2, sample_event(21), sample_event(22)),
        *rows_of(5, sample_event(51), sample_event(52), sample_event(53)),
        *rows_of(6, sample_event(61)),
    )
    await store.commit(ProjectionBatch(checkpoints=(mark(6),), events=batch))
    page = await queries.events(HOME, 7, limit=3)
    assert [row.event.event_id for row in page] == [21, 22, 51, 52, 53]
    rest = await queries.events(HOME, 7, after_position=page[-1].position, limit=3)
    assert [row.event.event_id for row in rest] == [61]
    assert await queries.events(HOME, 7, after_position=6) == []


async def odd_text_does_not_stop_the_commit(store: ProjectionStore, queries: Queries) -> None:
    """A NUL or an emoji anywhere in an event or a line is held, if need be replaced."""
    odd = "a\0b\\u0000c 😀"
    event = sample_event(
        31,
        correlation_id=odd,
        payload={"step": odd, "visit": 1, odd: [odd, {"k": odd}]},
        meta={"note": odd},
    )
    await store.commit(
        ProjectionBatch(
            checkpoints=(mark(3),),
            events=rows_of(3, event),
            executions=(execution(3, error={"message": odd}, final_step=odd),),
            lines=(line(1, odd),),
        )
    )
    (row,) = await queries.events(HOME, 7)
    assert "😀" in row.event.payload["step"]
    (printed,) = await queries.logs(HOME, 7)
    assert printed.line.text.endswith("😀")
    found = await queries.execution(HOME, 7)
    assert found is not None
    assert found.final_step is not None


async def executions_upsert_and_list(store: ProjectionStore, queries: Queries) -> None:
    """One row per execution, newest first, filtered by status and path."""
    rows = [execution(2, execution_id=n, path=f"p/{n % 2}") for n in range(1, 6)]
    await store.commit(ProjectionBatch(checkpoints=(mark(2),), executions=tuple(rows)))
    ended = execution(
        3, "FAILED", execution_id=4, ended_at=LATER, error={"message": "no"}, final_step="start"
    )
    await store.commit(ProjectionBatch(checkpoints=(mark(3, 2),), executions=(ended,)))
    assert await queries.execution(HOME, 4) == ended
    assert await queries.execution(HOME, 99) is None
    listed = await queries.executions(HOME, limit=3)
    assert [row.execution_id for row in listed] == [5, 4, 3]
    older = await queries.executions(HOME, before=3)
    assert [row.execution_id for row in older] == [2, 1]
    failed = await queries.executions(HOME, status="FAILED")
    assert [row.execution_id for row in failed] == [4]
    odd = await queries.executions(HOME, path="p/1", status="RUNNING", before=5)
    assert [row.execution_id for row in odd] == [3, 1]
    assert await queries.ended(HOME, [1, 4, 99]) == [ended]
    assert await queries.ended(HOME, []) == []
    assert await queries.ended(Scope(tenant_id="other"), [4]) == []


async def commands_merge_over_batches(store: ProjectionStore, queries: Queries) -> None:
    """Issued, claimed and ended in three commits make one full row; the end stays."""

    def change(position: int, status: str, **more: Any) -> CommandRow:
        return CommandRow(
            tenant_id="default",
            organization_id="default",
            execution_id=7,
            command_id="7:start:1",
            position=position,
            status=status,
            **more,
        )

    changes = (
        change(2, "ISSUED", step="start", visit=1, issued_event_id=20, issued_at=SAMPLE_TIME),
        change(3, "CLAIMED", worker_id="w1", incarnation="i1", claimed_event_id=30),
        change(4, "COMPLETED", attempt=2, terminal_event_id=40, ended_at=LATER),
        change(5, "FAILED", terminal_event_id=50, error={"message": "late"}),
    )
    for row in changes:
        await store.commit(
            ProjectionBatch(
                checkpoints=(mark(row.position, row.position - 1 if row.position > 2 else 0),),
                commands=(row,),
            )
        )
    stale = await store.commit(ProjectionBatch(checkpoints=(mark(6, 5),), commands=changes[:1]))
    assert stale.stale == 1
    assert await queries.commands(HOME, 7) == [
        change(
            5,
            "COMPLETED",
            step="start",
            visit=1,
            attempt=2,
            worker_id="w1",
            incarnation="i1",
            issued_event_id=20,
            issued_at=SAMPLE_TIME,
            claimed_event_id=30,
            terminal_event_id=40,
            ended_at=LATER,
        )
    ]


async def playbooks_newest_first(store: ProjectionStore, queries: Queries) -> None:
    """Each path's newest, a path's versions, one version; registering twice changes nothing."""

    def book(path: str, version: int, **more: Any) -> PlaybookRow:
        return PlaybookRow(
            tenant_id="default",
            organization_id="default",
            path=path,
            version=version,
            digest=f"{version}" * 64,
            position=version,
            registered_at=SAMPLE_TIME,
            **more,
        )

    books = (
        book("b/one", 1, name="one", source="kind: Playbook", size_bytes=14),
        book("a/two", 1, source_ref={"uri": "noetl://p"}),
        book("a/two", 2),
    )
    await store.commit(ProjectionBatch(checkpoints=(mark(2),), playbooks=books))
    await store.commit(ProjectionBatch(checkpoints=(mark(3, 2),), playbooks=(book("b/one", 1),)))
    assert await queries.playbooks(HOME) == [books[2], books[0]]
    assert await queries.playbooks(HOME, path="a/two") == [books[2], books[1]]
    assert await find_playbook(queries, HOME, "a/two", 1) == books[1]
    assert await find_playbook(queries, HOME, "a/two") == books[2]
    assert await find_playbook(queries, HOME, "nothing") is None


async def workers_come_and_go(store: ProjectionStore, queries: Queries) -> None:
    """An end keeps what the join told; a new incarnation starts anew."""
    up = WorkerRow(
        worker_id="w1",
        incarnation="i1",
        status="up",
        position=2,
        slots=4,
        place={"zone": "z1"},
        joined_at=SAMPLE_TIME,
    )
    lost = WorkerRow(
        worker_id="w1", incarnation="i1", status="lost", position=4, ended_at=LATER, reason="oom"
    )
    await store.commit(ProjectionBatch(checkpoints=(mark(2),), workers=(up,)))
    await store.commit(ProjectionBatch(checkpoints=(mark(4, 2),), workers=(lost,)))
    (found,) = await queries.workers()
    assert (found.status, found.slots, found.place) == ("lost", 4, {"zone": "z1"})
    assert (found.joined_at, found.ended_at, found.reason) == (SAMPLE_TIME, LATER, "oom")
    again = WorkerRow(worker_id="w1", incarnation="i2", status="up", position=6, slots=8)
    other = WorkerRow(worker_id="w2", incarnation="i1", status="up", position=5, slots=1)
    await store.commit(ProjectionBatch(checkpoints=(mark(6, 4),), workers=(again, other)))
    assert await queries.workers() == [again, other]


async def shards_have_owners_and_checkpoints(store: ProjectionStore, queries: Queries) -> None:
    """A checkpoint keeps what the claim told, and a release what the checkpoint told."""
    claimed = ShardRow(
        shard_id=3,
        position=2,
        status="leased",
        owner_runtime_id="c1",
        owner_instance="i1",
        epoch=4,
        claimed_at=SAMPLE_TIME,
        leased_until=LATER,
        reason="joined",
        updated_at=SAMPLE_TIME,
    )
    kept = ShardRow(
        shard_id=3,
        position=5,
        checkpoint_position=4,
        checkpoint_event_id=9,
        checkpoint_executions=2,
        committed_at=LATER,
        updated_at=LATER,
    )
    other = ShardRow(shard_id=1, position=6, status="free", epoch=1, owner_runtime_id="c2")
    await store.commit(ProjectionBatch(checkpoints=(mark(2),), shards=(claimed,)))
    await store.commit(ProjectionBatch(checkpoints=(mark(6, 2),), shards=(kept, other)))
    assert await queries.shards() == [other, merge_shard(claimed, kept)]
    stale = ShardRow(shard_id=3, position=3, status="free", epoch=3)
    done = await store.commit(ProjectionBatch(checkpoints=(mark(7, 6),), shards=(stale,)))
    assert done.stale == 1
    assert await queries.shards() == [other, merge_shard(claimed, kept)]


async def log_lines_page(store: ProjectionStore, queries: Queries) -> None:
    """In order after an id, by step; the same line twice is one row."""
    lines = (line(1, "one"), line(2, "two", step="next"), line(5, "three"))
    await store.commit(ProjectionBatch(checkpoints=(mark(2, consumer="tasklog"),), lines=lines))
    await store.commit(ProjectionBatch(checkpoints=(mark(3, 2, "tasklog"),), lines=lines[:1]))
    assert await queries.logs(HOME, 7) == list(lines)
    assert await queries.logs(HOME, 7, after=1, limit=1) == [lines[1]]
    assert await queries.logs(HOME, 7, step="start") == [lines[0], lines[2]]
    assert await queries.logs(HOME, 8) == []
