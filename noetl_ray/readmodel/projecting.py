"""From log records to the rows of one commit: pure, and the same for live projection and rebuilds.

Groups by tenant, organization and execution, folds in order of position with the engine's own
``fold`` (PRJ-2), and gives one row per execution however many records it had. A record that cannot
be folded costs its execution that record, never the projection of everyone else: its events are
kept and it is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from noetl_ray.engine.fold import fold
from noetl_ray.engine.state import ExecutionState, encode_state, parse_state
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.events.upcast import registry
from noetl_ray.readmodel.frames import fold_frames, fold_stages, frame_row, stage_row
from noetl_ray.readmodel.objects import object_row
from noetl_ray.readmodel.records import (
    EXECUTION_STATE,
    BusinessObjectRow,
    CommandRow,
    EventRow,
    ExecutionRow,
    FrameRow,
    PlaybookRow,
    ProjectionKey,
    ProjectionRecord,
    StageRow,
    WorkerRow,
)
from noetl_ray.readmodel.rows import (
    command_row,
    execution_row,
    fold_commands,
    merge_worker,
    playbook_row,
    worker_row,
)
from noetl_ray.readmodel.shards import ShardRow, fold_shards, shard_row
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.subjects import SYSTEM_ROOT, parse_event_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from noetl_ray.events.envelope import Event

SYSTEM_SHARD = -1
"""The shard of what belongs to no execution; the owner of shard 0 projects it."""

REGISTRY_DIGEST = "upcaster_registry_digest"
"""Under which name a kept state says which upcasters its events went through (UPC-2)."""

EVENTS_PER_COMMIT_MAX = 5_000

ExecutionKey = tuple[str, str, int]


@dataclass(slots=True, kw_only=True)
class Projected:
    """What a run of records makes: rows by kind, and the states behind them."""

    events: list[EventRow] = field(default_factory=list)
    commands: list[CommandRow] = field(default_factory=list)
    playbooks: list[PlaybookRow] = field(default_factory=list)
    stages: list[StageRow] = field(default_factory=list)
    frames: list[FrameRow] = field(default_factory=list)
    objects: list[BusinessObjectRow] = field(default_factory=list)
    workers: dict[str, WorkerRow] = field(default_factory=dict)
    shards: list[ShardRow] = field(default_factory=list)
    states: dict[ExecutionKey, ExecutionState] = field(default_factory=dict)
    """Only the executions whose state changed."""
    first_event_ids: dict[ExecutionKey, int] = field(default_factory=dict)
    fold_errors: list[str] = field(default_factory=list)

    def execution_rows(
        self, *, updated_at: str, lag_ms: int
    ) -> tuple[tuple[ExecutionRow, ...], tuple[ProjectionRecord, ...]]:
        """The execution rows and the kept states, each once per execution."""
        rows, kept = [], []
        for key, state in self.states.items():
            data = encode_state(state)
            checksum = sha256_hex(data)
            rows.append(execution_row(state, checksum=checksum, updated_at=updated_at))
            kept.append(
                ProjectionRecord(
                    key=state_key(key),
                    version=state.position,
                    state=data,
                    checksum=checksum,
                    source_event_id=state.last_event_id,
                    source_first_event_id=self.first_event_ids[key],
                    meta={
                        "event_count": state.event_count,
                        "source_event_id": state.last_event_id,
                        "projected_at": updated_at,
                        "projection_lag_ms": lag_ms,
                        REGISTRY_DIGEST: registry().digest,
                    },
                    updated_at=updated_at,
                )
            )
        return tuple(rows), tuple(kept)

    def command_rows(self) -> tuple[CommandRow, ...]:
        """One change per command."""
        return fold_commands(self.commands)

    def shard_rows(self) -> tuple[ShardRow, ...]:
        """One change per shard."""
        return fold_shards(self.shards)

    def stage_rows(self) -> tuple[StageRow, ...]:
        """One change per stage."""
        return fold_stages(self.stages)

    def frame_rows(self) -> tuple[FrameRow, ...]:
        """One change per frame."""
        return fold_frames(self.frames)


@dataclass(slots=True)
class Part:
    """What the next commit writes; ``before`` has states as they were committed last."""

    made: Projected = field(default_factory=Projected)
    before: dict[ExecutionKey, ExecutionState | None] = field(default_factory=dict)
    records: int = 0
    last: Recorded | None = None

    @property
    def is_over(self) -> bool:
        """Whether everything it speaks of has ended, so that somebody may wait for it."""
        return all(state.terminal for state in self.made.states.values())


def project_records(
    records: Sequence[Recorded],
    states: Mapping[ExecutionKey, ExecutionState | None],
    made: Projected | None = None,
) -> Projected:
    """Fold records, given in order of position, over the states known so far.

    Args:
        records: What is to be projected.
        states: The states from before all that goes into ``made``.
        made: What records before these have made; these are added to it.
    """
    made = Projected() if made is None else made
    for recorded in records:
        shard = shard_of(recorded)
        for ordinal, event in enumerate(recorded.record.events):
            made.events.append(
                EventRow(
                    position=recorded.position,
                    ordinal=ordinal,
                    shard=SYSTEM_SHARD if shard is None else shard,
                    event=event,
                )
            )
            _collect(made, event, recorded.position, ordinal)
        for key, part in _by_execution(recorded):
            _advance(made, key, part, states)
    return made


def cut_records(records: Sequence[Recorded], size: int) -> Iterator[list[Recorded]]:
    """Cut so that no transaction grows beyond the limit; the first part joins ``size`` events."""
    part: list[Recorded] = []
    for recorded in records:
        count = len(recorded.record.events)
        if size and size + count > EVENTS_PER_COMMIT_MAX:
            yield part
            part, size = [], 0
        part.append(recorded)
        size += count
    yield part


def executions_of(records: Iterable[Recorded]) -> set[ExecutionKey]:
    """The executions records speak of."""
    return {
        key_of(event)
        for recorded in records
        for event in recorded.record.events
        if event.execution_id
    }


def shard_of(recorded: Recorded) -> int | None:
    """The shard a subject names; ``SYSTEM_SHARD`` for system subjects, None where there is none."""
    return _shard_of_subject(recorded.subject)


def shard_consumer(shard: int) -> str:
    """Under which name the read model keeps how far a shard is projected (PRJ-8)."""
    return "system" if shard == SYSTEM_SHARD else f"shard-{shard}"


@lru_cache(maxsize=4096)
def _shard_of_subject(subject: str) -> int | None:
    """Asked when a record is due and again when it is projected, and subjects come back."""
    if subject.startswith(f"{SYSTEM_ROOT}."):
        return SYSTEM_SHARD
    try:
        parsed = parse_event_subject(subject)
    except ValueError:
        return None
    return None if parsed is None else parsed.shard


def key_of(event: Event) -> ExecutionKey:
    """Whose execution an event is about."""
    return (event.tenant_id, event.organization_id, event.execution_id)


def state_key(key: ExecutionKey) -> ProjectionKey:
    """Under which name an execution's folded state is kept."""
    return ProjectionKey(
        tenant_id=key[0],
        organization_id=key[1],
        projection_type=EXECUTION_STATE,
        execution_id=key[2],
    )


def decode_state(record: ProjectionRecord) -> ExecutionState:
    """A kept state, ready to be folded on."""
    return parse_state(record.state)


def _collect(made: Projected, event: Event, position: int, ordinal: int) -> None:
    if event.execution_id:
        # Commands belong to executions; playbooks and workers to none.
        command = command_row(event, position) if event.command_id else None
        if command is not None:
            made.commands.append(command)
        if event.stage_id:
            _collect_stage(made, event, position)
        stated = object_row(event, position, ordinal)
        if stated is not None:
            made.objects.append(stated)
        return
    playbook = playbook_row(event, position)
    if playbook is not None:
        made.playbooks.append(playbook)
    shard = shard_row(event, position)
    if shard is not None:
        made.shards.append(shard)
        return
    worker = worker_row(event, position)
    if worker is not None:
        held = made.workers.get(worker.worker_id)
        made.workers[worker.worker_id] = merge_worker(held, worker) if held else worker


def _collect_stage(made: Projected, event: Event, position: int) -> None:
    stage = stage_row(event, position)
    if stage is not None:
        made.stages.append(stage)
    frame = frame_row(event, position)
    if frame is not None:
        made.frames.append(frame)


def _by_execution(recorded: Recorded) -> list[tuple[ExecutionKey, Recorded]]:
    groups: dict[ExecutionKey, list[Event]] = {}
    for event in recorded.record.events:
        if event.execution_id:
            groups.setdefault(key_of(event), []).append(event)
    if len(groups) == 1 and len(next(iter(groups.values()))) == len(recorded.record.events):
        return [(next(iter(groups)), recorded)]
    return [
        (
            key,
            Recorded(
                position=recorded.position,
                subject=recorded.subject,
                time_ms=recorded.time_ms,
                record=msgspec.structs.replace(recorded.record, events=tuple(events)),
            ),
        )
        for key, events in groups.items()
    ]


def _advance(
    made: Projected,
    key: ExecutionKey,
    recorded: Recorded,
    states: Mapping[ExecutionKey, ExecutionState | None],
) -> None:
    before = made.states.get(key) or states.get(key)
    if before is not None and recorded.position <= before.position:
        return
    try:
        after = fold(before, recorded)
    except Exception as error:
        # Pure code fails the same way each time: going round again would stop every other
        # execution.
        made.fold_errors.append(
            f"execution {key[2]} at {recorded.position}: {type(error).__name__}: {error}"
        )
        return
    if after is not before:
        made.states[key] = after
        made.first_event_ids.setdefault(key, recorded.record.events[0].event_id)
