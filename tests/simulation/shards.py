"""What must hold of checkpoints at any moment (P25); epochs are checked as claims are stored."""

from __future__ import annotations

from bisect import bisect_right

from noetl_ray.engine.fold import fold
from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.types import EventType
from noetl_ray.replay.history import normalised
from noetl_ray.shards.checkpoint import read_chain
from noetl_ray.shards.memory import MemoryCheckpoints
from tests.simulation.ledger import Ledger
from tests.simulation.world import SHARDS, World


def check_shards(world: World) -> list[str]:
    """Checkpoints as they are now."""
    return check_checkpoints(world.checkpoints, world.ledger, range(SHARDS))


def check_checkpoints(store: MemoryCheckpoints, ledger: Ledger, shards: range) -> list[str]:
    """A checkpoint and the log after it give what the whole log gives, for all that is open."""
    wrong: list[str] = []
    whole = {e: state for e, state in ledger.states.items() if not state.terminal}
    for shard in shards:
        found = read_chain(shard, store._chains.get(shard, ()))
        if found.refused:
            wrong.append(f"the checkpoint of shard {shard} {found.refused}")
            continue
        states: dict[int, ExecutionState] = dict(found.states)
        of_shard = ledger.of_shard[shard]
        after = bisect_right(of_shard, found.position, key=lambda each: each.position)
        for recorded in of_shard[after:]:
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
