"""What must hold of checkpoints and leases at any moment (P25, PRJ-6)."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_ray.engine.fold import fold
from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.types import EventType
from noetl_ray.replay.history import normalised
from noetl_ray.shards.checkpoint import read_chain
from noetl_ray.shards.memory import MemoryCheckpoints
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.subjects import parse_event_subject
from tests.simulation.invariants import fold_all


def check_checkpoints(
    store: MemoryCheckpoints, records: Sequence[Recorded], shards: range
) -> list[str]:
    """A checkpoint and the log after it give what the whole log gives, for all that is open."""
    wrong: list[str] = []
    whole = {e: state for e, state in fold_all(records).items() if not state.terminal}
    for shard in shards:
        found = read_chain(shard, store._chains.get(shard, ()))
        if found.refused:
            wrong.append(f"the checkpoint of shard {shard} {found.refused}")
            continue
        states: dict[int, ExecutionState] = dict(found.states)
        for recorded in records:
            parsed = parse_event_subject(recorded.subject)
            if parsed is None or parsed.shard != shard or recorded.position <= found.position:
                continue
            first = recorded.record.events[0]
            before = states.get(first.execution_id)
            if before is not None or first.event_type is EventType.EXECUTION_REQUESTED:
                states[first.execution_id] = fold(before, recorded)
        opened = {e: state for e, state in states.items() if not state.terminal}
        wanted = {e for e, state in whole.items() if state.shard == shard}
        if opened.keys() != wanted:
            wrong.append(f"P25: shard {shard} has {sorted(opened)} open, the log {sorted(wanted)}")
        wrong += [
            f"P25: execution {e} out of the checkpoint at {found.position} is not what it is"
            for e in opened.keys() & wanted
            if normalised(opened[e]) != normalised(whole[e])
        ]
    return wrong


def check_epochs(records: Sequence[Recorded]) -> list[str]:
    """Each claim of a shard has a later epoch than every claim before it (PRJ-6)."""
    wrong: list[str] = []
    newest: dict[int, int] = {}
    for recorded in records:
        for event in recorded.record.events:
            if event.event_type is EventType.SHARD_CLAIMED:
                shard, epoch = event.payload["shard"], event.payload["epoch"]
                if epoch <= newest.get(shard, 0):
                    wrong.append(f"shard {shard} was claimed again under epoch {epoch}")
                newest[shard] = epoch
    return wrong
