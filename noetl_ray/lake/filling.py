"""A lake and a read model filled from records at hand, for tests and benches of whoever reads both.

Owns the short way: the build's own rows and files, the projector's own rows, without servers for
the log and without Spark.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from noetl_ray.clock import iso_utc
from noetl_ray.lake.commits import make_commit, read_snapshot
from noetl_ray.lake.parts import tables_of, write_part
from noetl_ray.lake.rows import Rows
from noetl_ray.readmodel.projecting import (
    SYSTEM_SHARD,
    executions_of,
    project_records,
    shard_consumer,
    shard_of,
)
from noetl_ray.readmodel.records import Checkpoint, ProjectionBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.lake.commits import Snapshot
    from noetl_ray.lake.files import Files
    from noetl_ray.readmodel.port import ProjectionStore
    from noetl_ray.readmodel.projecting import ExecutionKey
    from noetl_ray.wal.port import Recorded

BATCH_RECORDS = 2_000


def fill_lake(files: Files, records: Iterable[Recorded], *, per_part: int = 20_000) -> Snapshot:
    """Add records, in order of position, to a lake by one commit."""
    source = iter(records)
    before = read_snapshot(files)
    parts, last = [], before.position
    while chunk := list(islice(source, per_part)):
        rows = Rows()
        for recorded in chunk:
            rows.add(recorded)
        label = f"{chunk[0].position:012d}-{chunk[-1].position:012d}-fill"
        parts += [
            write_part(files, partition, label, table) for partition, table in tables_of(rows)
        ]
        last = chunk[-1].position
    return make_commit(files, before, what="build", position=last, added=parts, made_at="")


async def fill_readmodel(
    store: ProjectionStore,
    records: Iterable[Recorded],
    *,
    with_events: bool = True,
    marks: dict[str, int] | None = None,
) -> dict[str, int]:
    """Project records, in order of position, as the projector does; marks stand at the last one.

    Args:
        store: Empty so far.
        records: Of whole executions, one after the other; of others too, with more memory.
        with_events: Whether the rows of single events are written too.
        marks: What the call before gave, when this one goes on after it.

    Returns:
        The positions of the store's checkpoints.
    """
    source = iter(records)
    marks = dict(marks or {})
    open_states: dict[ExecutionKey, ExecutionState | None] = {}
    while chunk := list(islice(source, BATCH_RECORDS)):
        known = {key: open_states.get(key) for key in executions_of(chunk)}
        made = project_records(chunk, {key: state for key, state in known.items() if state})
        executions, projections = made.execution_rows(updated_at=iso_utc(0), lag_ms=0)
        consumers = {shard_consumer(shard_of(one) or 0) for one in chunk} | marks.keys()
        consumers.discard(shard_consumer(SYSTEM_SHARD))
        position = chunk[-1].position
        checkpoints = [
            Checkpoint(
                consumer=name,
                expected=marks.get(name, 0),
                position=position,
                projected_at=iso_utc(0),
            )
            for name in sorted(consumers)
        ]
        await store.commit(
            ProjectionBatch(
                checkpoints=tuple(checkpoints),
                events=tuple(made.events) if with_events else (),
                executions=executions,
                commands=made.command_rows(),
                stages=made.stage_rows(),
                frames=made.frame_rows(),
                objects=tuple(made.objects),
                projections=projections,
            )
        )
        marks |= dict.fromkeys(consumers, position)
        open_states |= made.states
        for key, state in made.states.items():
            if state.terminal:
                del open_states[key]
    return marks
