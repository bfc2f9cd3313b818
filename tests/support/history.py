"""Judges what clients, the log and the outside world saw of the same work, after everything.

In the manner of Jepsen: whatever was killed meanwhile, nothing acknowledged is lost, nothing is
doubled beyond what the promise allows, nothing happens out of order. Takes plain data, so that it
can be shown planted errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from noetl_ray.events.types import EventType
from noetl_ray.wal.port import Recorded
from tests.simulation.invariants import check_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One execution as a client asked for it, and what it must do outside."""

    execution_id: int
    stages: tuple[frozenset[str], ...]
    """Effect keys; those of a stage happen in any order, stages one after the other."""


@dataclass(slots=True)
class Verdict:
    """What is wrong, by kind; all empty when the history is sound."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Invariants of the log itself."""
    repeated: int = 0
    """Effects that happened again before their completion was durable, with the same key."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.reordered or self.broken)

    def __str__(self) -> str:
        """The line a chaos run ends with."""
        return (
            f"lost={len(self.lost)} doubled={len(self.doubled)} reordered={len(self.reordered)} "
            f"broken={len(self.broken)} repeated_within_promise={self.repeated}"
        )


def judge(
    acknowledged: Iterable[Work], effects: Sequence[str], records: Sequence[Recorded]
) -> Verdict:
    """Hold three views of the same work against each other.

    Args:
        acknowledged: What the gateway said yes to.
        effects: Keys in the order their effects happened, one entry for each time.
        records: Everything the log holds of these executions.
    """
    verdict = Verdict(broken=check_records(records))
    given = _given_out(records)
    ended = {
        event.execution_id
        for recorded in records
        for event in recorded.record.events
        if event.event_type is EventType.PLAYBOOK_COMPLETED
    }
    times = Counter(effects)
    first = {key: at for at, key in reversed(list(enumerate(effects)))}
    last = {key: at for at, key in enumerate(effects)}
    known: set[str] = set()
    for work in acknowledged:
        if work.execution_id not in ended:
            verdict.lost.append(f"{work.execution_id} has not completed")
        for stage in work.stages:
            known |= stage
            verdict.lost += [f"{key} never happened" for key in sorted(stage) if not times[key]]
            for key in sorted(stage):
                allowed = given[key.split("/")[0]]
                verdict.repeated += max(0, min(times[key], allowed) - 1)
                if times[key] > max(1, allowed):
                    verdict.doubled.append(f"{key} happened {times[key]} times of {allowed}")
        for before, after in zip(work.stages, work.stages[1:], strict=False):
            done = max((last[key] for key in before if key in last), default=-1)
            begun = min((first[key] for key in after if key in first), default=len(effects))
            if done > begun:
                verdict.reordered.append(
                    f"{effects[done]} happened after {effects[begun]}, which follows it"
                )
    verdict.doubled += [f"{key} was never asked for" for key in sorted(times.keys() - known)]
    return verdict


def _given_out(records: Iterable[Recorded]) -> Counter[str]:
    """How often each command was given to a worker: so often its effect may have begun."""
    times: Counter[str] = Counter()
    for recorded in records:
        for event in recorded.record.events:
            if event.event_type in (EventType.COMMAND_ISSUED, EventType.COMMAND_RELEASED):
                times[event.command_id or ""] += 1
    return times
